// The labelled cases of tests/fixtures/cases, five seeds each, through the same call as
// `tidemark analyze FILE --json`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "daemon/detect/analyze.h"

namespace tidemark::detect {
namespace {

using Json = nlohmann::json;
constexpr int kSeeds = 5;
constexpr double kMib = 1 << 20;

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
  ADD_FAILURE() << "unknown part " << kind;
  return 0;
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

std::string CsvOf(const Json& kase, int seed) {
  std::ostringstream csv;
  csv << "sample,rank,metric,value\n";
  uint64_t stream = std::hash<std::string>{}(kase["id"]) + static_cast<uint64_t>(seed) * 1000003;
  for (const Json& series : kase["series"]) {
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

Json Cases() {
  std::ifstream in(std::string(TIDEMARK_FIXTURES) + "/cases/cases.json");
  return Json::parse(in);
}

std::vector<std::string> CasesWithSeries() {
  std::vector<std::string> ids;
  for (const Json& kase : Cases()) {
    if (!kase["series"].empty()) ids.push_back(kase["id"]);
  }
  return ids;
}

class CaseTest : public testing::TestWithParam<std::string> {};

TEST_P(CaseTest, IsJudgedAsItsLabelSays) {
  Json kase;
  for (const Json& one : Cases()) {
    if (one["id"] == GetParam()) kase = one;
  }
  const auto label = kase["expected_verdict"].get<std::string>();
  const bool must_leak = !kase["suggested_alert_by_sample"].is_null();
  const auto path = std::filesystem::path(testing::TempDir()) / ("case_" + GetParam() + ".csv");
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::ofstream(path) << CsvOf(kase, seed);
    std::ostringstream out, err;
    ASSERT_EQ(RunAnalyze({path.string(), true, false}, out, err), 0) << err.str();
    const Json answer = Json::parse(out.str());
    SCOPED_TRACE(kase["title"].get<std::string>() + ", seed " + std::to_string(seed) + ": " +
                 out.str());
    if (must_leak) {
      EXPECT_EQ(answer["verdict"], "leak");
      EXPECT_FALSE(answer["ranks"].empty());
      EXPECT_GT(answer["slope_bytes_per_sample"].get<double>(), 0);
      EXPECT_FALSE(answer["first_flagged_sample"].is_null());
    } else if (label != "leak") {
      EXPECT_NE(answer["verdict"], "leak");
    }
  }
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Labelled, CaseTest, testing::ValuesIn(CasesWithSeries()),
                         [](const auto& info) { return info.param; });

TEST(CasesTest, AllLabelledCasesAreThere) { EXPECT_EQ(Cases().size(), 45u); }

}  // namespace
}  // namespace tidemark::detect
