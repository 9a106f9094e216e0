// The shape of growth in one window of a series: eight parts, each stood for by its floor.
//
// A leak grows in every part, not in one jump, does not slow down, and is still growing at the end.
// A line's fit (R^2) or a rank test says yes to warm-ups, saw-teeth and steps as well; this does
// not, because each of them fails one of the four.
#pragma once

#include <array>
#include <cstdint>

#include "daemon/detect/floor_history.h"

namespace tidemark::detect {

inline constexpr int kParts = 8;

struct GrowthShape {
  double growth = 0;     // floor of the last part minus floor of the first, bytes
  double per_point = 0;  // growth over the distance of the parts, bytes a point
  double error = 0;      // standard error of per_point, from the spread of the seven rises
  double t = 0;          // per_point / error; large when the seven rises are alike
  double late_to_early =
      0;  // rise of the last three over rise of the first three; below 1 it slows
  double largest_share = 0;       // largest single rise over growth
  double largest_fall = 0;        // from a part to a later one, >= 0
  double median_rise = 0;         // of the seven
  int rises = 0;                  // of seven
  bool grows_throughout = false;  // each quarter's floor above the one before, and the last part's
  double one_time_step = 0;       // taken out of the largest rise, and out of all that is above
  int64_t first_floor = 0;
  int64_t last_floor = 0;
};

// Of eight parts of `part_points` points each, oldest first.
GrowthShape ShapeOf(const std::array<int64_t, kParts>& floors, double part_points);

// Of the newest window at `level`: kParts parts of `blocks` blocks. Needs kParts * blocks blocks.
GrowthShape ShapeOf(const FloorHistory& history, int level, int blocks);

// A straight line through the floors of a window's blocks, for series that wander so far that no
// part is surely above the one before, while the whole window plainly rises.
struct LineFit {
  double growth = 0;          // of the line over the window, bytes
  double residual_range = 0;  // highest minus lowest distance from the line
  double largest_jump = 0;    // between neighbouring blocks
  double late_to_early = 0;   // rise of the thirds' means, second over first
};
LineFit FitLine(const FloorHistory& history, int level, int blocks);

// Of the stretch that lies between `from_back` and `to_back` points before now (from > to).
GrowthShape ShapeOfStretch(const FloorHistory& history, uint64_t from_back, uint64_t to_back);

}  // namespace tidemark::detect
