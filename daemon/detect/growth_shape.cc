#include "daemon/detect/growth_shape.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tidemark::detect {
namespace {

// A rise this many times the median one is a one-time step on top of the growth.
constexpr double kOneTime = 4.0;

}  // namespace

GrowthShape ShapeOf(const std::array<int64_t, kParts>& floors, double part_points) {
  constexpr int kRises = kParts - 1;
  std::array<double, kRises> rise;
  GrowthShape shape;
  shape.first_floor = floors.front();
  shape.last_floor = floors.back();
  int64_t highest = floors[0];
  for (int i = 0; i < kRises; ++i) {
    rise[i] = static_cast<double>(floors[i + 1]) - static_cast<double>(floors[i]);
    shape.rises += rise[i] > 0;
    highest = std::max(highest, floors[i]);
    shape.largest_fall = std::max(
        shape.largest_fall, static_cast<double>(highest) - static_cast<double>(floors[i + 1]));
  }
  std::array<double, kRises> sorted = rise;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[kRises / 2];
  shape.median_rise = median;
  const int largest = static_cast<int>(std::max_element(rise.begin(), rise.end()) - rise.begin());
  if (median > 0 && rise[largest] > kOneTime * median) {
    shape.one_time_step = rise[largest] - median;
    rise[largest] = median;
  }
  shape.growth = std::accumulate(rise.begin(), rise.end(), 0.0);
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
  shape.largest_share =
      shape.growth > 0 ? *std::max_element(rise.begin(), rise.end()) / shape.growth : 1.0;
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

LineFit FitLine(const FloorHistory& history, int level, int blocks) {
  const int n = kParts * blocks;
  const auto floor = [&](int i) {  // oldest first
    return static_cast<double>(history.At(level, n - 1 - i).floor);
  };
  double mean = 0;
  for (int i = 0; i < n; ++i) mean += floor(i) / n;
  double xy = 0;
  double xx = 0;
  for (int i = 0; i < n; ++i) {
    const double x = i - (n - 1) / 2.0;
    xy += x * (floor(i) - mean);
    xx += x * x;
  }
  const double slope = xy / xx;
  LineFit fit;
  fit.growth = slope * (n - 1);
  double lowest = 0;
  double highest = 0;
  std::array<double, 3> third{};
  for (int i = 0; i < n; ++i) {
    const double residual = floor(i) - mean - slope * (i - (n - 1) / 2.0);
    lowest = std::min(lowest, residual);
    highest = std::max(highest, residual);
    if (i > 0) fit.largest_jump = std::max(fit.largest_jump, floor(i) - floor(i - 1));
    third[static_cast<size_t>(3 * i / n)] += floor(i) * 3 / n;
  }
  fit.residual_range = highest - lowest;
  const double early = third[1] - third[0];
  fit.late_to_early = early > 0 ? (third[2] - third[1]) / early : 0;
  return fit;
}

GrowthShape ShapeOfStretch(const FloorHistory& history, uint64_t from_back, uint64_t to_back) {
  const int level = history.LevelReaching(from_back);
  const int first = static_cast<int>(to_back >> level);
  const int last = std::min(static_cast<int>(from_back >> level), history.Available(level));
  const int blocks = (last - first) / kParts;
  if (blocks < 1) return GrowthShape{};
  std::array<int64_t, kParts> floors;
  for (int part = 0; part < kParts; ++part) {
    floors[kParts - 1 - part] = history.FloorOf(level, first + part * blocks, blocks);
  }
  return ShapeOf(floors, static_cast<double>(blocks) * static_cast<double>(uint64_t{1} << level));
}

}  // namespace tidemark::detect
