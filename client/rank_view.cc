#include "client/rank_view.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "client/terminal.h"
#include "client/units.h"

namespace tidemark::client {
namespace {

constexpr std::array<const char*, 6> kDriverClasses = {"device",  "pool",  "vmm",
                                                       "managed", "array", "graph"};

// The class under which a phase lists a side's bytes.
std::string PhaseClass(Side side) {
  switch (side) {
    case Side::kFramework:
      return "fw_live";
    case Side::kDriver:
      return "device";
    case Side::kPinned:
      return "pinned";
    case Side::kAnon:
      return "anon";
  }
  return "";
}

int WitnessOrder(const std::string& witness) {
  constexpr std::array<const char*, 5> kOrder = {"torch", "cupti", "bpf", "nvml", "proc"};
  return static_cast<int>(std::find(kOrder.begin(), kOrder.end(), witness) - kOrder.begin());
}

const v1::PhaseGroup* FindPhaseGroup(const v1::Phase& phase, Side side, int device) {
  for (const v1::PhaseGroup& group : phase.groups()) {
    if (group.memory_class() != PhaseClass(side)) continue;
    if (side == Side::kAnon || group.device() == device) return &group;
  }
  return nullptr;
}

void FillFromPhases(const v1::Process& process, Moments& moments) {
  for (const v1::Phase& phase : process.phases()) {
    const v1::PhaseGroup* group = FindPhaseGroup(phase, moments.side, moments.device);
    if (group == nullptr) continue;
    if (phase.name() == "load" && !moments.load) moments.load = group->end_bytes();
    if (moments.side == Side::kAnon) {
      moments.peak = std::max(moments.peak.value_or(0), group->peak_bytes());
    }
  }
}

void FillFromLastStep(const v1::Process& process, Moments& moments) {
  if (process.steps().empty()) return;
  const v1::Step& last = *process.steps().rbegin();
  if (moments.side == Side::kAnon) {
    if (last.anon_bytes() >= 0) moments.last_step = last.anon_bytes();
    return;
  }
  for (const v1::StepGroup& group : last.groups()) {
    if (group.side() == SideName(moments.side) && group.device() == moments.device) {
      moments.last_step = group.end_bytes();
    }
  }
}

std::optional<Moments> AnonMoments(const v1::Process& process) {
  Moments moments;
  moments.side = Side::kAnon;
  FillFromPhases(process, moments);
  FillFromLastStep(process, moments);
  if (process.host().known()) moments.exit = process.host().anon_bytes();
  if (moments.exit && moments.peak) moments.peak = std::max(*moments.peak, *moments.exit);
  if (!moments.load && !moments.last_step && !moments.exit) return std::nullopt;
  return moments;
}

}  // namespace

std::vector<const v1::Process*> ByRank(const v1::Snapshot& snapshot) {
  std::vector<const v1::Process*> processes;
  for (const v1::Process& process : snapshot.processes()) processes.push_back(&process);
  const auto key = [](const v1::Process* p) {
    const v1::Identity& id = p->identity();
    const int rank = id.rank() < 0 ? std::numeric_limits<int>::max() : id.rank();
    return std::make_tuple(id.training_job(), rank, id.helper_of(), id.attempt(), p->pid());
  };
  std::sort(processes.begin(), processes.end(),
            [&](const v1::Process* a, const v1::Process* b) { return key(a) < key(b); });
  return processes;
}

bool IsRank(const v1::Process& process) {
  return process.identity().rank() >= 0 && process.identity().helper_of() == 0;
}

std::string ProcessName(const v1::Process& process) {
  const v1::Identity& id = process.identity();
  if (id.helper_of() > 0) {
    return "pid " + std::to_string(process.pid()) + ", helper of " + std::to_string(id.helper_of());
  }
  if (id.rank() >= 0) return "rank " + std::to_string(id.rank());
  std::string name = "pid " + std::to_string(process.pid());
  if (!id.command().empty()) name += " (" + Printable(id.command()) + ")";
  return name;
}

std::string RankText(const v1::Process& process) {
  const v1::Identity& id = process.identity();
  if (IsRank(process)) return std::to_string(id.rank());
  return "pid " + std::to_string(process.pid());
}

std::string RanksText(const std::vector<const v1::Process*>& processes) {
  std::vector<int32_t> ranks;
  std::string others;
  for (const v1::Process* process : processes) {
    if (IsRank(*process)) {
      ranks.push_back(process->identity().rank());
    } else {
      others += (others.empty() ? "" : ", ") + RankText(*process);
    }
  }
  const std::string text = FormatRanges(std::move(ranks));
  return text.empty() ? others : others.empty() ? text : text + ", " + others;
}

std::string RanksPhrase(const std::vector<const v1::Process*>& processes) {
  const auto ranks = std::count_if(processes.begin(), processes.end(),
                                   [](const v1::Process* process) { return IsRank(*process); });
  return (ranks == 0 ? "" : ranks == 1 ? "rank " : "ranks ") + RanksText(processes);
}

bool IsDead(const v1::Process& process) {
  return !process.liveness().empty() && process.liveness() != "alive";
}

std::string LivenessText(const v1::Process& process) {
  if (!IsDead(process)) return "alive";
  const std::string reason = Printable(process.exit_reason());
  if (reason.empty() || reason == process.liveness()) return process.liveness();
  // "killed by the OOM killer" says already that it was killed.
  if (reason.rfind(process.liveness(), 0) == 0) return reason;
  return process.liveness() + ": " + reason;
}

std::string SideName(Side side) {
  switch (side) {
    case Side::kFramework:
      return "framework";
    case Side::kDriver:
      return "driver_device";
    case Side::kPinned:
      return "pinned";
    case Side::kAnon:
      return "anon";
  }
  return "";
}

bool HasSeveralGpus(const v1::Process& process) {
  std::set<int> devices;
  for (const v1::Peak& peak : process.peaks()) {
    if (peak.device() >= 0 && peak.peak_bytes() > 0) devices.insert(peak.device());
  }
  return devices.size() > 1;
}

std::string SideTitle(Side side, int device) {
  const std::string gpu = device < 0 ? "GPU" : "GPU " + std::to_string(device);
  switch (side) {
    case Side::kFramework:
      return gpu + " tensors";
    case Side::kDriver:
      return gpu + " driver";
    case Side::kPinned:
      return "host pinned";
    case Side::kAnon:
      return "host anon";
  }
  return "";
}

std::vector<Moments> MomentsOf(const v1::Process& process) {
  std::vector<Moments> all;
  for (const Side side : kSides) {
    if (side == Side::kAnon) {
      if (auto anon = AnonMoments(process)) all.push_back(*anon);
      continue;
    }
    for (const v1::Peak& peak : process.peaks()) {
      if (peak.side() != SideName(side)) continue;
      if (peak.peak_bytes() == 0 && peak.live_bytes() == 0) continue;
      Moments moments;
      moments.side = side;
      moments.device = peak.device();
      moments.peak = peak.peak_bytes();
      moments.peak_step = peak.peak_step();
      moments.exit = peak.live_bytes();
      FillFromPhases(process, moments);
      FillFromLastStep(process, moments);
      // The end of loading was never seen when a job ends in it: what is left then is what its exit
      // had not given back yet. The peak says what loading held.
      if (process.current_step() == 0 && IsDead(process)) moments.load.reset();
      all.push_back(moments);
    }
  }
  return all;
}

std::optional<int64_t> LiveBytes(const v1::Process& process, const std::string& memory_class) {
  // Per device the best witness only: the same bytes are counted once per witness.
  std::map<int, std::pair<int, int64_t>> best;
  for (const v1::ClassTotal& total : process.totals()) {
    if (total.memory_class() != memory_class || total.before_attach()) continue;
    const int order = WitnessOrder(total.witness());
    const auto [entry, fresh] = best.try_emplace(total.device(), order, total.live_bytes());
    if (!fresh && order < entry->second.first) entry->second = {order, total.live_bytes()};
  }
  if (best.empty()) return std::nullopt;
  int64_t sum = 0;
  for (const auto& [device, value] : best) sum += value.second;
  return sum;
}

std::optional<int64_t> GpuLiveBytes(const v1::Process& process) {
  if (const auto framework = LiveBytes(process, "fw_live")) return framework;
  std::optional<int64_t> driver;
  for (const char* memory_class : kDriverClasses) {
    if (const auto bytes = LiveBytes(process, memory_class)) driver = driver.value_or(0) + *bytes;
  }
  return driver;
}

std::string FeatureState(const v1::Process& process, const std::string& feature) {
  for (const v1::Feature& candidate : process.features()) {
    if (candidate.name() == feature) return candidate.state();
  }
  return "";
}

}  // namespace tidemark::client
