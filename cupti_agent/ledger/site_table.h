// Sites: one row per (stack, totals row). The first kMaxTotalsRows rows are "no stack", one for
// each totals row; the others are found by the stack's hash.
//
// Moments (the peak, the end of load, the end of the last step) are kept without ever copying the
// table: a moment only advances an epoch. A site that changes afterwards for the first time saves
// what it held, so
//
//   held at the moment = site.moment_epoch == epoch ? site.moment_bytes : site.live_bytes
//
// Threads: whoever holds the ledger's lock.
#pragma once

#include <cstdint>

#include "cupti_agent/ledger/interner.h"
#include "cupti_agent/ledger/region.h"
#include "cupti_agent/ledger/totals_table.h"

namespace tidemark::agent {

// Of a block that was not picked for a stack.
inline constexpr uint32_t kNoSite = UINT32_MAX;

class SiteTable {
 public:
  bool Init(const Region& region, TotalsTable* totals);

  // The site of `stack` under `totals_row`; the row's "no stack" site when the stack is null or
  // empty, or when there is no room (a counted loss).
  uint32_t SiteOf(uint8_t totals_row, const StackView* stack, bool sampled);

  // `bytes` is the block's size, `estimated_bytes` what it stands for. Must come before the change
  // of the totals row: the moments saved here are those before it.
  void Add(uint32_t site, uint64_t bytes, uint64_t estimated_bytes);
  void Remove(uint32_t site, uint64_t bytes, uint64_t estimated_bytes, uint32_t birth_step);
  void Restore(uint32_t site, uint64_t bytes, uint64_t estimated_bytes, uint32_t birth_step);

  wire::SiteRow& row(uint32_t site) { return rows_[site]; }
  uint64_t ResidentIndexBytes() const;
  StringTable& strings() { return strings_; }
  void set_current_step(uint64_t step) { current_step_ = step; }

 private:
  uint32_t MakeSite(uint8_t totals_row, const StackView& stack);
  uint16_t StoreFrames(const StackView& stack, bool* truncated);
  bool StoreFrame(const StackFrame& from, wire::Frame* to);
  void SaveMoments(wire::SiteRow& site);
  void WidenCohorts(wire::SiteRow& site);
  void MarkDirty(uint32_t site);
  void Apply(uint32_t site, int64_t bytes, int64_t count, uint64_t birth_step);
  void CountLoss(wire::Loss loss) const;

  wire::Header* header_ = nullptr;
  TotalsTable* totals_ = nullptr;
  StringTable strings_;
  ModuleTable modules_;
  wire::SiteRow* rows_ = nullptr;
  wire::SectionEntry* entry_ = nullptr;
  uint64_t* dirty_ = nullptr;
  wire::SectionEntry* dirty_entry_ = nullptr;
  wire::Frame* frames_ = nullptr;
  wire::SectionEntry* frames_entry_ = nullptr;
  uint32_t* heads_ = nullptr;  // site + 1
  uint32_t head_count_ = 0;
  uint32_t* next_ = nullptr;    // site + 1
  uint64_t* hashes_ = nullptr;  // of each site's stack and totals row
  uint64_t current_step_ = 0;
};

}  // namespace tidemark::agent
