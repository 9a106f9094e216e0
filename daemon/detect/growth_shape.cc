#include "daemon/detect/growth_shape.h"

#include <algorithm>
#include <cmath>

namespace tidemark::detect {

GrowthShape ShapeOf(const std::array<int64_t, kParts>& floors, double part_points) {
  constexpr int kRises = kParts - 1;
  std::array<double, kRises> rise;
  GrowthShape shape;
  shape.first_floor = floors.front();
  shape.last_floor = floors.back();
  shape.growth = static_cast<double>(floors.back()) - static_cast<double>(floors.front());
  double largest = 0;
  int64_t highest = floors[0];
  for (int i = 0; i < kRises; ++i) {
    rise[i] = static_cast<double>(floors[i + 1]) - static_cast<double>(floors[i]);
    shape.rises += rise[i] > 0;
    largest = std::max(largest, rise[i]);
    highest = std::max(highest, floors[i]);
    shape.largest_fall = std::max(
        shape.largest_fall, static_cast<double>(highest) - static_cast<double>(floors[i + 1]));
  }
  const double mean = shape.growth / kRises;
  double squares = 0;
  for (double r : rise) squares += (r - mean) * (r - mean);
  // Taken as independent the rises overstate the error for white noise (neighbours share a floor)
  // and state it rightly for a random walk: the cautious side.
  const double error = std::sqrt(squares / (kRises - 1) / kRises);
  shape.per_point = mean / part_points;
  shape.error = error / part_points;
  // A noiseless series has no spread; a thousandth of the mean keeps t finite.
  shape.t = mean / std::max(error, std::max(std::fabs(mean) * 1e-3, 1e-9));
  const double early = rise[0] + rise[1] + rise[2];
  const double late = rise[4] + rise[5] + rise[6];
  shape.late_to_early = early > 0 ? late / early : (late > 0 ? 10.0 : 0.0);
  shape.largest_share = shape.growth > 0 ? largest / shape.growth : 1.0;
  int64_t before = std::min(floors[0], floors[1]);
  shape.grows_throughout = rise[kRises - 1] + rise[kRises - 2] > mean / 2;
  for (int quarter = 1; quarter < kParts / 2; ++quarter) {
    const int64_t floor = std::min(floors[2 * quarter], floors[2 * quarter + 1]);
    shape.grows_throughout = shape.grows_throughout && floor > before;
    before = floor;
  }
  return shape;
}

GrowthShape ShapeOf(const FloorHistory& history, int level, int blocks) {
  std::array<int64_t, kParts> floors;
  for (int part = 0; part < kParts; ++part) {
    floors[kParts - 1 - part] = history.FloorOf(level, part * blocks, blocks);
  }
  return ShapeOf(floors, static_cast<double>(blocks) * static_cast<double>(uint64_t{1} << level));
}

}  // namespace tidemark::detect
