// The labelled cases of tests/fixtures/cases, five seeds each, through the same call as
// `tidemark analyze FILE --json`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "daemon/detect/analyze.h"
#include "daemon/detect/evaluate/labelled_cases.h"

namespace tidemark::detect {
namespace {

using Json = nlohmann::json;
constexpr int kSeeds = 5;

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
    std::ofstream(path) << evaluate::CsvOfCase(kase, static_cast<uint64_t>(seed));
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
