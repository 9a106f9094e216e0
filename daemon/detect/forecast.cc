#include "daemon/detect/forecast.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tidemark::detect {

std::optional<OutOfMemoryForecast> ForecastOutOfMemory(const GrowthNow& growth,
                                                       const LimitPoint& limit,
                                                       int64_t used_floor) {
  if (!(growth.slope.per_unit > 0) || limit.capacity_bytes <= 0) return std::nullopt;
  OutOfMemoryForecast forecast;
  forecast.limit_name = limit.name;
  forecast.limit_bytes = limit.capacity_bytes;
  forecast.headroom_bytes =
      limit.capacity_bytes - used_floor - std::max<int64_t>(0, growth.peak_over_floor_bytes);
  const double room = std::max(0.0, static_cast<double>(forecast.headroom_bytes));
  const auto units = [&](double slope) {
    return slope > 0 ? room / slope : std::numeric_limits<double>::infinity();
  };
  forecast.units_left = units(growth.slope.per_unit);
  forecast.units_left_low = units(growth.slope.high);
  forecast.units_left_high = units(growth.slope.low);
  // Beyond this a step number is no forecast, and the sum could overflow.
  constexpr double kFarthest = 1e15;
  if (growth.aligned_to == AlignedTo::kSteps && forecast.units_left < kFarthest) {
    forecast.at_step = growth.unit_now + static_cast<uint64_t>(std::llround(forecast.units_left));
  }
  if (growth.aligned_to == AlignedTo::kSeconds) {
    forecast.seconds_left = forecast.units_left;
  } else if (growth.units_per_second > 0) {
    forecast.seconds_left = forecast.units_left / growth.units_per_second;
  }
  return forecast;
}

}  // namespace tidemark::detect
