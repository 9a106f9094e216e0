#include "daemon/detect/job_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tidemark::detect {
namespace {

using testing::ElementsAre;
constexpr int64_t kMiB = 1 << 20;

Verdict Leak(double slope, uint64_t site) {
  Verdict verdict;
  verdict.state = VerdictState::kConfirmed;
  verdict.cause = Cause::kTensorsKept;
  verdict.memory_class = MemoryClass::kFwLive;
  verdict.slope = {slope, slope * 0.9, slope * 1.1};
  verdict.site = SiteBlame{site, 1.0, slope, 0, 0, 0};
  return verdict;
}

struct Job {
  std::vector<std::vector<Verdict>> verdicts;
  std::vector<std::vector<SeriesPoint>> totals;

  std::vector<JobVerdict> Judge() const {
    std::vector<RankState> ranks;
    for (size_t i = 0; i < verdicts.size(); ++i) {
      ranks.push_back({static_cast<int32_t>(i), "", verdicts[i], totals[i], true});
    }
    return JudgeJob(ranks);
  }
};

// The totals of one device class, in MiB by rank.
std::vector<std::vector<SeriesPoint>> Totals(std::vector<int64_t> mib) {
  std::vector<std::vector<SeriesPoint>> totals;
  for (size_t i = 0; i < mib.size(); ++i) {
    totals.push_back({{{MemoryClass::kDevice, static_cast<int32_t>(i)}, mib[i] * kMiB, 0}});
  }
  return totals;
}

const JobVerdict* WithCause(const std::vector<JobVerdict>& found, Cause cause) {
  for (const JobVerdict& one : found) {
    if (one.verdict.cause == cause) return &one;
  }
  return nullptr;
}

TEST(JobJudgeTest, ALeakOfEveryRankIsOneVerdictOfTheJob) {
  const Job job{{{Leak(8, 7)}, {Leak(9, 7)}, {Leak(10, 7)}}, Totals({100, 90, 80})};
  const auto found = job.Judge();
  const JobVerdict* leak = WithCause(found, Cause::kTensorsKept);
  ASSERT_NE(leak, nullptr);
  EXPECT_TRUE(leak->job_wide);
  EXPECT_EQ(leak->spread, RankSpread::kAllRanks);
  EXPECT_THAT(leak->verdict.ranks, ElementsAre(0, 1, 2));
  EXPECT_DOUBLE_EQ(leak->verdict.slope.per_unit, 9);
  EXPECT_EQ(leak->verdict.site->site_id, 7u);
}

TEST(JobJudgeTest, ALeakOfSomeRanksNamesThem) {
  const Job job{{{}, {Leak(8, 7)}, {}, {Leak(8, 7)}}, Totals({100, 90, 80, 70})};
  const auto found = job.Judge();
  const JobVerdict* leak = WithCause(found, Cause::kTensorsKept);
  ASSERT_NE(leak, nullptr);
  EXPECT_FALSE(leak->job_wide);
  EXPECT_EQ(leak->spread, RankSpread::kSubset);
  EXPECT_THAT(leak->verdict.ranks, ElementsAre(1, 3));
}

TEST(JobJudgeTest, OneRankFarFromItsPeersIsAnOutlierAndNoLeak) {
  const Job job{{{}, {}, {}, {}}, Totals({70000, 47000, 47010, 46990})};
  const auto found = job.Judge();
  const JobVerdict* outlier = WithCause(found, Cause::kRankOutlier);
  ASSERT_NE(outlier, nullptr);
  EXPECT_THAT(outlier->verdict.ranks, ElementsAre(0));
  EXPECT_FALSE(RaisesLeakAlert(outlier->verdict));
}

TEST(JobJudgeTest, EqualBytesOnEveryRankAreSaidToBeEqualAndNoMore) {
  const Job job{{{}, {}, {}, {}}, Totals({9216, 9216, 9216, 9216})};
  const auto found = job.Judge();
  const JobVerdict* same = WithCause(found, Cause::kSameBytesOnEveryRank);
  ASSERT_NE(same, nullptr);
  EXPECT_EQ(same->verdict.state, VerdictState::kSteady);
}

TEST(JobJudgeTest, RanksThatStillLoadAreNotCompared) {
  const auto totals = Totals({70000, 10});
  const std::vector<RankState> ranks = {{0, "", {}, totals[0], true},
                                        {1, "", {}, totals[1], false}};
  EXPECT_TRUE(JudgeJob(ranks).empty());
}

TEST(JobJudgeTest, RolesAreNotComparedWithEachOther) {
  const auto totals = Totals({70000, 70000, 10, 10});
  const std::vector<RankState> ranks = {{0, "trainer", {}, totals[0], true},
                                        {1, "trainer", {}, totals[1], true},
                                        {2, "loader", {}, totals[2], true},
                                        {3, "loader", {}, totals[3], true}};
  const auto found = JudgeJob(ranks);
  EXPECT_EQ(WithCause(found, Cause::kRankOutlier), nullptr);
  EXPECT_EQ(WithCause(found, Cause::kConstantSkew), nullptr);
  EXPECT_EQ(found.size(), 2u);
}

TEST(JobJudgeTest, NoRanksAreNoVerdict) { EXPECT_TRUE(JudgeJob({}).empty()); }

}  // namespace
}  // namespace tidemark::detect
