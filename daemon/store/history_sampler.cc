#include "daemon/store/history_sampler.h"

#include <algorithm>
#include <cmath>

#include "daemon/serve/to_proto.h"
#include "daemon/serve/utf8.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark {
namespace {

constexpr uint64_t kNsOfMs = 1'000'000;
constexpr uint64_t kTellSitesAgainAfter = 24 * 3600 * 1000 / kCoarseMs;  // in coarse rows
constexpr size_t kMostSitesTold = 100'000;
constexpr size_t kMostPhases = 1024;

SeriesKey Key(MemoryClass memory_class, int device, uint64_t site = 0) {
  return {std::string(ToString(memory_class)), device, site};
}

std::string_view ClassOf(wire::PeakSide side) {
  switch (side) {
    case wire::PeakSide::kFramework:
      return "fw_live";
    case wire::PeakSide::kDriverDevice:
      return "driver_device";
    case wire::PeakSide::kPinned:
      return "pinned";
    case wire::PeakSide::kHostFramework:
      return "fw_host";
  }
  return "unknown";
}

// The wall clock's time of a moment on the monotonic clock, as the clocks stand now.
uint64_t UnixMs(uint64_t monotonic_ns, const NodeSnapshot& now) {
  return (now.unix_ns - (now.monotonic_ns - monotonic_ns)) / kNsOfMs;
}

std::string Reference(const ProcessSnapshot& process) {
  v1::ProcessRef reference;
  serve::ToProto(process, &reference);
  return reference.SerializeAsString();
}

HistoryMarkRow MakeMark(std::string kind, std::string key, uint64_t start_ms, uint64_t end_ms,
                        v1::HistoryMark message) {
  message.set_kind(kind);
  message.set_start_unix_ns(start_ms * kNsOfMs);
  message.set_end_unix_ns(end_ms * kNsOfMs);
  return {std::move(kind), std::move(key), start_ms, end_ms, message.SerializeAsString()};
}

bool InWaterfall(const ProcessSnapshot& process, const ClassTotal& total) {
  // Neither is part of a device's figure.
  if (total.memory_class == MemoryClass::kManaged || total.memory_class == MemoryClass::kIpc) {
    return false;
  }
  return std::ranges::any_of(process.waterfalls, [&](const Waterfall& waterfall) {
    return waterfall.device == total.device;
  });
}

}  // namespace

std::vector<std::pair<SeriesKey, int64_t>> BytesByClass(const ProcessSnapshot& process) {
  std::vector<std::pair<SeriesKey, int64_t>> values;
  for (const Waterfall& waterfall : process.waterfalls) {
    for (const WaterfallLine& line : waterfall.lines) {
      values.emplace_back(Key(line.memory_class, waterfall.device), line.bytes);
    }
  }
  // Of several witnesses the one in the process, then the one outside it.
  std::map<std::pair<MemoryClass, int>, std::pair<Witness, int64_t>> best;
  for (const ClassTotal& total : process.totals) {
    if (total.witness == Witness::kProc || InWaterfall(process, total)) continue;
    const auto [at, is_new] = best.try_emplace({total.memory_class, total.device},
                                               std::pair(total.witness, total.live_bytes));
    if (is_new) continue;
    if (at->second.first == total.witness) {
      at->second.second += total.live_bytes;  // before and after the witness was attached
    } else if (total.witness < at->second.first) {
      at->second = {total.witness, total.live_bytes};
    }
  }
  for (const auto& [key, value] : best) {
    values.emplace_back(Key(key.first, key.second), value.second);
  }
  if (process.host.known) {
    values.emplace_back(Key(MemoryClass::kAnon, -1), process.host.anon_bytes);
    values.emplace_back(Key(MemoryClass::kFile, -1), process.host.file_bytes);
    values.emplace_back(Key(MemoryClass::kShmem, -1), process.host.shmem_bytes);
    values.emplace_back(Key(MemoryClass::kSwap, -1), process.host.swap_bytes);
    values.emplace_back(Key(MemoryClass::kLocked, -1), process.host.locked_bytes);
  }
  if (process.observer_host_bytes > 0) {
    values.emplace_back(Key(MemoryClass::kObserver, -1), process.observer_host_bytes);
  }
  return values;
}

void HistorySampler::Absorb(const NodeSnapshot& snapshot) {
  sequence_ = snapshot.sequence;
  const uint64_t now_ms = snapshot.unix_ns / kNsOfMs;
  std::vector<std::pair<SeriesKey, int64_t>> values;
  for (const DeviceView& device : snapshot.devices) {
    values.push_back({{"used", device.index, 0}, device.used_bytes});
  }
  values.push_back({{"available", -1, 0}, snapshot.memory.available_bytes});
  Track& node = NodeTrack(snapshot);
  node.seen = sequence_;
  AddRow(&node, now_ms, std::move(values), nullptr);

  for (const ProcessSnapshot& process : snapshot.processes) {
    Track& track = TrackOf(process, snapshot);
    track.seen = sequence_;
    if (track.ended) continue;
    AddRow(&track, now_ms, BytesByClass(process), process.sites.get());
    TakeSteps(&track, process, snapshot);
    TakeMarks(&track, process, snapshot);
  }
}

HistorySampler::Track& HistorySampler::NodeTrack(const NodeSnapshot& snapshot) {
  auto& track = tracks_[{snapshot.boot_id, 0, 0}];
  if (track == nullptr) {
    track = std::make_unique<Track>();
    ProcessSnapshot node;
    node.key.boot_id = snapshot.boot_id;
    track->process.key = node.key;
    track->process.reference = Reference(node);
    track->process.first_ms = snapshot.unix_ns / kNsOfMs;
  }
  return *track;
}

HistorySampler::Track& HistorySampler::TrackOf(const ProcessSnapshot& process,
                                               const NodeSnapshot& snapshot) {
  auto& track = tracks_[process.key];
  if (track == nullptr) {
    track = std::make_unique<Track>();
    track->process.key = process.key;
    track->process.uid = process.identity.uid;
    track->process.first_ms = process.first_seen_unix_ns / kNsOfMs;
    const Known known = known_(process.key);
    track->last_step = known.last_step;
    track->last_event_ms = known.last_event_ms;
    Mark(track.get(), MakeMark("started", "", track->process.first_ms, 0, {}));
  }
  // Who it is may become clear only later: a rank that is set after exec.
  std::string reference = Reference(process);
  if (reference != track->process.reference) {
    track->process.reference = std::move(reference);
    track->process.rank = process.identity.rank;
    track->process.training_job = serve::Utf8(process.identity.training_job);
    track->dirty = true;
  }
  if (process.liveness != Liveness::kAlive && track->process.ended_ms == 0) {
    // What it held at its end is one more row; after that nothing changes any more.
    track->process.ended_ms = std::max<uint64_t>(process.last_update_unix_ns / kNsOfMs, 1);
    track->dirty = true;
    v1::HistoryMark ended;
    ended.set_text(serve::Utf8(process.exit_reason));
    ended.set_step(process.current_step);
    Mark(track.get(), MakeMark("ended", "", snapshot.unix_ns / kNsOfMs, 0, std::move(ended)));
  } else if (process.liveness != Liveness::kAlive && !track->ended) {
    track->ended = true;
    CloseAll(track.get());
  }
  return *track;
}

void HistorySampler::AddRow(Track* track, uint64_t now_ms,
                            std::vector<std::pair<SeriesKey, int64_t>> values,
                            const SiteList* sites) {
  for (const auto& [key, bytes] : values) track->classes.insert(key);
  if (track->classes.size() > values.size()) {
    std::set<SeriesKey> absent = track->classes;
    for (const auto& [key, bytes] : values) absent.erase(key);
    for (const SeriesKey& key : absent) values.emplace_back(key, 0);
  }
  // Time only grows within a chunk; a clock that was set back begins new ones.
  const auto& times = track->fine.block.times();
  if (!times.empty() && now_ms < times.back()) CloseAll(track);

  if (track->fine.block.rows() >= kRowsOfChunk) Close(track, &track->fine);
  track->fine.block.BeginRow(now_ms);
  track->fine.dirty = true;
  for (const auto& [key, bytes] : values) track->fine.block.Set(key, Sample::Of(bytes));

  const uint64_t bucket = now_ms / kCoarseMs;
  SampleBlock& coarse = track->coarse.block;
  if (bucket != track->bucket || coarse.empty()) {
    if (coarse.rows() >= kRowsOfChunk) Close(track, &track->coarse);
    coarse.BeginRow(now_ms);
    track->bucket = bucket;
    track->sums.clear();
  } else {
    coarse.SetTime(now_ms);
  }
  track->coarse.dirty = true;
  const bool first_of_bucket = track->sums.empty();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& [key, bytes] = values[i];
    size_t at = i;  // the same order as a second ago, as a rule
    if (at >= track->sums.size() || track->sums[at].first != key) {
      at = static_cast<size_t>(
          std::ranges::find(track->sums, key, &std::pair<SeriesKey, Track::Sum>::first) -
          track->sums.begin());
    }
    if (at == track->sums.size()) track->sums.push_back({key, {bytes, 0, bytes, 0}});
    Track::Sum& sum = track->sums[at].second;
    sum.min = std::min(sum.min, bytes);
    sum.max = std::max(sum.max, bytes);
    sum.sum += static_cast<double>(bytes);
    ++sum.count;
    coarse.Set(key, {sum.min, std::llround(sum.sum / static_cast<double>(sum.count)), sum.max});
  }
  if (first_of_bucket && sites != nullptr) AddSites(track, *sites);
}

void HistorySampler::AddSites(Track* track, const SiteList& sites) {
  std::vector<const SiteView*> largest;
  largest.reserve(sites.size());
  for (const auto& site : sites) {
    if (site->live.bytes > 0) largest.push_back(site.get());
  }
  const size_t keep = std::min(largest.size(), kSitesOfProcess);
  std::partial_sort(largest.begin(), largest.begin() + static_cast<ptrdiff_t>(keep), largest.end(),
                    [](const SiteView* a, const SiteView* b) {
                      return std::pair(-a->live.bytes, a->info->id) <
                             std::pair(-b->live.bytes, b->info->id);
                    });
  largest.resize(keep);
  // By id, so that the columns come in the same order row after row.
  std::ranges::sort(largest, {}, [](const SiteView* site) { return site->info->id; });
  if (sites_told_.size() > kMostSitesTold) sites_told_.clear();
  for (const SiteView* site : largest) {
    const uint64_t id = site->info->id;
    track->coarse.block.Set(Key(site->memory_class, site->device, id),
                            Sample::Of(site->live.bytes));
    const auto [told, is_new] = sites_told_.try_emplace(id, track->bucket);
    if (!is_new && told->second + kTellSitesAgainAfter > track->bucket) continue;
    told->second = track->bucket;
    SiteView names;
    names.info = site->info;
    v1::Site message;
    serve::ToProto(names, &message);
    new_sites_[id] = message.SerializeAsString();
  }
}

void HistorySampler::TakeSteps(Track* track, const ProcessSnapshot& process,
                               const NodeSnapshot& snapshot) {
  const StepList& steps = *process.steps;
  auto next = std::ranges::upper_bound(steps, track->last_step, {},
                                       [](const auto& step) { return step->step; });
  for (; next != steps.end(); ++next) {
    const StepView& step = **next;
    if (track->steps.block.rows() >= kStepsOfChunk) Close(track, &track->steps);
    SampleBlock& block = track->steps.block;
    uint64_t end_ms = UnixMs(step.end_monotonic_ns, snapshot);
    if (!block.empty()) end_ms = std::max(end_ms, block.times().back());
    block.BeginRow(end_ms, step.step);
    int device = 0;
    bool framework = false;
    for (const StepGroupView& group : step.groups) {
      block.Set({std::string(ClassOf(group.side)), group.device, 0},
                {group.floor_bytes, group.end_bytes, group.peak_bytes});
      if (group.side != wire::PeakSide::kFramework) continue;
      framework = true;
      device = group.device;
    }
    if (step.fw_allocated_bytes >= 0) {
      if (!framework) {
        block.Set(Key(MemoryClass::kFwLive, device), Sample::Of(step.fw_allocated_bytes));
      }
      if (step.fw_reserved_bytes >= 0) {
        block.Set(Key(MemoryClass::kFwCache, device),
                  Sample::Of(step.fw_reserved_bytes - step.fw_allocated_bytes));
      }
    }
    if (step.anon_bytes >= 0) block.Set(Key(MemoryClass::kAnon, -1), Sample::Of(step.anon_bytes));
    if (step.shmem_bytes >= 0) {
      block.Set(Key(MemoryClass::kShmem, -1), Sample::Of(step.shmem_bytes));
    }
    track->last_step = step.step;
    track->steps.dirty = true;
  }
}

void HistorySampler::TakeMarks(Track* track, const ProcessSnapshot& process,
                               const NodeSnapshot& snapshot) {
  if (track->phases.size() > kMostPhases) track->phases.clear();  // written again: the same rows
  for (const PhaseView& phase : process.phases) {
    std::string key = phase.name + "/" + std::to_string(phase.first_step);
    const auto [known, is_new] = track->phases.try_emplace(key, 0);
    if (!is_new && known->second == phase.end_monotonic_ns) continue;
    known->second = phase.end_monotonic_ns;
    v1::HistoryMark message;
    message.set_text(serve::Utf8(phase.name));
    message.set_step(phase.first_step);
    Mark(track, MakeMark("phase", std::move(key), UnixMs(phase.start_monotonic_ns, snapshot),
                         phase.end_monotonic_ns == 0 ? 0 : UnixMs(phase.end_monotonic_ns, snapshot),
                         std::move(message)));
  }
  uint64_t last_event_ms = track->last_event_ms;
  for (const EventView& event : process.events) {
    const uint64_t at_ms = event.unix_ns / kNsOfMs;
    if (at_ms <= track->last_event_ms) continue;
    last_event_ms = std::max(last_event_ms, at_ms);
    v1::HistoryMark message;
    message.set_text(serve::Utf8(event.text.empty() ? event.type : event.type + ": " + event.text));
    message.set_step(event.step);
    Mark(track, MakeMark("event",
                         std::to_string(event.unix_ns) + "/" + event.type + "/" +
                             std::to_string(event.device) + "/" + event.entry_point,
                         at_ms, 0, std::move(message)));
  }
  track->last_event_ms = last_event_ms;
  const uint64_t now_ms = snapshot.unix_ns / kNsOfMs;
  for (const detect::Verdict& verdict : process.verdicts) {
    const std::pair series(verdict.memory_class, verdict.device);
    const std::pair says(verdict.state, verdict.cause);
    const bool quiet = verdict.state == detect::VerdictState::kWarmingUp ||
                       verdict.state == detect::VerdictState::kSteady;
    const auto before = track->verdicts.find(series);
    if (before == track->verdicts.end() ? quiet : before->second == says) continue;
    track->verdicts[series] = says;
    v1::HistoryMark message;
    serve::ToProto(verdict, message.mutable_verdict());
    message.set_text(message.verdict().summary());
    message.set_step(process.current_step);
    Mark(track, MakeMark("verdict",
                         std::string(ToString(verdict.memory_class)) + "/" +
                             std::to_string(verdict.device) + "/" + std::to_string(now_ms),
                         now_ms, 0, std::move(message)));
  }
}

void HistorySampler::Mark(Track* track, HistoryMarkRow mark) {
  if (track->marks.size() >= kMostWaitingMarks) {
    track->marks.pop_front();
    ++lost_rows_;
  }
  track->marks.push_back(std::move(mark));
}

void HistorySampler::Note(const ProcessKey& key, HistoryMarkRow mark) {
  const auto track = tracks_.find(key);
  if (track != tracks_.end()) Mark(track->second.get(), std::move(mark));
}

void HistorySampler::Close(Track* track, HistoryChunk* chunk) {
  if (chunk->block.empty()) return;
  if (chunk->dirty) {
    if (track->closed.size() >= kMostWaitingChunks) {
      lost_rows_ += track->closed.front().block.rows();
      track->closed.pop_front();
    }
    track->closed.push_back(std::move(*chunk));
  }
  *chunk = {chunk->kind, 0, false, {}};
}

void HistorySampler::CloseAll(Track* track) {
  Close(track, &track->fine);
  Close(track, &track->coarse);
  Close(track, &track->steps);
}

void HistorySampler::Written() {
  std::erase_if(tracks_, [this](const auto& entry) { return entry.second->seen != sequence_; });
  for (auto& [key, track] : tracks_) {
    track->dirty = false;
    track->closed.clear();
    track->marks.clear();
    for (HistoryChunk* chunk : {&track->fine, &track->coarse, &track->steps}) chunk->dirty = false;
  }
  new_sites_.clear();
}

void HistorySampler::Forget() {
  for (auto& [key, track] : tracks_) {
    track->row = 0;
    track->dirty = true;
    for (HistoryChunk& chunk : track->closed) chunk.row = 0;
    for (HistoryChunk* chunk : {&track->fine, &track->coarse, &track->steps}) {
      chunk->row = 0;
      chunk->dirty = !chunk->block.empty();
    }
  }
  sites_told_.clear();
}

}  // namespace tidemark
