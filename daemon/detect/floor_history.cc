#include "daemon/detect/floor_history.h"

#include <algorithm>

namespace tidemark::detect {
namespace {

uint32_t Saturate(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

int FloorHistory::Push(uint64_t unit, int64_t time_ns, int64_t floor) {
  if (points_ == 0) {
    first_unit_ = unit;
    first_time_ns_ = time_ns;
  }
  Block block;
  block.floor = floor;
  block.unit = Saturate(unit - std::min(unit, first_unit_));
  block.centiseconds =
      Saturate(static_cast<uint64_t>(std::max<int64_t>(0, time_ns - first_time_ns_)) / 10'000'000);
  int level = 0;
  for (; level < kMaxLevels; ++level) {
    if (level == levels()) {
      levels_.reserve(levels_.size() + 1);  // exactly: doubling would waste 10 KiB
      levels_.emplace_back();
    }
    Level& here = levels_[level];
    // Level k takes whole blocks of level k-1, two of which make one of its own.
    const bool completes = level == 0 || ((points_ + 1) & ((uint64_t{1} << level) - 1)) == 0;
    here.open.floor = std::min(here.open.floor, block.floor);
    here.open.unit = block.unit;
    here.open.centiseconds = block.centiseconds;
    if (!completes) break;
    block = here.open;
    here.newest = here.newest + 1 < kRing ? here.newest + 1 : 0;
    here.ring[here.newest] = block;
    here.open = Block{};
  }
  ++points_;
  return level;
}

int FloorHistory::Available(int level) const {
  if (level >= levels()) return 0;
  return static_cast<int>(std::min<uint64_t>(Completed(level), kRing));
}

int64_t FloorHistory::FloorOf(int level, int skip, int blocks) const {
  int64_t floor = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < blocks; ++i) floor = std::min(floor, At(level, skip + i).floor);
  return floor;
}

int FloorHistory::LevelReaching(uint64_t points) const {
  int level = 0;
  while (level + 1 < levels() && (uint64_t{kRing} << level) < points) ++level;
  return level;
}

std::optional<int64_t> FloorHistory::FloorAt(int64_t time_ns) const {
  const int64_t centiseconds = (time_ns - first_time_ns_) / 10'000'000;
  for (int level = 0; level < levels(); ++level) {
    const int available = Available(level);
    if (available == 0) break;
    const bool reaches_start = static_cast<uint64_t>(available) == Completed(level);
    if (!reaches_start && At(level, available - 1).centiseconds > centiseconds) continue;
    for (int back = available - 1; back >= 0; --back) {
      if (At(level, back).centiseconds >= centiseconds) return At(level, back).floor;
    }
    return At(level, 0).floor;
  }
  return std::nullopt;
}

double FloorHistory::UnitsPerSecond(uint64_t points) const {
  const int level = LevelReaching(points);
  const int available = Available(level);
  if (available < 2) return 0;
  const int back = static_cast<int>(
      std::clamp<uint64_t>(points >> level, 1, static_cast<uint64_t>(available - 1)));
  const Block& newest = At(level, 0);
  const Block& oldest = At(level, back);
  if (newest.centiseconds <= oldest.centiseconds) return 0;
  return 100.0 * static_cast<double>(newest.unit - oldest.unit) /
         static_cast<double>(newest.centiseconds - oldest.centiseconds);
}

size_t FloorHistory::MemoryBytes() const {
  return sizeof(*this) + levels_.capacity() * sizeof(Level);
}

}  // namespace tidemark::detect
