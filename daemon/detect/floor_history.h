// A series of floors in bounded memory, at every resolution at once.
//
//   level 0   the last kRing points as they came
//   level k   the last kRing blocks of 2^k points; a block keeps the smallest of its points
//
// A new point completes one block at level 0, every second one at level 1, and so on: two block
// writes a point on average. A million points fill 16 levels: 12.5 KiB.
//
// The smallest of a block is what makes the history useful: a saw-tooth, an evaluation peak or a
// step's own allocations vanish from a block that is longer than they are, a leak does not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace tidemark::detect {

class FloorHistory {
 public:
  static constexpr int kRing = 48;
  static constexpr int kMaxLevels = 16;  // its ring: the last 1.5 million points

  struct Block {
    int64_t floor = std::numeric_limits<int64_t>::max();
    uint32_t unit = 0;          // of its last point, counted from the first point ever
    uint32_t centiseconds = 0;  // likewise
  };

  // `unit` is the step (or second) of the point and `time_ns` its clock; both must not fall.
  // Returns how many levels completed a block: levels 0 .. n-1 have a new newest block.
  int Push(uint64_t unit, int64_t time_ns, int64_t floor);

  uint64_t points() const { return points_; }
  int levels() const { return static_cast<int>(levels_.size()); }
  // Blocks that level `level` can still show, and the one that is `back` blocks old (0 = newest).
  int Available(int level) const;
  const Block& At(int level, int back) const {
    const int index = levels_[level].newest - back;
    return levels_[level].ring[index < 0 ? index + kRing : index];
  }
  uint64_t Completed(int level) const { return points_ >> level; }

  // Smallest point among the newest `blocks` blocks that are `skip` blocks old, at `level`.
  int64_t FloorOf(int level, int skip, int blocks) const;

  // The finest level whose ring reaches `points` points back; the last one if none does.
  int LevelReaching(uint64_t points) const;

  // The floor at about `time_ns`, as finely as it is still kept; nothing before the first block.
  std::optional<int64_t> FloorAt(int64_t time_ns) const;
  // Units a second over about the last `points` points; 0 when unknown.
  double UnitsPerSecond(uint64_t points) const;

  uint64_t first_unit() const { return first_unit_; }
  int64_t first_time_ns() const { return first_time_ns_; }
  size_t MemoryBytes() const;

 private:
  struct Level {
    std::array<Block, kRing> ring;
    Block open;       // the block under way
    int newest = -1;  // index into ring
  };

  std::vector<Level> levels_;
  uint64_t points_ = 0;
  uint64_t first_unit_ = 0;
  int64_t first_time_ns_ = 0;
};

}  // namespace tidemark::detect
