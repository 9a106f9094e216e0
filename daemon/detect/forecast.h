// When memory will run out, from the slope of a floor, the usual peak above it, and a limit.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/detect/process_judge.h"
#include "daemon/detect/verdict.h"

namespace tidemark::detect {

struct GrowthNow {
  Slope slope;  // bytes per unit
  AlignedTo aligned_to = AlignedTo::kSteps;
  double units_per_second = 0;  // 0 = unknown
  uint64_t unit_now = 0;
  int64_t peak_over_floor_bytes = 0;  // what the usual step needs on top of its floor
};

// Nothing when the slope is not positive or the limit is unknown (capacity <= 0). `used_floor` is
// the smallest recent value of the figure that the limit is compared with. No headroom left gives
// zero units, never less.
std::optional<OutOfMemoryForecast> ForecastOutOfMemory(const GrowthNow& growth,
                                                       const LimitPoint& limit, int64_t used_floor);

}  // namespace tidemark::detect
