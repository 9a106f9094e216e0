#include "cupti_agent/ledger/region_layout.h"

#include <algorithm>

#include "wire/entry_point.h"

namespace tidemark::agent {
namespace {

using wire::Section;

constexpr uint64_t kLineBytes = 64;
constexpr uint64_t kPageBytes = 4096;

constexpr uint64_t RoundUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

class Layouter {
 public:
  explicit Layouter(RegionLayout* layout) : layout_(layout) {}

  void Add(Section section, uint32_t row_bytes, uint64_t rows, uint64_t alignment) {
    at_ = RoundUp(at_, alignment);
    layout_->sections[static_cast<uint32_t>(section) - 1] = {
        .id = static_cast<uint32_t>(section),
        .row_bytes = row_bytes,
        .offset = at_,
        .capacity = rows,
        .used = 0,
    };
    at_ += row_bytes * rows;
    layout_->used_bytes = at_;
  }

  uint64_t at() const { return at_; }

 private:
  RegionLayout* layout_;
  uint64_t at_ = sizeof(wire::Header);
};

}  // namespace

RegionLayout LayOut(uint64_t region_bytes) {
  RegionLayout layout = {};
  Layouter to(&layout);
  to.Add(Section::kFeatures, sizeof(wire::FeatureRow), wire::kFeatureCount, kLineBytes);
  to.Add(Section::kTotals, sizeof(wire::TotalsRow), kMaxTotalsRows, kLineBytes);
  to.Add(Section::kPeakGroups, sizeof(wire::PeakGroupRow), wire::kMaxPeakGroups, kLineBytes);
  to.Add(Section::kAllocators, sizeof(wire::AllocatorRow), kMaxAllocatorRows, kLineBytes);
  to.Add(Section::kEntryPoints, sizeof(wire::EntryPointRow), wire::kEntryPointCount, kLineBytes);

  // Shares in 128ths of what the fixed tables and page alignment leave. At the default of 64 MiB:
  // about 650,000 framework blocks, 260,000 driver allocations, 330,000 CPU tensors, 34,000 stacks
  // of 16 frames, 8,000 steps.
  const uint64_t rest =
      region_bytes - to.at() - 8 * kPageBytes - kMaxTotalsRows * sizeof(wire::SiteRow);
  auto rows = [&](uint64_t share, uint64_t row_bytes, uint64_t most) {
    return std::clamp<uint64_t>(rest * share / 128 / row_bytes, 4, most);
  };
  const uint64_t sites = RoundUp(kMaxTotalsRows + rows(18, sizeof(wire::SiteRow), 1 << 20),
                                 wire::kSitesPerDirtyBlock) -
                         wire::kSitesPerDirtyBlock;
  to.Add(Section::kEvents, sizeof(wire::EventRow), rows(1, sizeof(wire::EventRow), 4096),
         kLineBytes);
  to.Add(Section::kPhases, sizeof(wire::PhaseRow), rows(1, sizeof(wire::PhaseRow), 1024),
         kLineBytes);
  to.Add(Section::kModules, sizeof(wire::ModuleRow), rows(1, sizeof(wire::ModuleRow), 4096),
         kLineBytes);
  to.Add(Section::kSiteDirty, sizeof(uint64_t), sites / wire::kSitesPerDirtyBlock, kLineBytes);
  to.Add(Section::kSites, sizeof(wire::SiteRow), sites, kPageBytes);
  to.Add(Section::kFrames, sizeof(wire::Frame), rows(16, sizeof(wire::Frame), 1 << 22), kPageBytes);
  to.Add(Section::kStrings, 1, rows(8, 1, 32 << 20), kPageBytes);
  to.Add(Section::kSteps, sizeof(wire::StepRow), rows(4, sizeof(wire::StepRow), 1 << 16),
         kPageBytes);
  to.Add(Section::kLiveDriver, sizeof(wire::LiveRow), rows(16, sizeof(wire::LiveRow), 1 << 22),
         kPageBytes);
  to.Add(Section::kLiveFramework, sizeof(wire::LiveRow), rows(40, sizeof(wire::LiveRow), 1 << 24),
         kPageBytes);
  to.Add(Section::kLiveHost, sizeof(wire::LiveRow), rows(20, sizeof(wire::LiveRow), 1 << 23),
         kPageBytes);
  return layout;
}

}  // namespace tidemark::agent
