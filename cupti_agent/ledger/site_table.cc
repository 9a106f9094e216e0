#include "cupti_agent/ledger/site_table.h"

#include <algorithm>
#include <bit>

#include "cupti_agent/ledger/private_memory.h"
#include "cupti_agent/ledger/row_writer.h"

namespace tidemark::agent {
namespace {

using wire::Loss;
using wire::Moment;

// How many blocks of this size the estimate stands for; the same for the allocation and its free.
int64_t EstimatedCount(uint64_t bytes, uint64_t estimated_bytes) {
  if (bytes == 0 || estimated_bytes <= bytes) return 1;
  return static_cast<int64_t>((estimated_bytes + bytes / 2) / bytes);
}

}  // namespace

bool SiteTable::Init(const Region& region, TotalsTable* totals) {
  header_ = region.header();
  totals_ = totals;
  rows_ = region.Rows<wire::SiteRow>(wire::Section::kSites);
  entry_ = &region.Entry(wire::Section::kSites);
  dirty_ = region.Rows<uint64_t>(wire::Section::kSiteDirty);
  dirty_entry_ = &region.Entry(wire::Section::kSiteDirty);
  frames_ = region.Rows<wire::Frame>(wire::Section::kFrames);
  frames_entry_ = &region.Entry(wire::Section::kFrames);
  head_count_ = std::bit_ceil(static_cast<uint32_t>(entry_->capacity));
  heads_ = MapPrivate<uint32_t>(head_count_);
  next_ = MapPrivate<uint32_t>(entry_->capacity);
  hashes_ = MapPrivate<uint64_t>(entry_->capacity);
  if (heads_ == nullptr || next_ == nullptr || hashes_ == nullptr) return false;
  if (!strings_.Init(region) || !modules_.Init(region, &strings_)) return false;
  entry_->used = kMaxTotalsRows;
  dirty_entry_->used = kMaxTotalsRows / wire::kSitesPerDirtyBlock;
  return true;
}

uint32_t SiteTable::SiteOf(uint8_t totals_row, const StackView* stack, bool sampled) {
  uint32_t site = totals_row;
  if (stack != nullptr && stack->count > 0) {
    const uint64_t hash = Scatter(stack->hash + totals_row);
    uint32_t at = heads_[hash & (head_count_ - 1)];
    while (at != 0 && !(hashes_[at - 1] == hash && rows_[at - 1].totals_row == totals_row)) {
      at = next_[at - 1];
    }
    if (at != 0) {
      site = at - 1;
    } else {
      const uint32_t made = MakeSite(totals_row, *stack);
      if (made != UINT32_MAX) {
        hashes_[made] = hash;
        uint32_t& head = heads_[hash & (head_count_ - 1)];
        next_[made] = head;
        head = made + 1;
        site = made;
      }
    }
  }
  wire::SiteRow& row = rows_[site];
  if (sampled && (row.flags & wire::kSiteSampled) == 0) row.flags |= wire::kSiteSampled;
  return site;
}

uint32_t SiteTable::MakeSite(uint8_t totals_row, const StackView& stack) {
  if (entry_->used >= entry_->capacity) {
    CountLoss(Loss::kSiteTableFull);
    return UINT32_MAX;
  }
  const auto first_frame = static_cast<uint32_t>(frames_entry_->used);
  bool truncated = false;
  const uint16_t frames = StoreFrames(stack, &truncated);
  if (frames == 0) return UINT32_MAX;
  if (truncated) CountLoss(Loss::kStackTruncated);
  const auto made = static_cast<uint32_t>(entry_->used);
  wire::SiteRow& row = rows_[made];
  {
    RowWriter writer(row);
    row.first_frame = first_frame;
    row.frame_count = frames;
    row.flags = static_cast<uint8_t>(stack.flags | (truncated ? wire::kSiteTruncated : 0));
    row.totals_row = totals_row;
    row.peak_group = totals_->GroupOf(totals_row);
  }
  Publish(entry_->used, entry_->used + 1);
  const uint64_t blocks = made / wire::kSitesPerDirtyBlock + 1;
  if (blocks > dirty_entry_->used) Publish(dirty_entry_->used, blocks);
  return made;
}

uint16_t SiteTable::StoreFrames(const StackView& stack, bool* truncated) {
  const uint16_t wanted = std::min<uint16_t>(stack.count, wire::kMaxFrames);
  *truncated = stack.count > wanted || (stack.flags & wire::kSiteTruncated) != 0;
  const uint64_t first = frames_entry_->used;
  if (first + wanted > frames_entry_->capacity) {
    CountLoss(Loss::kFramePoolFull);
    return 0;
  }
  uint16_t stored = 0;
  for (; stored < wanted; ++stored) {
    StackFrame frame;
    if (!stack.resolve(stack, stored, &frame) || !StoreFrame(frame, &frames_[first + stored])) {
      *truncated = true;
      break;
    }
  }
  Publish(frames_entry_->used, first + stored);
  return stored;
}

bool SiteTable::StoreFrame(const StackFrame& from, wire::Frame* to) {
  *to = {};
  to->kind = static_cast<uint8_t>(from.kind);
  if (from.kind == wire::FrameKind::kPython) {
    const std::optional<uint32_t> file = strings_.Intern(from.file);
    const std::optional<uint32_t> function = strings_.Intern(from.function);
    if (!file || !function) {
      CountLoss(Loss::kStringPoolFull);
      return false;
    }
    to->line = from.line;
    to->a = *file;
    to->b = *function;
    return true;
  }
  const std::optional<uint32_t> module = modules_.Intern(from);
  if (!module) {
    CountLoss(Loss::kModuleTableFull);
    return false;
  }
  to->a = *module;
  to->b = from.offset;
  return true;
}

void SiteTable::SaveMoments(wire::SiteRow& site) {
  auto save = [&](Moment moment, uint32_t epoch) {
    const auto m = static_cast<uint32_t>(moment);
    if (site.moment_epoch[m] == epoch) return;
    site.moment_bytes[m] = site.live_bytes;
    site.moment_count[m] = site.live_count;
    site.moment_epoch[m] = epoch;
  };
  if (site.peak_group != kNoRow) save(Moment::kPeak, totals_->group(site.peak_group).peak_epoch);
  save(Moment::kLoad, header_->moment_epoch[static_cast<uint32_t>(Moment::kLoad)]);
  save(Moment::kStepEnd, header_->moment_epoch[static_cast<uint32_t>(Moment::kStepEnd)]);
}

// Doubles the width of the cohorts until the current step has one, adding neighbours up.
void SiteTable::WidenCohorts(wire::SiteRow& site) {
  while ((current_step_ >> site.cohort_shift) >= wire::kCohorts) {
    for (uint32_t i = 0; i < wire::kCohorts / 2; ++i) {
      site.cohort_bytes[i] = site.cohort_bytes[2 * i] + site.cohort_bytes[2 * i + 1];
    }
    std::fill(site.cohort_bytes + wire::kCohorts / 2, site.cohort_bytes + wire::kCohorts, 0);
    ++site.cohort_shift;
  }
}

void SiteTable::Apply(uint32_t site, int64_t bytes, int64_t count, uint64_t birth_step) {
  wire::SiteRow& row = rows_[site];
  if (row.frame_count == 0) {  // a "no stack" row, set up when its totals row first needs it
    row.totals_row = static_cast<uint8_t>(site);
    row.peak_group = totals_->GroupOf(row.totals_row);
  }
  SaveMoments(row);
  WidenCohorts(row);
  row.live_bytes += bytes;
  row.live_count += count;
  row.cohort_bytes[birth_step >> row.cohort_shift] += bytes;
  row.last_step = current_step_;
}

void SiteTable::Add(uint32_t site, uint64_t bytes, uint64_t estimated_bytes) {
  wire::SiteRow& row = rows_[site];
  {
    RowWriter writer(row);
    const int64_t count = EstimatedCount(bytes, estimated_bytes);
    Apply(site, static_cast<int64_t>(estimated_bytes), count, current_step_);
    if (row.allocated_count == 0) {
      row.first_step = current_step_;
      row.min_block_bytes = bytes;
    }
    row.min_block_bytes = std::min(row.min_block_bytes, bytes);
    row.max_block_bytes = std::max(row.max_block_bytes, bytes);
    row.allocated_bytes += estimated_bytes;
    row.allocated_count += static_cast<uint64_t>(count);
  }
  MarkDirty(site);
}

void SiteTable::Remove(uint32_t site, uint64_t bytes, uint64_t estimated_bytes,
                       uint32_t birth_step) {
  {
    RowWriter writer(rows_[site]);
    Apply(site, -static_cast<int64_t>(estimated_bytes), -EstimatedCount(bytes, estimated_bytes),
          birth_step);
    rows_[site].freed_bytes += estimated_bytes;
  }
  MarkDirty(site);
}

void SiteTable::Restore(uint32_t site, uint64_t bytes, uint64_t estimated_bytes,
                        uint32_t birth_step) {
  {
    RowWriter writer(rows_[site]);
    Apply(site, static_cast<int64_t>(estimated_bytes), EstimatedCount(bytes, estimated_bytes),
          birth_step);
    rows_[site].freed_bytes -= estimated_bytes;
  }
  MarkDirty(site);
}

// The row first, then its block, then the counter: a reader that saw the counter sees the others.
void SiteTable::MarkDirty(uint32_t site) {
  const uint64_t seq = header_->change_seq + 1;
  Publish(dirty_[site / wire::kSitesPerDirtyBlock], seq);
  Publish(header_->change_seq, seq);
}

uint64_t SiteTable::ResidentIndexBytes() const {
  return ResidentBytes(heads_, head_count_ * sizeof(uint32_t)) +
         ResidentBytes(next_, entry_->capacity * sizeof(uint32_t)) +
         ResidentBytes(hashes_, entry_->capacity * sizeof(uint64_t));
}

void SiteTable::CountLoss(Loss loss) const {
  const auto i = static_cast<uint32_t>(loss);
  __atomic_fetch_add(&header_->losses[i], 1, __ATOMIC_RELAXED);
}

}  // namespace tidemark::agent
