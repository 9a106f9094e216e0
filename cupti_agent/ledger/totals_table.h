// Totals per (layer, kind, device), and the peak groups these rows add up to.
//
//   totals row: fw_block, device 0  --+
//                                     +--> peak group: framework, device 0
//   totals row: device, device 0  --+
//   totals row: pool, device 0    --+----> peak group: driver, device 0
//   totals row: managed, records, ipc  --> none: managed memory moves, records count again what
//                                          callbacks counted, imported memory is another process's
//
// Threads: whoever holds the ledger's lock.
#pragma once

#include <cstdint>

#include "cupti_agent/ledger/region.h"

namespace tidemark::agent {

inline constexpr uint8_t kNoRow = UINT8_MAX;

class TotalsTable {
 public:
  void Init(const Region& region);

  // The row of (layer, kind, device), made when it is new; kNoRow when there is no room.
  uint8_t RowOf(wire::Layer layer, wire::Kind kind, int16_t device);

  // Adds to the row and its group, and moves their peaks. True when the group has a new peak.
  void Add(uint8_t row, uint64_t bytes);
  void Remove(uint8_t row, uint64_t bytes);
  // Takes a Remove back: the free failed.
  void Restore(uint8_t row, uint64_t bytes);
  // An allocation that no table could hold and whose free will not carry its bytes.
  void AddUntracked(uint8_t row, uint64_t bytes);
  void CountFailure(uint8_t row);
  void CountUnknownFree(uint8_t row);

  wire::TotalsRow& row(uint8_t index) { return rows_[index]; }
  // kNoRow = the row belongs to no group.
  uint8_t GroupOf(uint8_t row) const { return group_of_[row]; }
  uint8_t group_count() const { return group_count_; }
  wire::PeakGroupRow& group(uint8_t index) { return groups_[index]; }

  // Peak since the phase began; the phase's own row is written by the steps ledger.
  int64_t phase_peak(uint8_t group) const { return phase_peaks_[group]; }
  void BeginPhase();
  // Starts floor and peak of the next step at what is live now.
  void BeginStep();
  void set_current_step(uint64_t step) { current_step_ = step; }

 private:
  uint8_t MakeRow(wire::Layer layer, wire::Kind kind, int16_t device);
  uint8_t GroupFor(wire::Layer layer, wire::Kind kind, int16_t device);
  void GroupAdd(uint8_t group, uint64_t bytes);

  static constexpr int kDevices = 64;  // ordinals that are told apart; -1 is the host
  static constexpr int kLayers = 4;

  wire::Header* header_ = nullptr;
  wire::TotalsRow* rows_ = nullptr;
  wire::SectionEntry* rows_entry_ = nullptr;
  wire::PeakGroupRow* groups_ = nullptr;
  wire::SectionEntry* groups_entry_ = nullptr;
  uint8_t group_count_ = 0;
  uint64_t current_step_ = 0;
  uint8_t index_[kLayers][wire::kKindCount][kDevices + 1] = {};  // row + 1
  uint8_t group_of_[kMaxTotalsRows] = {};
  int64_t phase_peaks_[wire::kMaxPeakGroups] = {};
};

}  // namespace tidemark::agent
