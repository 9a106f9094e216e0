// What the judgement has to reach, on fewer jobs than build/bin/evaluate runs (docs/measurements/
// has the full figures). The seeds are fixed, so a failure is a change of behaviour, not of luck.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "daemon/detect/evaluate/baselines.h"
#include "daemon/detect/evaluate/families.h"
#include "daemon/detect/evaluate/trial.h"

namespace tidemark::detect::evaluate {
namespace {

constexpr int kJobs = 20;

Trial RunOne(std::string_view family, int i, double rate, bool live) {
  FamilyOptions options;
  options.rate_mib = rate;
  const auto seed = static_cast<uint64_t>(7700 + i);
  const Job job = DrawJob(family, seed, options);
  return live ? RunLive(job, seed) : RunSeries(job, {});
}

struct FalseAlarms {
  int all = 0;
  int worst_family = 0;
};

FalseAlarms CountFalseAlarms(bool live, int jobs) {
  FalseAlarms count;
  for (std::string_view family : HealthyFamilies()) {
    int here = 0;
    for (int i = 0; i < jobs; ++i) here += RunOne(family, i, 0, live).confirmed_at_end;
    count.all += here;
    count.worst_family = std::max(count.worst_family, here);
  }
  return count;
}

TEST(EvaluateTest, ABareSeriesEndsWithFewFalseAlarms) {
  const FalseAlarms count = CountFalseAlarms(false, kJobs);
  EXPECT_LE(count.all, 0.03 * kJobs * static_cast<double>(HealthyFamilies().size()));
  EXPECT_LE(count.worst_family, 0.15 * kJobs);
}

TEST(EvaluateTest, WithClassesAndSitesThereAreFewerStill) {
  const FalseAlarms count = CountFalseAlarms(true, 10);
  EXPECT_LE(count.all, 1);
}

class RecallTest : public testing::TestWithParam<std::string> {};

TEST_P(RecallTest, HalfAMebibyteAStepIsFoundNearlyAlways) {
  int found = 0;
  for (int i = 0; i < kJobs; ++i) found += RunOne(GetParam(), i, 0.5, false).confirmed_at_end;
  EXPECT_GE(found, 0.95 * kJobs);
}

TEST_P(RecallTest, ATenthOfAMebibyteAStepIsFoundInFourOfFive) {
  int found = 0;
  for (int i = 0; i < kJobs; ++i) found += RunOne(GetParam(), i, 0.1, false).confirmed_at_end;
  EXPECT_GE(found, 0.8 * kJobs);
}

INSTANTIATE_TEST_SUITE_P(LeakFamilies, RecallTest, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (std::string_view family : LeakFamilies())
                             names.emplace_back(family);
                           return names;
                         }()),
                         [](const auto& info) { return info.param; });

TEST(EvaluateTest, WithSitesASteadyLeakIsSuspectWithin30StepsAndConfirmedWithin120) {
  std::vector<double> suspect;
  std::vector<double> confirmed;
  for (const char* family : {"linear", "linear_warm_up", "linear_saw_tooth", "linear_mixed",
                             "linear_bounded_walk", "late", "segments"}) {
    for (int i = 0; i < 5; ++i) {
      const Trial trial = RunOne(family, i, 1.0, true);
      ASSERT_TRUE(trial.confirmed_at_end) << family << " " << i;
      ASSERT_TRUE(trial.suspect_after && trial.confirmed_after);
      EXPECT_TRUE(trial.right_site.value_or(false)) << family << " " << i;
      suspect.push_back(static_cast<double>(*trial.suspect_after));
      confirmed.push_back(static_cast<double>(*trial.confirmed_after));
    }
  }
  const auto median = [](std::vector<double>& values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
  };
  EXPECT_LE(median(suspect), 30);
  EXPECT_LE(median(confirmed), 120);
}

TEST(EvaluateTest, TheSameSeedDrawsTheSameJob) {
  const Job a = DrawJob("linear_mixed", 5, {});
  const Job b = DrawJob("linear_mixed", 5, {});
  const Job c = DrawJob("linear_mixed", 6, {});
  EXPECT_EQ(SumOf(a), SumOf(b));
  EXPECT_NE(SumOf(a), SumOf(c));
}

TEST(BaselinesTest, SayYesToALineAndNoToNoise) {
  std::vector<int64_t> line;
  std::vector<int64_t> saw;
  for (int64_t t = 0; t < 1000; ++t) {
    line.push_back(1000 + 10 * t);
    saw.push_back(1000 + t % 2);
  }
  EXPECT_TRUE(LeastSquaresSaysLeak(line));
  EXPECT_TRUE(MannKendallSaysLeak(line));
  EXPECT_FALSE(LeastSquaresSaysLeak(saw));
  EXPECT_FALSE(MannKendallSaysLeak(saw));
  EXPECT_FALSE(MannKendallSaysLeak(std::vector<int64_t>(100, 7)));
}

}  // namespace
}  // namespace tidemark::detect::evaluate
