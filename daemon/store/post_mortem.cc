#include "daemon/store/post_mortem.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "daemon/detect/verdict.h"
#include "daemon/serve/to_proto.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kLateNs = 15 * kSecond;  // a failure this long before the end is not its cause
constexpr int kOutOfMemory = 2;             // CUDA_ERROR_OUT_OF_MEMORY
constexpr int64_t kLeastGrowth = 1 << 20;
constexpr size_t kMostGrowers = 20;
constexpr size_t kMostSites = 50;
constexpr size_t kMostSteps = 100;

bool IsOutOfMemory(const EventView& event) {
  return event.type == "out_of_memory" ||
         (event.type == "allocation_failed" && event.code == kOutOfMemory);
}

// The bytes of a host class lie in anon and shmem, and so do those of the framework's CPU tensors.
bool Explains(const SiteView& site, const SeriesKey& key) {
  if (key.device >= 0) {
    return site.device == key.device && ToString(site.memory_class) == key.memory_class;
  }
  return !OnDevice(site.memory_class);
}

bool HasLoaded(const ProcessSnapshot& process) {
  return std::ranges::any_of(process.phases, [](const PhaseView& phase) {
    return phase.name == "load" && phase.end_monotonic_ns != 0;
  });
}

struct Growth {
  const ProcessSnapshot* process = nullptr;
  SeriesKey key;
  int64_t grew_bytes = 0;
  int64_t live_bytes = 0;
  uint64_t since_unix_ns = 0;
  const SiteView* site = nullptr;
  double site_share = 0;
};

// A job that was refused memory unwinds before it ends, and gives back what filled the device: its
// peak is what it held when it failed.
int64_t BytesHeld(const ProcessSnapshot& process, const SiteView& site) {
  const int64_t peak = site.at[static_cast<size_t>(wire::Moment::kPeak)].bytes;
  return FailingCall(process) != nullptr ? std::max(site.live.bytes, peak) : site.live.bytes;
}

struct FrameworkBytes {
  int64_t live = 0;  // the region's last word, which may be a second younger than the last figures
  int64_t held = 0;  // when it was refused memory; else as `live`
};

FrameworkBytes FrameworkBytesOn(const ProcessSnapshot& process, int device) {
  FrameworkBytes bytes;
  for (const ClassTotal& total : process.totals) {
    if (total.memory_class == MemoryClass::kFwLive && total.device == device) {
      bytes.live += total.live_bytes;
    }
  }
  bytes.held = bytes.live;
  if (FailingCall(process) == nullptr) return bytes;
  for (const PeakView& peak : process.peaks) {
    if (peak.side == wire::PeakSide::kFramework && peak.device == device) {
      bytes.held = std::max(bytes.held, peak.peak_bytes);
    }
  }
  return bytes;
}

int64_t BytesHeld(const ProcessSnapshot& process, const SeriesKey& key, int64_t last_bytes) {
  const FrameworkBytes framework = FrameworkBytesOn(process, key.device);
  if (key.memory_class == ToString(MemoryClass::kFwLive)) {
    return std::max(last_bytes, framework.held);
  }
  // What it gave back while it unwound lies in the cache since.
  if (key.memory_class == ToString(MemoryClass::kFwCache)) {
    return std::max<int64_t>(0, last_bytes - (framework.held - framework.live));
  }
  return last_bytes;
}

void FindSite(Growth* growth) {
  const bool loaded = HasLoaded(*growth->process);
  int64_t most = 0;
  for (const auto& site : *growth->process->sites) {
    if (!Explains(*site, growth->key) || site->info->frames.empty()) continue;
    const int64_t before =
        loaded ? site->at[static_cast<size_t>(wire::Moment::kLoad)].bytes : int64_t{0};
    const int64_t grew = BytesHeld(*growth->process, *site) - before;
    if (grew <= most) continue;
    most = grew;
    growth->site = site.get();
  }
  if (growth->site == nullptr) return;
  growth->site_share = std::min(
      1.0, static_cast<double>(most) / static_cast<double>(std::max(growth->grew_bytes, most)));
  // Sites that explain a trifle explain nothing.
  if (growth->site_share < 0.1) growth->site = nullptr;
}

std::vector<Growth> GrowthOf(const ProcessSnapshot& process, const RecentBytes& recent) {
  std::vector<Growth> found;
  const RecentBytes::Course& course = recent.Of(process.key);
  std::set<SeriesKey> keys;
  for (const RecentBytes::Point& point : course) {
    for (const auto& [key, bytes] : point.bytes) keys.insert(key);
  }
  for (const ClassTotal& total : process.totals) {
    // Of a process that came and went between two looks only the totals are known.
    if (course.empty() || total.memory_class == MemoryClass::kFwLive) {
      keys.insert({std::string(ToString(total.memory_class)), total.device, 0});
    }
  }
  for (const SeriesKey& key : keys) {
    if (key.memory_class == ToString(MemoryClass::kObserver) ||
        key.memory_class == ToString(MemoryClass::kFwHost)) {  // lies inside anon
      continue;
    }
    Growth growth{&process, key};
    const int64_t first = course.empty() ? 0 : BytesAt(course.front(), key);
    growth.live_bytes = BytesHeld(process, key, course.empty() ? 0 : BytesAt(course.back(), key));
    growth.grew_bytes = growth.live_bytes - first;
    growth.since_unix_ns = course.empty() ? process.first_seen_unix_ns : course.front().unix_ns;
    if (growth.grew_bytes < kLeastGrowth) continue;
    FindSite(&growth);
    found.push_back(std::move(growth));
  }
  return found;
}

std::string Describe(const v1::Frame& frame) {
  std::string text = frame.file().substr(frame.file().rfind('/') + 1);
  if (frame.line() > 0) text += ":" + std::to_string(frame.line());
  return text.empty() ? frame.function() : text + " " + frame.function();
}

// "rank 1 (pid 4711): fw_live on GPU 1 grew 3.5 GiB in 40 s, 98 % of it from train.py:41 forward"
std::string Sentence(const v1::Grower& grower, uint64_t now_unix_ns) {
  const v1::ProcessRef& process = grower.process();
  std::string text = process.rank() >= 0
                         ? "rank " + std::to_string(process.rank()) + " (pid " +
                               std::to_string(process.pid()) + ")"
                         : "pid " + std::to_string(process.pid()) + " (" + process.command() + ")";
  text += ": " + grower.memory_class() +
          (grower.device() >= 0 ? " on GPU " + std::to_string(grower.device()) : " on the host") +
          " grew " + detect::FormatBytes(static_cast<double>(grower.grew_bytes()));
  if (grower.since_unix_ns() > 0 && now_unix_ns > grower.since_unix_ns()) {
    text += " in " + std::to_string((now_unix_ns - grower.since_unix_ns()) / kSecond) + " s";
  }
  const v1::Site& site = grower.site();
  if (site.blamed_frame() >= 0 && site.blamed_frame() < site.frames_size()) {
    text += ", " + std::to_string(static_cast<int>(grower.site_share() * 100 + 0.5)) +
            " % of it allocated at " + Describe(site.frames(site.blamed_frame()));
  }
  return text;
}

// Whether the series lies in the memory of which there was none left.
bool RanOut(const ProcessSnapshot& dead, const SeriesKey& key) {
  const std::string cause = CauseOf(dead);
  const auto memory_class = MemoryClassFromString(key.memory_class);
  if (cause == "oom_killer") return memory_class && !OnDevice(*memory_class);
  if (cause != "device_out_of_memory") return true;
  const int device = FailingCall(dead)->device;
  return device < 0 ? key.device >= 0 : key.device == device;
}

void AddGrowers(const NodeSnapshot& snapshot, const ProcessSnapshot& dead,
                const RecentBytes& recent, v1::Postmortem* out) {
  std::vector<Growth> all;
  for (const ProcessSnapshot& process : snapshot.processes) {
    const bool here = process.liveness == Liveness::kAlive || &process == &dead;
    // Who ended long before took its memory with it.
    const bool just_ended = process.last_update_unix_ns + kLateNs > dead.last_update_unix_ns;
    if (!here && !just_ended) continue;
    std::vector<Growth> grown = GrowthOf(process, recent);
    all.insert(all.end(), grown.begin(), grown.end());
  }
  std::ranges::stable_sort(all, [&](const Growth& a, const Growth& b) {
    return std::pair(RanOut(dead, a.key), a.grew_bytes) >
           std::pair(RanOut(dead, b.key), b.grew_bytes);
  });
  if (all.size() > kMostGrowers) all.resize(kMostGrowers);
  for (const Growth& growth : all) {
    v1::Grower* grower = out->add_growers();
    serve::ToProto(*growth.process, grower->mutable_process());
    grower->set_uid(growth.process->identity.uid);
    grower->set_memory_class(growth.key.memory_class);
    grower->set_device(growth.key.device);
    grower->set_grew_bytes(growth.grew_bytes);
    grower->set_live_bytes(growth.live_bytes);
    grower->set_since_unix_ns(growth.since_unix_ns);
    if (growth.site == nullptr) continue;
    serve::ToProto(*growth.site, grower->mutable_site());
    grower->set_site_share(growth.site_share);
  }
}

void AddSeries(const ProcessSnapshot& process, const RecentBytes& recent, v1::Postmortem* out) {
  const RecentBytes::Course& course = recent.Of(process.key);
  std::set<SeriesKey> keys;
  for (const RecentBytes::Point& point : course) {
    for (const auto& [key, bytes] : point.bytes) keys.insert(key);
  }
  for (const SeriesKey& key : keys) {
    v1::Series* series = out->add_series();
    serve::ToProto(process, series->mutable_process());
    series->set_memory_class(key.memory_class);
    series->set_device(key.device);
    for (const RecentBytes::Point& point : course) {
      const int64_t bytes = BytesAt(point, key);
      series->add_unix_ns(point.unix_ns);
      series->add_steps(point.step);
      series->add_min_bytes(bytes);
      series->add_mean_bytes(bytes);
      series->add_max_bytes(bytes);
    }
  }
}

}  // namespace

std::string PostMortemId(const ProcessKey& key) {
  return std::to_string(key.pid) + "-" + std::to_string(key.start_time_ticks);
}

const EventView* FailingCall(const ProcessSnapshot& process) {
  for (auto event = process.events.rbegin(); event != process.events.rend(); ++event) {
    if (event->unix_ns + kLateNs < process.last_update_unix_ns) return nullptr;
    if (IsOutOfMemory(*event)) return &*event;
  }
  return nullptr;
}

std::string CauseOf(const ProcessSnapshot& process) {
  if (process.exit_reason.find("OOM killer") != std::string::npos) return "oom_killer";
  const bool in_peace = process.liveness == Liveness::kExited && process.exit_reason == "exited";
  if (FailingCall(process) != nullptr && !in_peace) return "device_out_of_memory";
  if (process.liveness == Liveness::kAlive || in_peace) return {};
  if (process.liveness == Liveness::kKilled) return "signal";
  return process.exit_reason.starts_with("exited with status") ? "exit_status" : "unknown";
}

void MakePostMortem(const NodeSnapshot& snapshot, const ProcessSnapshot& process,
                    const RecentBytes& recent, v1::Postmortem* out) {
  v1::PostmortemSummary* summary = out->mutable_summary();
  summary->set_id(PostMortemId(process.key));
  summary->set_unix_ns(snapshot.unix_ns);
  serve::ToProto(process, summary->mutable_process());
  summary->set_cause(CauseOf(process));
  summary->set_how(process.exit_reason);
  summary->set_step(process.current_step);

  serve::ProtoOptions options;
  options.max_sites = kMostSites;
  options.max_steps = kMostSteps;
  serve::ToProto(process, options, out->mutable_process());
  if (const EventView* call = FailingCall(process)) {
    const auto at = static_cast<int>(call - process.events.data());
    *out->mutable_failing_call() = out->process().events(at);
  }
  AddGrowers(snapshot, process, recent, out);
  if (!out->growers().empty()) {
    summary->set_biggest_grower(Sentence(out->growers(0), process.last_update_unix_ns));
    summary->set_biggest_grower_uid(out->growers(0).uid());
  }
  AddSeries(process, recent, out);

  v1::Snapshot node;
  serve::ToProto(
      snapshot, options, [](const ProcessSnapshot&) { return false; }, &node);
  *out->mutable_devices() = node.devices();
  *out->mutable_memory() = node.memory();
  out->set_node(snapshot.node);
  if (process.waterfalls.empty()) out->add_notes("no device figure of this process was known");
  if (out->series().empty()) out->add_notes("nothing was seen of the minutes before");
}

}  // namespace tidemark
