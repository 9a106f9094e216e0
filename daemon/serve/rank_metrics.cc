#include "daemon/serve/rank_metrics.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "daemon/detect/cause.h"

namespace tidemark::serve {
namespace {

using DeviceAndClass = std::pair<int, MemoryClass>;

std::string DeviceLabel(int device) { return device < 0 ? "" : std::to_string(device); }
std::string NumberLabel(int number) { return number < 0 ? "" : std::to_string(number); }
std::string ClassLabel(MemoryClass c) { return std::string(ToString(c)); }
double Number(auto value) { return static_cast<double>(value); }

bool HasGpuContext(const ProcessSnapshot& process) {
  return !process.waterfalls.empty() ||
         std::ranges::any_of(process.totals,
                             [](const ClassTotal& total) { return OnDevice(total.memory_class); });
}

LabelValues LabelsOf(const Identity& identity) {
  return {LabelText(identity.training_job), NumberLabel(identity.rank),
          NumberLabel(identity.local_rank), LabelText(identity.workload_namespace),
          LabelText(identity.workload_pod), LabelText(identity.workload_container)};
}

std::string_view SideLabel(wire::PeakSide side) {
  switch (side) {
    case wire::PeakSide::kFramework:
      return "framework";
    case wire::PeakSide::kDriverDevice:
      return "driver_device";
    case wire::PeakSide::kPinned:
      return "pinned";
    case wire::PeakSide::kHostFramework:
      return "host_framework";
  }
  return "";
}

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Confirmed leaks first, then other confirmed causes, suspects, what was retracted.
int Severity(const detect::Verdict& verdict) {
  switch (verdict.state) {
    case detect::VerdictState::kConfirmed:
      return detect::IsLeak(verdict.cause) ? 4 : 3;
    case detect::VerdictState::kSuspect:
      return 2;
    case detect::VerdictState::kRetracted:
      return 1;
    case detect::VerdictState::kWarmingUp:
    case detect::VerdictState::kSteady:
      return 0;
  }
  return 0;
}

std::vector<const detect::Verdict*> WorstVerdicts(const RankProcesses& processes, size_t limit) {
  std::vector<const detect::Verdict*> worst;
  for (const ProcessSnapshot* process : processes.owners) {
    for (const detect::Verdict& verdict : process->verdicts) {
      if (Severity(verdict) > 0) worst.push_back(&verdict);
    }
  }
  std::ranges::stable_sort(worst, [](const detect::Verdict* a, const detect::Verdict* b) {
    return std::tuple(Severity(*a), a->slope.per_unit) >
           std::tuple(Severity(*b), b->slope.per_unit);
  });
  if (worst.size() > limit) worst.resize(limit);
  return worst;
}

void AddVerdict(const detect::Verdict& verdict, SeriesMap* out) {
  const std::string device = DeviceLabel(verdict.device);
  const std::string memory_class = ClassLabel(verdict.memory_class);
  out->Max(
      Metric::kVerdict, 1,
      {device, memory_class, verdict.site ? SiteIdLabel(verdict.site->site_id) : "",
       std::string(detect::ToString(verdict.state)), std::string(detect::ToString(verdict.cause)),
       detect::IsLeak(verdict.cause) ? "true" : "false"});
  const LabelValues labels = {device, memory_class};
  const bool by_steps = verdict.aligned_to == detect::AlignedTo::kSteps;
  if (by_steps) {
    out->Max(Metric::kGrowth, verdict.slope.per_unit, labels);
    out->Max(Metric::kGrowthLow, verdict.slope.low, labels);
    out->Max(Metric::kGrowthHigh, verdict.slope.high, labels);
  }
  if (verdict.releasable_bytes > 0) {
    out->Max(Metric::kReleasable, Number(verdict.releasable_bytes), labels);
  }
  out->Max(Metric::kGrown, Number(verdict.grown_bytes), labels);
  if (!verdict.forecast) return;
  if (verdict.forecast->seconds_left) {
    out->Max(Metric::kOutOfMemory, *verdict.forecast->seconds_left, labels);
  } else if (!by_steps) {
    out->Max(Metric::kOutOfMemory, verdict.forecast->units_left, labels);
  }
}

void AddSites(const ProcessSnapshot& process, const std::set<uint64_t>& blamed, size_t limit,
              SeriesMap* out) {
  std::vector<const SiteView*> order;
  order.reserve(process.sites->size());
  for (const auto& site : *process.sites) {
    if (!site->info->frames.empty() && site->live.bytes > 0) order.push_back(site.get());
  }
  const size_t keep = std::min(limit, order.size());
  // Where a framework allocates, the driver's sites are mostly its segments: the same bytes again.
  const bool has_framework = std::ranges::any_of(
      order, [](const SiteView* site) { return site->memory_class == MemoryClass::kFwLive; });
  const auto key = [&](const SiteView* site) {
    const bool driver =
        has_framework && OnDevice(site->memory_class) && site->memory_class != MemoryClass::kFwLive;
    return std::tuple(blamed.contains(site->info->id), !driver, site->live.bytes, site->info->id);
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(keep), order.end(),
                    [&](const SiteView* a, const SiteView* b) { return key(a) > key(b); });
  for (size_t i = 0; i < keep; ++i) {
    const SiteView& site = *order[i];
    out->Add(Metric::kSiteLive, Number(site.live.bytes),
             {DeviceLabel(site.device), ClassLabel(site.memory_class), SiteIdLabel(site.info->id),
              SiteLabel(*site.info)});
  }
}

// Smaller is more to be trusted: in the process, then outside it.
int WitnessOrder(Witness witness) { return static_cast<int>(witness); }

// What the waterfalls do not hold: managed and imported memory, pinned memory, CPU tensors, and all
// of a device for which there is no waterfall.
void AddTotals(const ProcessSnapshot& process, SeriesMap* out) {
  std::set<int> devices_with_waterfall;
  std::set<DeviceAndClass> told;
  for (const Waterfall& waterfall : process.waterfalls) {
    devices_with_waterfall.insert(waterfall.device);
    for (const WaterfallLine& line : waterfall.lines) {
      told.insert({waterfall.device, line.memory_class});
    }
  }
  std::map<DeviceAndClass, const ClassTotal*> best;
  for (const ClassTotal& total : process.totals) {
    if (total.before_attach || total.witness == Witness::kProc) continue;
    const DeviceAndClass key{total.device, total.memory_class};
    const bool outside_figure = total.memory_class == MemoryClass::kManaged ||
                                total.memory_class == MemoryClass::kIpc ||
                                !OnDevice(total.memory_class);
    if (told.contains(key)) continue;
    if (devices_with_waterfall.contains(total.device) && !outside_figure) continue;
    const ClassTotal*& at = best[key];
    if (at == nullptr || WitnessOrder(total.witness) < WitnessOrder(at->witness)) at = &total;
  }
  for (const auto& [key, total] : best) {
    out->Add(Metric::kMemory, Number(total->live_bytes),
             {DeviceLabel(key.first), ClassLabel(key.second)});
  }
}

void AddFloors(const ProcessSnapshot& process, SeriesMap* out) {
  if (process.steps->empty()) return;
  std::map<int, const StepGroupView*> floors;  // by device
  for (const StepGroupView& group : process.steps->back()->groups) {
    if (group.side == wire::PeakSide::kFramework) {
      floors[group.device] = &group;
    } else if (group.side == wire::PeakSide::kDriverDevice) {
      floors.try_emplace(group.device, &group);
    }
  }
  for (const auto& [device, group] : floors) {
    out->Add(Metric::kStepFloor, Number(group->floor_bytes), {DeviceLabel(device)});
  }
}

void AddHost(const RankProcesses& processes, SeriesMap* out) {
  bool known = false;
  int64_t anon = 0, swap = 0, locked = 0, file = 0, shmem = 0;
  for (const auto* list : {&processes.owners, &processes.helpers}) {
    for (const ProcessSnapshot* process : *list) {
      const HostMemory& host = process->host;
      if (!host.known) continue;
      known = true;
      anon += host.anon_bytes;
      swap += host.swap_bytes;
      locked += host.locked_bytes;
      file = std::max(file, host.file_bytes);
      shmem = std::max(shmem, host.shmem_bytes);
    }
  }
  if (!known) return;
  const std::pair<MemoryClass, int64_t> lines[] = {{MemoryClass::kAnon, anon},
                                                   {MemoryClass::kFile, file},
                                                   {MemoryClass::kShmem, shmem},
                                                   {MemoryClass::kSwap, swap},
                                                   {MemoryClass::kLocked, locked}};
  for (const auto& [memory_class, bytes] : lines) {
    out->Add(Metric::kMemory, Number(bytes), {"", ClassLabel(memory_class)});
  }
}

void AddFull(const ProcessSnapshot& process, SeriesMap* out) {
  for (const ClassTotal& total : process.totals) {
    const std::string device = DeviceLabel(total.device);
    const std::string memory_class = ClassLabel(total.memory_class);
    const std::string witness(ToString(total.witness));
    out->Add(Metric::kWitnessLive, Number(total.live_bytes),
             {device, memory_class, witness, total.before_attach ? "true" : "false"});
    if (total.before_attach) continue;
    const LabelValues labels = {device, memory_class, witness};
    out->Add(Metric::kAllocatedBytes, Number(total.allocated_bytes), labels);
    out->Add(Metric::kFreedBytes, Number(total.freed_bytes), labels);
    out->Add(Metric::kAllocations, Number(total.allocations), labels);
    out->Add(Metric::kFailedCalls, Number(total.failed_calls), labels);
  }
  for (const EntryPointView& entry : process.entry_points) {
    const LabelValues labels = {LabelText(entry.entry_point), std::string(ToString(entry.witness))};
    out->Add(Metric::kEntryPointCalls, Number(entry.calls), labels);
    out->Add(Metric::kEntryPointBytes, Number(entry.requested_bytes), labels);
  }
  // The phases of one name are told by the latest of them.
  std::map<LabelValues, std::pair<double, double>> deltas;
  for (const PhaseView& phase : process.phases) {
    for (const PhaseGroupView& group : phase.groups) {
      deltas[{DeviceLabel(group.device), ClassLabel(group.memory_class), LabelText(phase.name)}] = {
          Number(group.end_bytes - group.before_bytes),
          Number(std::max<int64_t>(0, group.peak_bytes - group.end_bytes))};
    }
  }
  for (const auto& [labels, delta] : deltas) {
    LabelValues alloc = labels, peaked = labels;
    alloc.push_back("alloc");
    peaked.push_back("peaked");
    out->Add(Metric::kPhaseDelta, delta.first, std::move(alloc));
    out->Add(Metric::kPhaseDelta, delta.second, std::move(peaked));
  }
}

void AddOwner(const ProcessSnapshot& process, SeriesMap* out) {
  const Identity& identity = process.identity;
  out->Max(Metric::kRankInfo, 1, {LabelText(identity.launcher)});
  if (identity.rank >= 0 && identity.world_size > 0) {
    out->Max(Metric::kWorldSize, identity.world_size, {std::to_string(identity.attempt)});
  }
  out->Max(Metric::kSteps, Number(process.current_step));
  for (const Waterfall& waterfall : process.waterfalls) {
    if (waterfall.figure_known && !waterfall.device_wide) {
      out->Add(Metric::kProcessDevice, Number(waterfall.figure_bytes),
               {DeviceLabel(waterfall.device)});
    }
    for (const WaterfallLine& line : waterfall.lines) {
      out->Add(Metric::kMemory, Number(line.bytes),
               {DeviceLabel(waterfall.device), ClassLabel(line.memory_class)});
    }
  }
  AddTotals(process, out);
  AddFloors(process, out);
  for (const PeakView& peak : process.peaks) {
    out->Add(Metric::kMemoryPeak, Number(peak.peak_bytes),
             {DeviceLabel(peak.device), std::string(SideLabel(peak.side))});
  }
  if (process.observer_host_bytes > 0) {
    out->Add(Metric::kMemory, Number(process.observer_host_bytes),
             {"", ClassLabel(MemoryClass::kObserver)});
  }
  if (process.host.cgroup_current_bytes >= 0) {
    out->Max(Metric::kCgroupMemory, Number(process.host.cgroup_current_bytes), {"current"});
  }
  if (process.host.cgroup_limit_bytes >= 0) {
    out->Max(Metric::kCgroupMemory, Number(process.host.cgroup_limit_bytes), {"limit"});
  }
  uint64_t untracked = 0;
  for (const ClassTotal& total : process.totals) untracked += total.untracked_bytes;
  out->Add(Metric::kUntracked, Number(untracked));
}

}  // namespace

std::string SiteIdLabel(uint64_t id) {
  if (id == 0) return "";
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016lx", static_cast<unsigned long>(id));
  return digits;
}

std::string SiteLabel(const SiteInfo& site) {
  if (site.frames.empty()) return "no stack";
  const FrameView& frame = site.frames[std::min(site.blamed_frame, site.frames.size() - 1)];
  std::string label;
  if (frame.kind == wire::FrameKind::kPython) {
    label =
        std::string(BaseName(frame.file)) + ":" + std::to_string(frame.line) + " " + frame.function;
  } else {
    label = frame.function + " (" + std::string(BaseName(frame.file)) + ")";
  }
  return LabelText(label, kMaxWhereBytes);
}

std::map<LabelValues, RankProcesses> GroupByRank(const NodeSnapshot& snapshot) {
  std::map<LabelValues, RankProcesses> groups;
  std::unordered_map<pid_t, RankProcesses*> by_pid;
  for (const ProcessSnapshot& process : snapshot.processes) {
    if (process.liveness != Liveness::kAlive || process.identity.helper_of != 0) continue;
    if (process.identity.rank < 0 && !HasGpuContext(process)) continue;
    RankProcesses& group = groups[LabelsOf(process.identity)];
    group.owners.push_back(&process);
    by_pid[process.key.pid] = &group;
  }
  for (const ProcessSnapshot& process : snapshot.processes) {
    if (process.liveness != Liveness::kAlive) continue;
    const auto owner = by_pid.find(process.identity.helper_of);
    if (owner != by_pid.end()) owner->second->helpers.push_back(&process);
  }
  return groups;
}

SeriesMap RankSeries(const RankProcesses& processes, MetricsLevel level) {
  const bool full = level == MetricsLevel::kFull;
  SeriesMap out;
  std::set<uint64_t> blamed;
  for (const detect::Verdict* verdict :
       WorstVerdicts(processes, full ? SIZE_MAX : kMaxVerdictsOfRank)) {
    AddVerdict(*verdict, &out);
    if (verdict->site) blamed.insert(verdict->site->site_id);
  }
  for (const ProcessSnapshot* process : processes.owners) {
    AddOwner(*process, &out);
    AddSites(*process, blamed, full ? kFullSites : kBasicSites, &out);
    if (full) AddFull(*process, &out);
  }
  AddHost(processes, &out);
  return out;
}

}  // namespace tidemark::serve
