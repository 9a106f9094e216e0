// Where the sections lie in a region of a given size. Fixed tables first, then the tables that grow
// with the job share what is left; live tables come last and each begins on a page, so that what a
// small job touches is a few pages at the front of each.
#pragma once

#include <cstdint>

#include "wire/region.h"

namespace tidemark::agent {

inline constexpr uint32_t kMaxTotalsRows = 128;
inline constexpr uint32_t kMaxAllocatorRows = 16;
inline constexpr uint64_t kMinRegionBytes = 192 << 10;
inline constexpr uint32_t kSectionCount = 16;

struct RegionLayout {
  wire::SectionEntry sections[kSectionCount];
  uint64_t used_bytes;

  const wire::SectionEntry& operator[](wire::Section section) const {
    return sections[static_cast<uint32_t>(section) - 1];
  }
};

// `region_bytes` is at least kMinRegionBytes and at most wire::kMaxRegionBytes.
RegionLayout LayOut(uint64_t region_bytes);

}  // namespace tidemark::agent
