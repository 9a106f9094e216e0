#include "daemon/detect/evaluate/labelled_cases.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace tidemark::detect::evaluate {
namespace {

using Json = nlohmann::json;
constexpr double kMib = 1 << 20;

uint64_t HashOf(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

double ValueOf(const std::string& kind, const std::vector<double>& a, double t, double n) {
  const auto at = [&](size_t i) { return a.at(i); };
  if (kind == "const") return at(0);
  if (kind == "lin") {
    return at(0) * std::max(0.0, std::min(t, a.size() > 2 ? at(2) : n) - at(1));
  }
  if (kind == "stairs") {
    const double steps = t >= at(2) ? std::floor((t - at(2)) / at(1)) : 0;
    return at(0) * (a.size() > 3 ? std::min(steps, at(3)) : steps);
  }
  if (kind == "step") return t >= at(1) ? at(0) : 0;
  if (kind == "sat") return at(0) * (1 - std::exp(-std::max(0.0, t - at(2)) / at(1)));
  if (kind == "saw") return at(0) * std::fmod(t, at(1)) / at(1);
  if (kind == "pulse") return t >= at(3) && std::fmod(t - at(3), at(2)) < at(1) ? at(0) : 0;
  if (kind == "ramp") {
    const double u = std::fmod(t - at(3), at(2));
    return t >= at(3) && u < at(1) ? at(0) * (u + 1) / at(1) : 0;
  }
  if (kind == "once_ramp") return at(0) * std::min(1.0, std::max(0.0, (t - at(2)) / at(1)));
  if (kind == "decay") return at(0) * std::exp(-t / at(1));
  throw std::invalid_argument("unknown part " + kind);
}

std::vector<double> Draw(const Json& series, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  const auto normal = [&] {
    return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform());
  };
  const auto n = series["n"].get<size_t>();
  std::vector<double> values(n, 0.0);
  for (const Json& part : series["parts"]) {
    const auto kind = part[0].get<std::string>();
    std::vector<double> a;
    for (size_t i = 1; i < part.size(); ++i) a.push_back(part[i].get<double>());
    double level = 0;
    for (size_t t = 0; t < n; ++t) {
      if (kind == "randstep") {
        if (t % static_cast<size_t>(a.at(1)) == 0) level += uniform() * a.at(0);
        values[t] += level;
      } else if (kind == "noise") {
        values[t] += a.at(0) * normal();
      } else {
        values[t] += ValueOf(kind, a, static_cast<double>(t), static_cast<double>(n));
      }
    }
  }
  return values;
}

bool IsCountMetric(const std::string& metric) {
  return metric == "pin_call_errors" || metric == "fd_count" || metric == "tokens_per_step";
}

}  // namespace

std::string CsvOfCase(const Json& labelled_case, uint64_t seed) {
  std::ostringstream csv;
  csv << "sample,rank,metric,value\n";
  uint64_t stream = HashOf(labelled_case["id"].get<std::string>()) + seed * 1000003;
  for (const Json& series : labelled_case["series"]) {
    const auto metric = series["metric"].get<std::string>();
    const double scale = IsCountMetric(metric) ? 1 : kMib;
    for (const Json& rank : series["ranks"]) {
      const std::vector<double> values = Draw(series, ++stream);
      for (size_t t = 0; t < values.size(); ++t) {
        csv << t << ',' << rank.get<int>() << ',' << metric << ','
            << std::max<long long>(0, std::llround(values[t] * scale)) << '\n';
      }
    }
  }
  return csv.str();
}

}  // namespace tidemark::detect::evaluate
