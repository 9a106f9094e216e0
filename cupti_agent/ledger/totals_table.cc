#include "cupti_agent/ledger/totals_table.h"

#include "cupti_agent/ledger/monotonic.h"
#include "cupti_agent/ledger/row_writer.h"

namespace tidemark::agent {
namespace {

using wire::Kind;
using wire::Layer;
using wire::PeakSide;

struct Side {
  bool any;
  PeakSide side;
};

Side SideOf(Layer layer, Kind kind, int16_t device) {
  switch (layer) {
    case Layer::kFramework:
      return {true, PeakSide::kFramework};
    case Layer::kHostFramework:
      return {true, PeakSide::kHostFramework};
    case Layer::kRecords:
      return {false, {}};
    case Layer::kDriver:
      break;
  }
  switch (kind) {
    case Kind::kDevice:
    case Kind::kPool:
    case Kind::kVmm:  // may lie on a NUMA node of the host
    case Kind::kArray:
    case Kind::kGraph:
      return {true, device < 0 ? PeakSide::kPinned : PeakSide::kDriverDevice};
    case Kind::kPinned:
    case Kind::kRegistered:
      return {true, PeakSide::kPinned};
    case Kind::kManaged:
    case Kind::kIpc:
    case Kind::kFwBlock:
    case Kind::kCpuTensor:
      break;
  }
  return {false, {}};
}

}  // namespace

void TotalsTable::Init(const Region& region) {
  header_ = region.header();
  rows_ = region.Rows<wire::TotalsRow>(wire::Section::kTotals);
  rows_entry_ = &region.Entry(wire::Section::kTotals);
  groups_ = region.Rows<wire::PeakGroupRow>(wire::Section::kPeakGroups);
  groups_entry_ = &region.Entry(wire::Section::kPeakGroups);
}

uint8_t TotalsTable::RowOf(Layer layer, Kind kind, int16_t device) {
  const auto l = static_cast<uint8_t>(layer);
  const auto k = static_cast<uint8_t>(kind);
  if (device < -1 || device >= kDevices || l >= kLayers || k >= wire::kKindCount) return kNoRow;
  uint8_t& slot = index_[l][k][device + 1];
  if (slot == 0) {
    const uint8_t made = MakeRow(layer, kind, device);
    if (made == kNoRow) return kNoRow;
    slot = static_cast<uint8_t>(made + 1);
  }
  return static_cast<uint8_t>(slot - 1);
}

uint8_t TotalsTable::MakeRow(Layer layer, Kind kind, int16_t device) {
  if (rows_entry_->used >= kMaxTotalsRows) return kNoRow;
  const auto made = static_cast<uint8_t>(rows_entry_->used);
  {
    RowWriter writer(rows_[made]);
    rows_[made].layer = static_cast<uint8_t>(layer);
    rows_[made].kind = static_cast<uint8_t>(kind);
    rows_[made].device = device;
  }
  group_of_[made] = GroupFor(layer, kind, device);
  Publish(rows_entry_->used, rows_entry_->used + 1);
  return made;
}

uint8_t TotalsTable::GroupFor(Layer layer, Kind kind, int16_t device) {
  const Side side = SideOf(layer, kind, device);
  if (!side.any) return kNoRow;
  for (uint8_t i = 0; i < group_count_; ++i) {
    if (groups_[i].side == static_cast<uint8_t>(side.side) && groups_[i].device == device) return i;
  }
  if (group_count_ == wire::kMaxPeakGroups) {
    __atomic_fetch_add(&header_->losses[static_cast<uint32_t>(wire::Loss::kPeakGroupsFull)], 1,
                       __ATOMIC_RELAXED);
    return kNoRow;
  }
  wire::PeakGroupRow& made = groups_[group_count_];
  {
    RowWriter writer(made);
    made.side = static_cast<uint8_t>(side.side);
    made.device = device;
    made.peak_epoch = 1;
  }
  Publish(groups_entry_->used, groups_entry_->used + 1);
  return group_count_++;
}

void TotalsTable::GroupAdd(uint8_t group, uint64_t bytes) {
  wire::PeakGroupRow& g = groups_[group];
  RowWriter writer(g);
  g.live_bytes += static_cast<int64_t>(bytes);
  if (g.live_bytes > g.step_peak_bytes) g.step_peak_bytes = g.live_bytes;
  if (g.live_bytes > phase_peaks_[group]) phase_peaks_[group] = g.live_bytes;
  if (g.live_bytes > g.peak_bytes) {
    g.peak_bytes = g.live_bytes;
    g.peak_step = current_step_;
    g.peak_ns = CoarseMonotonicNs();
    ++g.peak_epoch;
  }
}

void TotalsTable::Add(uint8_t row, uint64_t bytes) {
  {
    wire::TotalsRow& t = rows_[row];
    RowWriter writer(t);
    t.live_bytes += static_cast<int64_t>(bytes);
    if (t.live_bytes > t.peak_bytes) t.peak_bytes = t.live_bytes;
    t.allocated_bytes += bytes;
    ++t.allocations;
  }
  if (group_of_[row] != kNoRow) GroupAdd(group_of_[row], bytes);
}

void TotalsTable::Remove(uint8_t row, uint64_t bytes) {
  {
    wire::TotalsRow& t = rows_[row];
    RowWriter writer(t);
    t.live_bytes -= static_cast<int64_t>(bytes);
    t.freed_bytes += bytes;
    ++t.frees;
  }
  if (group_of_[row] == kNoRow) return;
  wire::PeakGroupRow& g = groups_[group_of_[row]];
  RowWriter writer(g);
  g.live_bytes -= static_cast<int64_t>(bytes);
  if (g.live_bytes < g.step_floor_bytes) g.step_floor_bytes = g.live_bytes;
}

void TotalsTable::Restore(uint8_t row, uint64_t bytes) {
  {
    wire::TotalsRow& t = rows_[row];
    RowWriter writer(t);
    t.live_bytes += static_cast<int64_t>(bytes);
    // What others allocated meanwhile came on top of these bytes, which were there all along.
    if (t.live_bytes > t.peak_bytes) t.peak_bytes = t.live_bytes;
    t.freed_bytes -= bytes;
    --t.frees;
    ++t.failed_calls;
  }
  if (group_of_[row] != kNoRow) GroupAdd(group_of_[row], bytes);
}

void TotalsTable::AddUntracked(uint8_t row, uint64_t bytes) {
  wire::TotalsRow& t = rows_[row];
  RowWriter writer(t);
  t.allocated_bytes += bytes;
  ++t.allocations;
  t.untracked_bytes += bytes;
}

void TotalsTable::CountFailure(uint8_t row) {
  RowWriter writer(rows_[row]);
  ++rows_[row].failed_calls;
}

void TotalsTable::CountUnknownFree(uint8_t row) {
  RowWriter writer(rows_[row]);
  ++rows_[row].unknown_frees;
}

void TotalsTable::BeginPhase() {
  for (uint8_t i = 0; i < group_count_; ++i) phase_peaks_[i] = groups_[i].live_bytes;
}

void TotalsTable::BeginStep() {
  for (uint8_t i = 0; i < group_count_; ++i) {
    wire::PeakGroupRow& g = groups_[i];
    RowWriter writer(g);
    g.step_floor_bytes = g.live_bytes;
    g.step_peak_bytes = g.live_bytes;
  }
}

}  // namespace tidemark::agent
