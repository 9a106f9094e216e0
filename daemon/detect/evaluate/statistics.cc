#include "daemon/detect/evaluate/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tidemark::detect::evaluate {
namespace {

constexpr double kZ = 1.959964;

std::string Format(const char* format, double middle, double low, double high) {
  char text[96];
  std::snprintf(text, sizeof text, format, middle, low, high);
  return text;
}

}  // namespace

std::string Share(uint64_t yes, uint64_t of) {
  if (of == 0) return "-";
  const auto n = static_cast<double>(of);
  const double p = static_cast<double>(yes) / n;
  const double middle = (p + kZ * kZ / (2 * n)) / (1 + kZ * kZ / n);
  const double half = kZ / (1 + kZ * kZ / n) * std::sqrt(p * (1 - p) / n + kZ * kZ / (4 * n * n));
  return Format("%.1f %% (%.1f to %.1f)", 100 * p, 100 * std::max(0.0, middle - half),
                100 * std::min(1.0, middle + half));
}

std::string Median(std::vector<double> values) {
  if (values.empty()) return "-";
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const auto at = [&](double rank) {
    return values[static_cast<size_t>(std::clamp(rank, 0.0, n - 1))];
  };
  const double half = kZ * std::sqrt(n) / 2;
  return Format("%.0f (%.0f to %.0f)", at(std::floor(n / 2)), at(std::floor(n / 2 - half)),
                at(std::ceil(n / 2 + half)));
}

std::string PerThousandHours(uint64_t events, double hours) {
  if (hours <= 0) return "-";
  const auto chi = [](double degrees, double z) {
    if (degrees == 0) return 0.0;
    const double a = 2 / (9 * degrees);
    return degrees * std::pow(1 - a + z * std::sqrt(a), 3);
  };
  const auto k = static_cast<double>(events);
  const double scale = 1000 / hours;
  return Format("%.1f (%.1f to %.1f)", k * scale, chi(2 * k, -kZ) / 2 * scale,
                chi(2 * k + 2, kZ) / 2 * scale);
}

}  // namespace tidemark::detect::evaluate
