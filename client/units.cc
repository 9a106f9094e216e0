#include "client/units.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>

namespace tidemark::client {
namespace {

constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};

template <typename... Args>
std::string Print(const char* format, Args... args) {
  char text[64];
  std::snprintf(text, sizeof(text), format, args...);
  return text;
}

// The largest unit of which `magnitude` is at least one; 999.5 and more of a unit would print as
// four digits, which is fine up to 1023.
size_t UnitOf(double magnitude) {
  size_t unit = 0;
  while (magnitude >= 1024 && unit + 1 < kUnits.size()) {
    magnitude /= 1024;
    ++unit;
  }
  return unit;
}

double Scale(size_t unit) { return std::exp2(10.0 * static_cast<double>(unit)); }

}  // namespace

std::string FormatBytes(int64_t bytes) {
  const size_t unit = UnitOf(std::abs(static_cast<double>(bytes)));
  const double value = static_cast<double>(bytes) / Scale(unit);
  if (value == std::trunc(value)) return Print("%.0f %s", value, kUnits[unit]);
  const double magnitude = std::abs(value);
  const int decimals = magnitude < 10 ? 2 : magnitude < 100 ? 1 : 0;
  return Print("%.*f %s", decimals, value, kUnits[unit]);
}

std::string FormatDelta(int64_t bytes) { return (bytes > 0 ? "+" : "") + FormatBytes(bytes); }

std::string FormatBlocks(int64_t count, uint64_t min_block_bytes, uint64_t max_block_bytes) {
  if (count == 0) return "none";
  const std::string number = FormatCount(static_cast<uint64_t>(std::max<int64_t>(count, 0)));
  const std::string largest = FormatBytes(static_cast<int64_t>(max_block_bytes));
  if (min_block_bytes == max_block_bytes) return number + " x " + largest;
  const std::string smallest = FormatBytes(static_cast<int64_t>(min_block_bytes));
  return number + (count == 1 ? " block of " : " blocks of ") + smallest + " to " + largest;
}

std::string FormatSlope(double middle, double low, double high, const std::string& per) {
  const size_t unit = UnitOf(std::max(std::abs(middle), 1.0));
  const double scale = Scale(unit);
  const int decimals = unit == 0 ? 0 : std::abs(middle / scale) < 100 ? 1 : 0;
  return Print("%+.*f %s/", decimals, middle / scale, kUnits[unit]) + per +
         Print(" (%.*f to %.*f)", decimals, low / scale, decimals, high / scale);
}

std::string FormatCount(uint64_t count) {
  std::string digits = std::to_string(count);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return digits;
}

std::string FormatDuration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 60) return Print("%" PRIu64 " s", whole);
  const uint64_t hours = whole / 3600;
  const uint64_t minutes = whole / 60 % 60;
  if (hours == 0) return Print("%02" PRIu64 ":%02" PRIu64, minutes, whole % 60);
  if (hours < 48) return Print("%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, hours, minutes, whole % 60);
  return Print("%" PRIu64 " d %02" PRIu64 ":%02" PRIu64, hours / 24, hours % 24, minutes);
}

std::string FormatShare(double share) {
  if (share > 0 && share < 0.01) return "<1 %";
  return Print("%.0f %%", share * 100);
}

std::string FormatRanges(std::vector<int32_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::string text;
  for (size_t first = 0; first < numbers.size();) {
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ",";
    text += std::to_string(numbers[first]);
    if (last == first + 1) text += "," + std::to_string(numbers[last]);
    if (last > first + 1) text += "-" + std::to_string(numbers[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace tidemark::client
