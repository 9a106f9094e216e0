#include "daemon/detect/analyze.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "daemon/detect/metric_kind.h"

namespace tidemark::detect {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;
const std::string kHeader = "sample,rank,metric,value\n";

std::string ErrorOf(const std::string& text) {
  std::istringstream in(text);
  const auto analysis = AnalyzeStream(in, "f.csv");
  return analysis.ok() ? "judged" : analysis.error().ToString();
}

Analysis Judged(const std::string& text) {
  std::istringstream in(text);
  auto analysis = AnalyzeStream(in, "f.csv");
  EXPECT_TRUE(analysis.ok()) << analysis.error().ToString();
  return analysis.ok() ? *analysis : Analysis{};
}

// `value(t)` in MiB, for n samples.
template <typename F>
std::string Rows(const std::string& metric, int rank, int n, F value) {
  std::ostringstream rows;
  for (int t = 0; t < n; ++t) {
    rows << t << ',' << rank << ',' << metric << ','
         << static_cast<int64_t>(value(t) * static_cast<double>(kMiB)) << '\n';
  }
  return rows.str();
}

struct BadFile {
  const char* name;
  std::string text;
  const char* line;
  const char* why;
};

class BadInputTest : public testing::TestWithParam<BadFile> {};

TEST_P(BadInputTest, GetsAMessageWithTheLineAndNoVerdict) {
  const std::string error = ErrorOf(GetParam().text);
  EXPECT_THAT(error, HasSubstr(GetParam().line));
  EXPECT_THAT(error, HasSubstr(GetParam().why));
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadInputTest,
    testing::Values(
        BadFile{"Empty", "", "line 1", "empty"},
        BadFile{"HeaderOnly", kHeader, "line 2", "no samples"},
        BadFile{"WrongHeader", "time,value\n1,2\n", "line 1", "expected the header"},
        BadFile{"CutInALine", kHeader + "0,0,gpu_live,5\n1,0,gpu_li", "line 3", "middle of a line"},
        BadFile{"CutInANumber", kHeader + "0,0,gpu_live,500\n1,0,gpu_live,50", "line 3",
                "middle of a line"},
        BadFile{"Unsorted", kHeader + "5,0,m,1\n4,0,m,1\n", "line 3", "unsorted"},
        BadFile{"Duplicate", kHeader + "5,0,m,1\n5,0,m,1\n", "line 3", "duplicate"},
        BadFile{"NotANumber", kHeader + "0,0,m,nan\n", "line 2", "not finite"},
        BadFile{"Infinite", kHeader + "0,0,m,inf\n", "line 2", "not finite"},
        BadFile{"Negative", kHeader + "0,0,m,-1\n", "line 2", "negative"},
        BadFile{"Huge", kHeader + "0,0,m,9e30\n", "line 2", "more than any machine"},
        BadFile{"OutOfRange", kHeader + "0,0,m,1e999\n", "line 2", "out of range"},
        BadFile{"TextForAValue", kHeader + "0,0,m,12MiB\n", "line 2", "no number"},
        BadFile{"NegativeSample", kHeader + "-1,0,m,1\n", "line 2", "no sample number"},
        BadFile{"AbsurdRank", kHeader + "0,99999999,m,1\n", "line 2", "no rank"},
        BadFile{"MissingField", kHeader + "0,0,1\n", "line 2", "found 3"},
        BadFile{"BlankLine", kHeader + "0,0,m,1\n\n", "line 3", "found 0"},
        BadFile{"ExtraField", kHeader + "0,0,m,1,2\n", "line 2", "found 5"},
        BadFile{"NoName", kHeader + "0,0,,1\n", "line 2", "name"},
        BadFile{"CutJson", "{\"data\":\n{\"result\":[", "line 2", "not complete JSON"},
        BadFile{"OtherJson", "{\"status\":\"error\"}", "line 1", "data.result"},
        BadFile{"JsonNaN", R"({"data":{"result":[{"metric":{},"values":[[1,"NaN"]]}]}})",
                "series 1, value 1", "not finite"},
        BadFile{"JsonUnsorted", R"({"data":{"result":[{"metric":{},"values":[[2,"1"],[1,"1"]]}]}})",
                "series 1, value 2", "unsorted"},
        BadFile{"JsonWithoutSamples", R"({"data":{"result":[]}})", "line 1", "no samples"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(AnalyzeTest, AnUnreadableFileIsSaidAndEndsWithStatus2) {
  std::ostringstream out, err;
  EXPECT_EQ(RunAnalyze({"/nonexistent/file.csv", true, false}, out, err), 2);
  EXPECT_THAT(err.str(), HasSubstr("/nonexistent/file.csv"));
  EXPECT_EQ(out.str(), "");
}

TEST(AnalyzeTest, AFewSamplesAreTooFewForAVerdict) {
  const Analysis analysis =
      Judged(kHeader + Rows("gpu_live", 0, 6, [](int t) { return 100.0 + 50 * t; }));
  EXPECT_EQ(analysis.verdict, FileVerdict::kNotLeak);
  EXPECT_EQ(analysis.state, VerdictState::kWarmingUp);
}

TEST(AnalyzeTest, GrowthOnASubsetOfRanksNamesTheSubset) {
  std::string text = kHeader;
  for (int rank = 0; rank < 4; ++rank) {
    text += Rows("gpu_live", rank, 600,
                 [&](int t) { return 2000.0 + (t * 7 % 5) + (rank % 2 == 1 ? 2.0 * t : 0.0); });
  }
  const Analysis analysis = Judged(text);
  EXPECT_EQ(analysis.verdict, FileVerdict::kLeak);
  EXPECT_THAT(analysis.ranks, ElementsAre(1, 3));
  EXPECT_NEAR(analysis.slope.per_unit, 2.0 * kMiB, 0.05 * kMiB);
  EXPECT_LE(analysis.slope.low, 2.0 * kMiB);
  EXPECT_GE(analysis.slope.high, 2.0 * kMiB);
}

TEST(AnalyzeTest, AConstantSkewBetweenRanksIsNoLeak) {
  std::string text = kHeader;
  for (int rank = 0; rank < 4; ++rank) {
    text += Rows("gpu_live", rank, 600,
                 [&](int t) { return (rank == 0 ? 70000.0 : 47000.0) + (t * 7 % 5); });
  }
  EXPECT_EQ(Judged(text).verdict, FileVerdict::kNotLeak);
}

TEST(AnalyzeTest, MemoryThatFollowsTheWorkIsNoLeak) {
  const Analysis analysis =
      Judged(kHeader + Rows("gpu_live", 0, 800, [](int t) { return 9000.0 + 4 * t + t % 3; }) +
             Rows("tokens_per_step", 0, 800, [](int t) { return (1024.0 + 2 * t) / kMiB; }));
  EXPECT_EQ(analysis.verdict, FileVerdict::kNotLeak);
  EXPECT_EQ(analysis.cause, Cause::kWorkloadGrowth);
}

TEST(AnalyzeTest, ContainerGrowthBesideFlatAnonIsPageCache) {
  const Analysis analysis =
      Judged(kHeader + Rows("cgroup_current", 0, 800, [](int t) { return 9000.0 + 9 * t; }) +
             Rows("cgroup_anon", 0, 800, [](int t) { return 5000.0 + t % 3; }));
  EXPECT_EQ(analysis.verdict, FileVerdict::kNotLeak);
  EXPECT_EQ(analysis.cause, Cause::kPageCache);
}

TEST(AnalyzeTest, ReservedGrowthBesideFlatLiveBytesIsFragmentation) {
  const Analysis analysis =
      Judged(kHeader + Rows("gpu_reserved", 0, 800, [](int t) { return 9000.0 + 5 * t; }) +
             Rows("gpu_live", 0, 800, [](int t) { return 5000.0 + t % 3; }));
  EXPECT_EQ(analysis.verdict, FileVerdict::kNotLeakAlert);
  EXPECT_EQ(analysis.cause, Cause::kFragmentation);
}

TEST(AnalyzeTest, ADecliningLevelIsNoLeak) {
  EXPECT_EQ(
      Judged(kHeader + Rows("host_anon", 0, 800, [](int t) { return 9000.0 - 5 * t; })).verdict,
      FileVerdict::kNotLeak);
}

TEST(AnalyzeTest, TheDetectorOnlyLooksBackwards) {
  // What follows after the flag must not move it.
  const auto leak = [](int t) { return 4000.0 + 3.0 * t + (t * 7 % 5); };
  const Analysis part = Judged(kHeader + Rows("gpu_live", 0, 700, leak));
  const Analysis whole = Judged(kHeader + Rows("gpu_live", 0, 1400, leak));
  ASSERT_TRUE(part.first_flagged_sample.has_value());
  EXPECT_EQ(part.first_flagged_sample, whole.first_flagged_sample);
  EXPECT_EQ(part.confirmed_sample, whole.confirmed_sample);
}

TEST(AnalyzeTest, APrometheusRangeQueryIsJudgedByItsTimes) {
  nlohmann::json values = nlohmann::json::array();
  for (int t = 0; t < 600; ++t) {
    values.push_back({1.7e9 + 15 * t, std::to_string((2000ll + 3 * t) * kMiB)});
  }
  nlohmann::json answer;
  answer["status"] = "success";
  answer["data"]["resultType"] = "matrix";
  answer["data"]["result"] = {
      {{"metric", {{"__name__", "process_resident_memory_bytes"}, {"rank", "5"}}},
       {"values", values}}};
  const Analysis analysis = Judged(answer.dump());
  EXPECT_EQ(analysis.verdict, FileVerdict::kLeak);
  EXPECT_THAT(analysis.ranks, ElementsAre(5));
  EXPECT_NEAR(analysis.slope.per_unit, 3.0 * kMiB, 0.01 * kMiB);
}

TEST(AnalyzeTest, TheJsonIsTheDocumentedObject) {
  const std::string path = testing::TempDir() + "/analyze_json.csv";
  {
    std::ofstream file(path);
    file << kHeader << Rows("gpu_live", 0, 600, [](int t) { return 2000.0 + 2.0 * t; });
  }
  std::ostringstream out, err;
  EXPECT_EQ(RunAnalyze({path, true, true}, out, err), 1);
  const auto json = nlohmann::json::parse(out.str());
  EXPECT_EQ(json["verdict"], "leak");
  EXPECT_EQ(json["class"], "tensors_kept");
  EXPECT_EQ(json["metric"], "gpu_live");
  EXPECT_EQ(json["interval"].size(), 2u);
  EXPECT_TRUE(json["first_flagged_sample"].is_number_unsigned());
  EXPECT_FALSE(json["evidence"].empty());
}

TEST(MetricKindTest, NamesOfOtherToolsAreUnderstood) {
  EXPECT_EQ(KindOfMetric("DCGM_FI_DEV_FB_USED"), MetricKind::kDeviceWide);
  EXPECT_EQ(BytesPerUnit("DCGM_FI_DEV_FB_USED"), 1048576.0);
  EXPECT_EQ(KindOfMetric("container_memory_rss"), MetricKind::kContainerAnon);
  EXPECT_EQ(KindOfMetric("container_memory_working_set_bytes"), MetricKind::kContainerAll);
  EXPECT_EQ(KindOfMetric("process_resident_memory_bytes"), MetricKind::kResident);
  EXPECT_EQ(KindOfMetric("something_else"), MetricKind::kOther);
}

}  // namespace
}  // namespace tidemark::detect
