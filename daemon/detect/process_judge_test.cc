#include "daemon/detect/process_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tidemark::detect {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kSecond = 1'000'000'000;
constexpr SeriesId kLive{MemoryClass::kFwLive, 0};

class FakeSites : public SiteTable {
 public:
  std::vector<SitePoint> rows;
  size_t size() const override { return rows.size(); }
  SitePoint At(size_t row) const override { return rows[row]; }
};

// A site that keeps `bytes` of every step in (from, now].
SitePoint KeepsEachStep(uint64_t id, int64_t bytes, uint64_t from, uint64_t now) {
  SitePoint site;
  site.site_id = id;
  site.id = kLive;
  while ((now >> site.cohort_shift) >= kCohorts) ++site.cohort_shift;
  for (uint64_t step = from + 1; step <= now; ++step) {
    site.cohort_bytes[step >> site.cohort_shift] += bytes;
    site.live_bytes += bytes;
    ++site.live_count;
  }
  return site;
}

const Verdict& Only(const std::vector<Verdict>& verdicts) {
  EXPECT_EQ(verdicts.size(), 1u);
  return verdicts.front();
}

TEST(ProcessJudgeTest, ConfirmsAStepLeakAndNamesItsSite) {
  ProcessJudge judge;
  FakeSites sites;
  Verdict verdict;
  for (uint64_t step = 1; step <= 120; ++step) {
    const std::vector<StepPoint> steps = {
        {step,
         static_cast<int64_t>(step) * kSecond,
         {{kLive, 1000 * kMiB + static_cast<int64_t>(step) * 8 * kMiB, 1500 * kMiB}}}};
    sites.rows = {KeepsEachStep(7, 8 * kMiB, 0, step), KeepsEachStep(9, 512 * kMiB, 0, 1)};
    const std::vector<LimitPoint> limits = {
        {"device 0", 0, false, 4000 * kMiB, 1000 * kMiB + static_cast<int64_t>(step) * 8 * kMiB}};
    ProcessTick tick;
    tick.now_ns = static_cast<int64_t>(step) * kSecond;
    tick.rank = 3;
    tick.new_steps = steps;
    tick.sites = &sites;
    tick.limits = limits;
    tick.current_step = step;
    verdict = Only(judge.Judge(tick));
  }
  EXPECT_EQ(verdict.state, VerdictState::kConfirmed);
  EXPECT_EQ(verdict.cause, Cause::kTensorsKept);
  EXPECT_TRUE(RaisesLeakAlert(verdict));
  EXPECT_THAT(verdict.ranks, testing::ElementsAre(3));
  EXPECT_NEAR(verdict.slope.per_unit, 8.0 * kMiB, 0.05 * kMiB);
  EXPECT_LE(verdict.slope.low, 8.0 * kMiB);
  EXPECT_GE(verdict.slope.high, 8.0 * kMiB);
  ASSERT_TRUE(verdict.site.has_value());
  EXPECT_EQ(verdict.site->site_id, 7u);
  EXPECT_NEAR(verdict.site->share_of_slope, 1.0, 0.05);
  ASSERT_TRUE(verdict.forecast.has_value());
  EXPECT_EQ(verdict.forecast->limit_name, "device 0");
  EXPECT_GT(verdict.forecast->units_left, 0);
}

// After 900 steps of a series of 8000 MiB that grows by 2 MiB a step, beside one site of so many
// bytes, which stays as large as it is and reallocates all of it every step.
VerdictState AfterALeakBeside(int64_t site_bytes) {
  ProcessJudge judge;
  FakeSites sites;
  for (uint64_t step = 1; step <= 900; ++step) {
    const int64_t live = 8000 * kMiB + static_cast<int64_t>(step) * 2 * kMiB;
    const std::vector<StepPoint> steps = {
        {step, static_cast<int64_t>(step) * kSecond, {{kLive, live, live}}}};
    sites.rows = {KeepsEachStep(9, site_bytes, step - 1, step)};
    ProcessTick tick;
    tick.now_ns = static_cast<int64_t>(step) * kSecond;
    tick.new_steps = steps;
    tick.sites = &sites;
    tick.current_step = step;
    judge.Judge(tick);
  }
  return judge.verdicts()[0].state;
}

TEST(ProcessJudgeTest, GrowthThatNoGenerationRetainsIsHeldAtSuspect) {
  EXPECT_EQ(AfterALeakBeside(8000 * kMiB), VerdictState::kSuspect);
}

TEST(ProcessJudgeTest, ATableThatCoversLittleCannotAcquit) {
  EXPECT_EQ(AfterALeakBeside(kMiB), VerdictState::kConfirmed);
}

// After so many steps of framework memory that grows by 2 MiB a step, within driver memory that
// grows with it.
std::vector<Verdict> AfterALeakInTwoLayers(uint64_t steps_taken) {
  ProcessJudge judge;
  for (uint64_t step = 1; step <= steps_taken; ++step) {
    const int64_t live = 1000 * kMiB + static_cast<int64_t>(step) * 2 * kMiB;
    const std::vector<StepPoint> steps = {
        {step,
         static_cast<int64_t>(step) * kSecond,
         {{{MemoryClass::kDevice, 0}, live + 500 * kMiB, 0}, {kLive, live, live}}}};
    ProcessTick tick;
    tick.now_ns = static_cast<int64_t>(step) * kSecond;
    tick.new_steps = steps;
    tick.current_step = step;
    judge.Judge(tick);
  }
  return judge.verdicts();
}

TEST(ProcessJudgeTest, OneLeakIsOneVerdictThoughTheLayerAroundItGrowsWithIt) {
  for (uint64_t steps : {100, 600}) {
    const std::vector<Verdict> verdicts = AfterALeakInTwoLayers(steps);
    ASSERT_EQ(verdicts.size(), 2u);
    EXPECT_EQ(verdicts[0].memory_class, MemoryClass::kDevice);
    EXPECT_EQ(verdicts[0].state, VerdictState::kSteady) << steps;
    EXPECT_EQ(verdicts[0].cause, Cause::kNone);
    EXPECT_EQ(verdicts[0].slope.per_unit, 0);
    EXPECT_EQ(verdicts[1].cause, Cause::kTensorsKept);
    EXPECT_THAT(verdicts[1].evidence,
                testing::Contains(testing::ContainsRegex("^device moved by .*: the same bytes")));
  }
  EXPECT_TRUE(RaisesLeakAlert(AfterALeakInTwoLayers(600)[1]));
}

// Steps until a series at `level_bytes` on a device of 80 GiB is suspect, when it grows so that the
// device is full in 95 steps and its floor wavers by a hundredth of that growth.
uint64_t StepsUntilSuspect(int64_t level_bytes) {
  constexpr int64_t kCapacity = 80 * 1024 * kMiB;
  const int64_t rate = (kCapacity - level_bytes) / 95;
  ProcessJudge judge;
  for (uint64_t step = 1; step <= 95; ++step) {
    const int64_t live = level_bytes + static_cast<int64_t>(step) * rate;
    const int64_t waver = static_cast<int64_t>(step * 2654435761u % 100) * rate / 10000;
    const std::vector<StepPoint> steps = {
        {step, static_cast<int64_t>(step) * kSecond, {{kLive, live + waver, 0}}}};
    const std::vector<LimitPoint> limits = {{"device 0", 0, false, kCapacity, live}};
    ProcessTick tick;
    tick.now_ns = static_cast<int64_t>(step) * kSecond;
    tick.new_steps = steps;
    tick.limits = limits;
    tick.current_step = step;
    if (Only(judge.Judge(tick)).state == VerdictState::kSuspect) return step;
  }
  return 95;
}

TEST(ProcessJudgeTest, WhatFillsTheDeviceWithin100StepsIsSuspectWithin12AfterWarmUp) {
  const uint64_t warm_up = JudgeOptions{}.warm_up_steps;
  for (int64_t gib : {2, 40, 70, 78}) {
    EXPECT_LE(StepsUntilSuspect(gib * 1024 * kMiB), warm_up + 12) << gib << " GiB held";
  }
}

TEST(ProcessJudgeTest, SaysNothingOfASteadyProcess) {
  ProcessJudge judge;
  for (uint64_t step = 1; step <= 300; ++step) {
    const std::vector<StepPoint> steps = {
        {step, static_cast<int64_t>(step) * kSecond, {{kLive, 1000 * kMiB, 1500 * kMiB}}}};
    ProcessTick tick;
    tick.now_ns = static_cast<int64_t>(step) * kSecond;
    tick.new_steps = steps;
    tick.current_step = step;
    const Verdict& verdict = Only(judge.Judge(tick));
    ASSERT_NE(verdict.state, VerdictState::kSuspect);
    ASSERT_NE(verdict.state, VerdictState::kConfirmed);
  }
  EXPECT_EQ(judge.verdicts()[0].state, VerdictState::kSteady);
}

TEST(ProcessJudgeTest, TotalsAreJudgedByTheSecondUntilStepsBegin) {
  ProcessJudge judge;
  const std::vector<SeriesPoint> totals = {{{MemoryClass::kAnon, -1}, 100 * kMiB, 0}};
  ProcessTick tick;
  tick.now_ns = kSecond;
  tick.totals = totals;
  EXPECT_EQ(Only(judge.Judge(tick)).aligned_to, AlignedTo::kSeconds);
  tick.now_ns = 2 * kSecond;
  tick.current_step = 1;
  EXPECT_EQ(Only(judge.Judge(tick)).aligned_to, AlignedTo::kSteps);
}

TEST(ProcessJudgeTest, CountsAndLeavesOutWhatCannotBeBelieved) {
  ProcessJudge judge;
  std::vector<StepPoint> steps = {{5, kSecond, {{kLive, -1, 0}}},
                                  {4, kSecond, {{kLive, INT64_MAX, 0}}},
                                  {6, kSecond, {{kLive, 1, 0}}},
                                  {2, kSecond, {{kLive, 1, 0}}}};
  ProcessTick tick;
  tick.now_ns = kSecond;
  tick.new_steps = steps;
  judge.Judge(tick);
  EXPECT_EQ(judge.rejected_points(), 3u);
}

}  // namespace
}  // namespace tidemark::detect
