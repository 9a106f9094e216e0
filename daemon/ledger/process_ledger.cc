#include "daemon/ledger/process_ledger.h"

#include <time.h>

#include <algorithm>

#include "daemon/ledger/site_names.h"
#include "daemon/ledger/words.h"
#include "wire/entry_point.h"

namespace tidemark {
namespace {

using wire::Kind;
using wire::Layer;
using wire::PeakSide;

constexpr int64_t kMaxNamedBytes = 64ll << 20;  // of one process's stacks, here

uint64_t ClockNs(clockid_t clock) {
  timespec now = {};
  ::clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(now.tv_nsec);
}

// A time of the job's on CLOCK_MONOTONIC, as time of day.
uint64_t ToUnixNs(uint64_t monotonic_ns) {
  return monotonic_ns + (ClockNs(CLOCK_REALTIME) - ClockNs(CLOCK_MONOTONIC));
}

MemoryClass ClassOf(PeakSide side) {
  switch (side) {
    case PeakSide::kFramework:
      return MemoryClass::kFwLive;
    case PeakSide::kDriverDevice:
      return MemoryClass::kDevice;
    case PeakSide::kPinned:
      return MemoryClass::kPinned;
    case PeakSide::kHostFramework:
      return MemoryClass::kFwHost;
  }
  return MemoryClass::kDevice;
}

std::optional<PeakSide> SideOf(const wire::PeakGroupRow& row) {
  if (row.seq == 0 || row.side > static_cast<uint8_t>(PeakSide::kHostFramework)) {
    return std::nullopt;
  }
  return static_cast<PeakSide>(row.side);
}

int64_t SizeOf(const SiteInfo& info) {
  int64_t bytes = static_cast<int64_t>(sizeof(info));
  for (const FrameView& frame : info.frames) {
    bytes += static_cast<int64_t>(sizeof(frame) + frame.file.size() + frame.function.size());
  }
  return bytes;
}

}  // namespace

std::optional<std::pair<MemoryClass, Witness>> ClassOf(uint8_t layer, uint8_t kind) {
  switch (static_cast<Layer>(layer)) {
    case Layer::kDriver:
      switch (static_cast<Kind>(kind)) {
        case Kind::kDevice:
          return {{MemoryClass::kDevice, Witness::kCupti}};
        case Kind::kPool:
          return {{MemoryClass::kPool, Witness::kCupti}};
        case Kind::kVmm:
          return {{MemoryClass::kVmm, Witness::kCupti}};
        case Kind::kManaged:
          return {{MemoryClass::kManaged, Witness::kCupti}};
        case Kind::kArray:
          return {{MemoryClass::kArray, Witness::kCupti}};
        case Kind::kGraph:
          return {{MemoryClass::kGraph, Witness::kCupti}};
        case Kind::kIpc:
          return {{MemoryClass::kIpc, Witness::kCupti}};
        case Kind::kPinned:
          return {{MemoryClass::kPinned, Witness::kCupti}};
        case Kind::kRegistered:
          return {{MemoryClass::kRegistered, Witness::kCupti}};
        case Kind::kFwBlock:
        case Kind::kCpuTensor:
          return std::nullopt;
      }
      return std::nullopt;
    case Layer::kRecords:
      return std::nullopt;
    case Layer::kFramework:
      return {{MemoryClass::kFwLive, Witness::kTorch}};
    case Layer::kHostFramework:
      return {{MemoryClass::kFwHost, Witness::kTorch}};
  }
  return std::nullopt;
}

std::vector<ClassTotal> ProcessLedger::Totals(const RegionCopy& region, const DeviceMap& devices) {
  std::vector<ClassTotal> totals;
  for (const wire::TotalsRow& row : region.totals) {
    const auto words = tidemark::ClassOf(row.layer, row.kind);
    if (!words || row.seq == 0) continue;
    ClassTotal total;
    total.memory_class = words->first;
    total.witness = words->second;
    total.device = OnDevice(total.memory_class) ? devices.ToNode(row.device) : -1;
    total.live_bytes = row.live_bytes;
    total.peak_bytes = row.peak_bytes;
    total.allocated_bytes = row.allocated_bytes;
    total.freed_bytes = row.freed_bytes;
    total.allocations = row.allocations;
    total.frees = row.frees;
    total.failed_calls = row.failed_calls;
    total.untracked_bytes = row.untracked_bytes;
    total.unknown_frees = row.unknown_frees;
    totals.push_back(total);
  }
  for (const wire::AllocatorRow& row : region.allocators) {
    if (row.seq == 0) continue;
    ClassTotal cache;
    cache.memory_class = MemoryClass::kFwCache;
    cache.witness = Witness::kTorch;
    cache.device = devices.ToNode(row.device);
    cache.live_bytes = static_cast<int64_t>(row.reserved_bytes - row.allocated_bytes);
    totals.push_back(cache);
  }
  return totals;
}

void ProcessLedger::Update(const RegionCopy& region, const RegionChanges& changes,
                           const DeviceMap& devices, bool new_agent) {
  region_ = &region;
  if (new_agent) {
    sites_.clear();
    site_list_ = std::make_shared<SiteList>();
    steps_ = std::make_shared<StepList>();
    events_.clear();
    before_attach_.clear();
    records_ = {};
    pending_sites_ = 0;
    named_bytes_ = 0;
  }
  if (!(devices == devices_)) {
    devices_ = devices;
    for (Site& site : sites_) site.changed = site.view != nullptr;
  }
  UpdateSites(region, changes.sites);
  UpdateSteps(region, changes.steps);
  UpdateEvents(region, changes.events);
  steps_missed_ += changes.steps_missed;
  events_missed_ += changes.events_missed;
  torn_rows_ += changes.torn_rows;
  records_.Update(region);
  // The allocator's own total and our sum of its blocks differ by what it held before injection.
  if (!region.totals_coherent) return;
  before_attach_.clear();
  for (const wire::AllocatorRow& row : region.allocators) {
    if (row.seq == 0) continue;
    int64_t booked = 0;
    for (const wire::TotalsRow& total : region.totals) {
      if (total.layer == static_cast<uint8_t>(Layer::kFramework) && total.device == row.device) {
        booked += total.live_bytes;
      }
    }
    const int64_t before = static_cast<int64_t>(row.allocated_bytes) - booked;
    if (before == 0) continue;
    ClassTotal total;
    total.memory_class = MemoryClass::kFwLive;
    total.witness = Witness::kTorch;
    total.device = devices_.ToNode(row.device);
    total.live_bytes = before;
    total.before_attach = true;
    before_attach_.push_back(total);
  }
}

std::array<BytesAndCount, wire::kMomentCount> ProcessLedger::AtMoments(const RegionCopy& region,
                                                                       const wire::SiteRow& row,
                                                                       uint8_t* may_move) const {
  *may_move = 0;
  std::array<BytesAndCount, wire::kMomentCount> at = {};
  for (uint32_t m = 0; m < wire::kMomentCount; ++m) {
    const auto bit = static_cast<uint8_t>(1u << m);
    uint32_t epoch = region.header.moment_epoch[m];
    if (m == static_cast<uint32_t>(wire::Moment::kPeak)) {
      if (row.peak_group >= region.peak_groups.size()) {
        if (row.peak_group < wire::kMaxPeakGroups) *may_move |= bit;  // still to be read
        continue;
      }
      epoch = region.peak_groups[row.peak_group].peak_epoch;
    }
    if (epoch == 0) {
      *may_move |= bit;  // the moment has not come yet: it will change what is shown
      continue;
    }
    // A site that saved for a later moment than the epoch we read changed in between: what it saved
    // is nearer to the truth than what it holds now.
    const bool saved = static_cast<int32_t>(row.moment_epoch[m] - epoch) >= 0;
    if (saved) *may_move |= bit;
    at[m] = saved ? BytesAndCount{row.moment_bytes[m], row.moment_count[m]}
                  : BytesAndCount{row.live_bytes, row.live_count};
  }
  return at;
}

std::shared_ptr<const SiteView> ProcessLedger::MakeView(const RegionCopy& region,
                                                        const wire::SiteRow& row,
                                                        std::shared_ptr<const SiteInfo> info,
                                                        uint8_t* may_move) const {
  if (row.totals_row >= region.totals.size()) return nullptr;
  const wire::TotalsRow& totals = region.totals[row.totals_row];
  const auto words = tidemark::ClassOf(totals.layer, totals.kind);
  if (!words || totals.seq == 0) return nullptr;
  auto view = std::make_shared<SiteView>();
  view->info = std::move(info);
  view->memory_class = words->first;
  view->witness = words->second;
  view->device = OnDevice(view->memory_class) ? devices_.ToNode(totals.device) : -1;
  view->estimated = (row.flags & wire::kSiteSampled) != 0;
  view->live = {row.live_bytes, row.live_count};
  view->at = AtMoments(region, row, may_move);
  view->allocated_bytes = row.allocated_bytes;
  view->freed_bytes = row.freed_bytes;
  view->allocated_count = row.allocated_count;
  view->min_block_bytes = row.min_block_bytes;
  view->max_block_bytes = row.max_block_bytes;
  view->first_step = row.first_step;
  view->last_step = row.last_step;
  view->cohort_shift = std::min<uint32_t>(row.cohort_shift, 63);
  std::copy(std::begin(row.cohort_bytes), std::end(row.cohort_bytes), view->cohort_bytes.begin());
  return view;
}

void ProcessLedger::NameSites(const RegionCopy& region) {
  const uint64_t answered = symbolizer_ != nullptr ? symbolizer_->answered() : 0;
  const bool ask_again = pending_sites_ > 0;
  if (!ask_again && answered == names_answered_) return;
  names_answered_ = answered;
  for (size_t i = 0; i < sites_.size(); ++i) {
    Site& site = sites_[i];
    if (!site.pending) continue;
    bool pending = false;
    std::shared_ptr<const SiteInfo> info =
        NameSite(region, region.sites[i], pid_, symbolizer_, &pending);
    if (!pending) --pending_sites_;
    site.pending = pending;
    if (info->id == site.info->id && info->frames.size() == site.info->frames.size()) continue;
    named_bytes_ += SizeOf(*info) - SizeOf(*site.info);
    site.info = std::move(info);
    site.changed = true;
  }
}

uint8_t ProcessLedger::MovedMoments(const RegionCopy& region) {
  std::vector<uint32_t> epochs;
  for (const wire::PeakGroupRow& row : region.peak_groups) epochs.push_back(row.peak_epoch);
  uint8_t moved = 0;
  if (epochs != peak_epochs_) moved |= 1u << static_cast<uint32_t>(wire::Moment::kPeak);
  for (uint32_t m = 0; m < wire::kMomentCount; ++m) {
    if (region.header.moment_epoch[m] != moment_epochs_[m]) moved |= static_cast<uint8_t>(1u << m);
    moment_epochs_[m] = region.header.moment_epoch[m];
  }
  peak_epochs_ = std::move(epochs);
  return moved;
}

void ProcessLedger::UpdateSites(const RegionCopy& region, const std::vector<uint32_t>& changed) {
  static const auto kNoFrames = std::make_shared<const SiteInfo>(SiteInfo{1, {}, 0, false, {}});
  NameSites(region);
  if (sites_.size() < region.sites.size()) sites_.resize(region.sites.size());
  for (const uint32_t i : changed) {
    const wire::SiteRow& row = region.sites[i];
    Site& site = sites_[i];
    if (row.allocated_count == 0) continue;
    site.changed = true;
    if (site.info != nullptr) continue;
    if (row.frame_count == 0) {
      site.info = kNoFrames;
    } else if (named_bytes_ > kMaxNamedBytes) {
      site.info = kNoFrames;
      ++unnamed_sites_;
    } else {
      site.info = NameSite(region, row, pid_, symbolizer_, &site.pending);
      named_bytes_ += SizeOf(*site.info);
      if (site.pending) ++pending_sites_;
    }
  }
  bool list_changed = false;
  const uint8_t moved = MovedMoments(region);
  for (size_t i = 0; i < sites_.size(); ++i) {
    Site& site = sites_[i];
    if (!site.changed && (site.may_move & moved) == 0) continue;
    if (site.info == nullptr) continue;
    const wire::SiteRow& row = region.sites[i];
    if (!site.changed) {
      // A moment may have passed since: what an unchanged site held then is what it holds now.
      const auto at = AtMoments(region, row, &site.may_move);
      const auto same = [](const BytesAndCount& a, const BytesAndCount& b) {
        return a.bytes == b.bytes && a.count == b.count;
      };
      if (site.view == nullptr || std::equal(at.begin(), at.end(), site.view->at.begin(), same)) {
        continue;
      }
    }
    site.view = MakeView(region, row, site.info, &site.may_move);
    site.changed = false;
    list_changed = true;
  }
  if (!list_changed) return;
  auto list = std::make_shared<SiteList>();
  list->reserve(sites_.size());
  for (const Site& site : sites_) {
    if (site.view != nullptr) list->push_back(site.view);
  }
  site_list_ = std::move(list);
}

void ProcessLedger::UpdateSteps(const RegionCopy& region, const std::vector<wire::StepRow>& steps) {
  new_steps_.clear();
  if (steps.empty()) return;
  auto list = std::make_shared<StepList>(*steps_);
  const bool reported = !region.allocators.empty();
  // Driver memory has one step floor for all its kinds together: it is the floor of `device` only
  // where no other kind is in use.
  std::vector<int16_t> mixed;
  for (const wire::TotalsRow& total : region.totals) {
    const bool other_kind =
        total.layer == static_cast<uint8_t>(Layer::kDriver) && total.device >= 0 &&
        total.kind != static_cast<uint8_t>(Kind::kDevice) && total.allocated_bytes > 0;
    if (other_kind) mixed.push_back(total.device);
  }
  // A step knows what all devices' allocators reserve together.
  std::optional<int> only_device;
  for (const wire::AllocatorRow& allocator : region.allocators) {
    if (allocator.seq == 0) continue;
    const int device = devices_.ToNode(allocator.device);
    only_device = only_device ? -1 : device;
  }
  for (const wire::StepRow& row : steps) {
    auto view = std::make_shared<StepView>();
    detect::StepPoint point;
    view->step = row.step;
    view->end_monotonic_ns = row.end_ns;
    point.step = row.step;
    point.end_ns = static_cast<int64_t>(row.end_ns);
    if (row.phase < region.phases.size())
      view->phase = region.String(region.phases[row.phase].name);
    if (reported) {
      view->fw_allocated_bytes = row.fw_allocated_bytes;
      view->fw_reserved_bytes = row.fw_reserved_bytes;
    }
    if (only_device.value_or(-1) >= 0 && row.fw_reserved_bytes > 0) {
      // By step as the segments are, so that their growth is known for the cache's.
      const int64_t cache = row.fw_reserved_bytes - row.fw_allocated_bytes;
      point.series.push_back({{MemoryClass::kFwCache, *only_device}, cache, cache});
    }
    view->anon_bytes = row.anon_bytes;
    view->shmem_bytes = row.shmem_bytes;
    for (size_t i = 0; i < std::min<size_t>(region.peak_groups.size(), wire::kMaxPeakGroups); ++i) {
      const wire::PeakGroupRow& group = region.peak_groups[i];
      const std::optional<PeakSide> side = SideOf(group);
      if (!side) continue;
      const wire::StepGroup& bytes = row.groups[i];
      const int device = devices_.ToNode(group.device);
      view->groups.push_back({*side, device, bytes.floor_bytes, bytes.peak_bytes, bytes.end_bytes});
      if (*side == PeakSide::kDriverDevice &&
          std::find(mixed.begin(), mixed.end(), group.device) != mixed.end()) {
        continue;
      }
      const MemoryClass memory_class = ClassOf(*side);
      point.series.push_back({{memory_class, OnDevice(memory_class) ? device : -1},
                              bytes.floor_bytes,
                              bytes.peak_bytes});
    }
    list->push_back(std::move(view));
    new_steps_.push_back(std::move(point));
  }
  if (list->size() > kKeptSteps) {
    list->erase(list->begin(), list->end() - static_cast<ptrdiff_t>(kKeptSteps));
  }
  steps_ = std::move(list);
}

void ProcessLedger::UpdateEvents(const RegionCopy& region,
                                 const std::vector<wire::EventRow>& events) {
  for (const wire::EventRow& row : events) {
    EventView view;
    view.type = NameOf(kEventNames, row.type);
    if (row.entry_point < wire::kEntryPointCount) {
      view.entry_point = wire::kEntryPointNames[row.entry_point];
    }
    view.unix_ns = ToUnixNs(row.time_ns);
    view.step = row.step;
    view.code = row.code;
    view.device = devices_.ToNode(row.device);
    view.bytes = row.bytes;
    if (row.site < sites_.size() && sites_[row.site].info != nullptr &&
        region.sites[row.site].frame_count > 0) {
      view.site_id = sites_[row.site].info->id;
    }
    const char* end = std::find(std::begin(row.text), std::end(row.text), '\0');
    view.text.assign(std::begin(row.text), end);
    events_.push_back(std::move(view));
    if (row.type < event_counts_.size()) ++event_counts_[row.type];
  }
  while (events_.size() > kKeptEvents) events_.pop_front();
}

std::vector<OwnAccountBytes> ProcessLedger::OwnAccounts() const {
  std::vector<OwnAccountBytes> accounts;
  for (const auto& view : *site_list_) {
    if (view->info->own_account.empty() || view->live.bytes == 0) continue;
    const auto same = std::find_if(accounts.begin(), accounts.end(), [&](const auto& account) {
      return account.memory_class == view->memory_class && account.device == view->device &&
             account.name == view->info->own_account;
    });
    if (same != accounts.end()) {
      same->bytes += view->live.bytes;
    } else {
      accounts.push_back(
          {view->memory_class, view->device, view->live.bytes, view->info->own_account});
    }
  }
  return accounts;
}

uint64_t ProcessLedger::EventCount(wire::EventType type) const {
  return event_counts_[static_cast<size_t>(type)];
}

void ProcessLedger::Fill(const RegionCopy& region, ProcessSnapshot* process) const {
  const wire::Header& header = region.header;
  process->totals = Totals(region, devices_);
  process->totals.insert(process->totals.end(), before_attach_.begin(), before_attach_.end());
  process->sites = site_list_;
  process->steps = steps_;
  process->events.assign(events_.begin(), events_.end());
  process->current_step = header.current_step;
  process->backward_passes = header.backward_passes;
  process->sampling_interval_bytes = header.sampling_interval_bytes;
  process->observer_host_bytes = static_cast<int64_t>(header.observer_host_bytes);

  for (const wire::FeatureRow& row : region.features) {
    if (row.seq == 0) continue;
    const char* end = std::find(std::begin(row.reason), std::end(row.reason), '\0');
    process->features.push_back({std::string(NameOf(kFeatureNames, row.feature)),
                                 std::string(NameOf(kFeatureStateNames, row.state)),
                                 std::string(std::begin(row.reason), end)});
  }
  for (const wire::PeakGroupRow& row : region.peak_groups) {
    const std::optional<PeakSide> side = SideOf(row);
    if (!side) continue;
    process->peaks.push_back({*side, devices_.ToNode(row.device), row.live_bytes, row.peak_bytes,
                              row.peak_step, row.peak_ns});
  }
  for (const wire::PhaseRow& row : region.phases) {
    if (row.seq == 0) continue;
    PhaseView phase;
    phase.name = region.String(row.name);
    phase.first_step = row.first_step;
    phase.last_step = row.last_step;
    phase.start_monotonic_ns = row.start_ns;
    phase.end_monotonic_ns = row.end_ns;
    for (size_t i = 0; i < std::min<size_t>(region.peak_groups.size(), wire::kMaxPeakGroups); ++i) {
      const std::optional<PeakSide> side = SideOf(region.peak_groups[i]);
      if (!side) continue;
      const MemoryClass memory_class = ClassOf(*side);
      const int device =
          OnDevice(memory_class) ? devices_.ToNode(region.peak_groups[i].device) : -1;
      phase.groups.push_back({memory_class, device, row.groups[i].before_bytes,
                              row.groups[i].peak_bytes, row.groups[i].end_bytes});
    }
    if (row.anon.before_bytes >= 0) {
      phase.groups.push_back(
          {MemoryClass::kAnon, -1, row.anon.before_bytes, row.anon.peak_bytes, row.anon.end_bytes});
    }
    process->phases.push_back(std::move(phase));
  }
  for (const wire::EntryPointRow& row : region.entry_points) {
    if (row.seq == 0 || row.calls == 0 || row.entry_point >= wire::kEntryPointCount) continue;
    process->entry_points.push_back({std::string(wire::kEntryPointNames[row.entry_point]),
                                     Witness::kCupti, row.calls, row.failed_calls,
                                     row.requested_bytes});
  }
  for (size_t i = 0; i < wire::kLossCount; ++i) {
    if (header.losses[i] == 0 && header.loss_bytes[i] == 0) continue;
    process->losses.push_back({std::string(kLossNames[i]), header.losses[i], header.loss_bytes[i]});
  }
  auto lose = [&](const char* cause, uint64_t count) {
    if (count > 0) process->losses.push_back({cause, count, 0});
  };
  lose("steps_missed", steps_missed_);
  lose("events_missed", events_missed_);
  lose("rows_torn", torn_rows_);
  lose("sites_unnamed", unnamed_sites_);
  lose("values_absurd", region.absurd_values);
  for (const uint64_t bytes : records_.Differences()) {
    process->losses.push_back({"records_disagree", 0, bytes});
  }
}

bool ProcessLedger::SitesAreComplete(const RegionCopy& region) const {
  const wire::Header& header = region.header;
  for (const wire::Loss loss :
       {wire::Loss::kSiteTableFull, wire::Loss::kLiveTableFull, wire::Loss::kFramePoolFull}) {
    if (header.losses[static_cast<size_t>(loss)] > 0) return false;
  }
  int64_t named = 0;
  int64_t stackless = 0;
  for (const wire::SiteRow& row : region.sites) {
    if (row.live_bytes > 0) (row.frame_count > 0 ? named : stackless) += row.live_bytes;
  }
  return stackless <= named / 3;
}

std::vector<uint32_t> ProcessLedger::RowsOfSite(uint64_t site_id) const {
  std::vector<uint32_t> rows;
  for (size_t i = 0; i < sites_.size(); ++i) {
    if (sites_[i].info != nullptr && sites_[i].info->id == site_id) {
      rows.push_back(static_cast<uint32_t>(i));
    }
  }
  return rows;
}

size_t ProcessLedger::size() const {
  return region_ == nullptr ? 0 : std::min(sites_.size(), region_->sites.size());
}

detect::SitePoint ProcessLedger::At(size_t row) const {
  detect::SitePoint point;
  const Site& site = sites_[row];
  if (site.view == nullptr || site.view->info->frames.empty()) return point;
  point.site_id = site.view->info->id;
  point.id = {site.view->memory_class, site.view->device};
  point.live_bytes = site.view->live.bytes;
  point.live_count = site.view->live.count;
  point.cohort_shift = static_cast<uint8_t>(site.view->cohort_shift);
  static_assert(detect::kCohorts == wire::kCohorts);
  point.cohort_bytes = site.view->cohort_bytes;
  return point;
}

}  // namespace tidemark
