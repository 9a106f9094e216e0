// The detector's parts on shapes whose right answer is plain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <string>

#include "daemon/detect/cause.h"
#include "daemon/detect/floor_history.h"
#include "daemon/detect/forecast.h"
#include "daemon/detect/growth_shape.h"
#include "daemon/detect/series_detector.h"
#include "daemon/detect/site_evidence.h"
#include "daemon/detect/site_watch.h"

namespace tidemark::detect {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kSecond = 1'000'000'000;
constexpr SeriesId kLive{MemoryClass::kFwLive, 0};

template <typename F>
SeriesDetector Watched(int points, F mib) {
  SeriesDetector detector;
  std::mt19937_64 random(7);
  for (int t = 0; t < points; ++t) {
    const double noise = static_cast<double>(random() % 1000) / 500;
    detector.Push(static_cast<uint64_t>(t), t * kSecond,
                  static_cast<int64_t>((mib(t) + noise) * kMiB));
  }
  return detector;
}

TEST(CauseTest, EveryCauseHasAPageThatIsThere) {
  for (int i = 1; i <= static_cast<int>(Cause::kFiniteRamp); ++i) {
    const CauseInfo& info = InfoOf(static_cast<Cause>(i));
    EXPECT_EQ(info.cause, static_cast<Cause>(i));
    EXPECT_EQ(CauseFromString(info.name), info.cause);
    const std::ifstream page(std::string(TIDEMARK_RUNBOOKS) + "/" + std::string(info.runbook));
    EXPECT_TRUE(page.good()) << info.runbook;
  }
}

TEST(FloorHistoryTest, EveryLevelKeepsTheSmallestOfItsBlocks) {
  FloorHistory history;
  for (uint64_t t = 0; t < 1000; ++t) {
    history.Push(t, static_cast<int64_t>(t) * kSecond, t % 10 == 0 ? 5 : 100);
  }
  EXPECT_EQ(history.At(0, 0).floor, 100);  // t = 999
  EXPECT_EQ(history.At(4, 0).floor, 5);    // any 16 points hold a multiple of ten
  EXPECT_EQ(history.At(4, 0).unit, 991u);  // 62 whole blocks of 16
  EXPECT_EQ(history.FloorOf(0, 0, 9), 100);
  EXPECT_EQ(history.FloorOf(0, 0, 10), 5);
}

TEST(FloorHistoryTest, FindsTheFloorOfAPastMomentAsFinelyAsItIsKept) {
  FloorHistory history;
  for (uint64_t t = 0; t < 10000; ++t) {
    history.Push(t, static_cast<int64_t>(t) * kSecond, static_cast<int64_t>(t));
  }
  EXPECT_EQ(*history.FloorAt(9990 * kSecond), 9990);
  EXPECT_NEAR(static_cast<double>(*history.FloorAt(2000 * kSecond)), 2000, 256);
  EXPECT_EQ(*history.FloorAt(0), 0);
  EXPECT_NEAR(history.UnitsPerSecond(64), 1.0, 0.01);
}

TEST(SeriesDetectorTest, AMillionPointsStayUnder16KiB) {
  SeriesDetector detector;
  for (uint64_t t = 0; t < 1'000'000; ++t) {
    ASSERT_TRUE(detector.Push(t, static_cast<int64_t>(t) * kSecond, 1000));
  }
  EXPECT_LT(detector.MemoryBytes(), 16u << 10);
  EXPECT_EQ(detector.finding().state, VerdictState::kSteady);
}

TEST(GrowthShapeTest, TellsALineFromAJumpAndFromASaturation) {
  const GrowthShape line = ShapeOf({0, 10, 20, 30, 40, 50, 60, 70}, 5);
  EXPECT_DOUBLE_EQ(line.per_point, 2);
  EXPECT_TRUE(line.grows_throughout);
  EXPECT_DOUBLE_EQ(line.late_to_early, 1);
  const GrowthShape jump = ShapeOf({0, 0, 0, 0, 70, 70, 70, 70}, 5);
  EXPECT_FALSE(jump.grows_throughout);
  EXPECT_DOUBLE_EQ(jump.largest_share, 1);
  const GrowthShape saturating = ShapeOf({0, 50, 75, 87, 93, 96, 98, 99}, 5);
  EXPECT_LT(saturating.late_to_early, 0.2);
}

TEST(GrowthShapeTest, AOneTimeStepOnTopOfALineIsTakenOut) {
  const GrowthShape shape = ShapeOf({0, 10, 20, 530, 540, 550, 560, 570}, 1);
  EXPECT_DOUBLE_EQ(shape.per_point, 10);
  EXPECT_DOUBLE_EQ(shape.one_time_step, 500);
}

TEST(SeriesDetectorTest, ALinearLeakIsConfirmedWithItsSlope) {
  const auto detector = Watched(2000, [](int t) { return 4000 + 0.5 * t; });
  const SeriesFinding& finding = detector.finding();
  EXPECT_EQ(finding.state, VerdictState::kConfirmed);
  EXPECT_NEAR(finding.slope.per_unit, 0.5 * kMiB, 0.02 * kMiB);
  EXPECT_LE(finding.slope.low, 0.5 * kMiB);
  EXPECT_GE(finding.slope.high, 0.5 * kMiB);
  EXPECT_LT(finding.since, 200u);
}

TEST(SeriesDetectorTest, ARunawayIsSuspectWithinTwelvePoints) {
  SeriesDetector detector;
  uint64_t t = 0;
  for (; t < 100; ++t) detector.Push(t, static_cast<int64_t>(t) * kSecond, 5000 * kMiB);
  for (int i = 1; i <= 12; ++i, ++t) {
    detector.Push(t, static_cast<int64_t>(t) * kSecond, (5000 + 100 * i) * kMiB);
  }
  EXPECT_EQ(detector.finding().state, VerdictState::kSuspect);
}

TEST(SeriesDetectorTest, ALateOnsetIsFoundAndNotDatedBack) {
  const auto detector = Watched(6000, [](int t) { return 4000 + std::max(0, t - 3000) * 0.5; });
  EXPECT_EQ(detector.finding().state, VerdictState::kConfirmed);
  EXPECT_GE(detector.finding().since, 3000u);
}

TEST(SeriesDetectorTest, WhatEndsIsRetracted) {
  const auto ramp = Watched(6000, [](int t) { return 4000 + 2.0 * std::min(t, 1000); });
  EXPECT_EQ(ramp.finding().state, VerdictState::kRetracted);
  EXPECT_NE(ramp.finding().end, GrowthEnd::kNone);
  const auto warm = Watched(8000, [](int t) { return 4000 + 3000 * (1 - std::exp(-t / 500.0)); });
  EXPECT_NE(warm.finding().state, VerdictState::kConfirmed);
  EXPECT_NE(warm.finding().state, VerdictState::kSuspect);
}

TEST(SeriesDetectorTest, ASawToothEndsUnsuspected) {
  const auto detector = Watched(6000, [](int t) { return 4000.0 + 3.0 * (t % 150); });
  EXPECT_NE(detector.finding().state, VerdictState::kConfirmed);
}

TEST(SeriesDetectorTest, ALeakUnderASawToothIsConfirmed) {
  const auto detector = Watched(6000, [](int t) { return 4000.0 + 3.0 * (t % 150) + 0.3 * t; });
  EXPECT_EQ(detector.finding().state, VerdictState::kConfirmed);
  EXPECT_NEAR(detector.finding().slope.per_unit, 0.3 * kMiB, 0.06 * kMiB);
}

TEST(SeriesDetectorTest, RegularRisesAreAStaircaseWithItsHeightAndPeriod) {
  const auto detector = Watched(520, [](int t) { return 4000.0 + 1500 * (t / 100); });
  EXPECT_EQ(detector.finding().state, VerdictState::kConfirmed);
  EXPECT_EQ(detector.finding().pattern, GrowthPattern::kStairs);
  EXPECT_NEAR(detector.finding().stair_bytes, 1500.0 * kMiB, 10.0 * kMiB);
  EXPECT_NEAR(detector.finding().stair_units, 100, 3);
}

TEST(SeriesDetectorTest, RisesThatComeEverMoreRarelyAreNoStaircase) {
  const auto detector = Watched(900, [](int t) {
    double level = 4000;
    for (int at : {17, 45, 90, 150, 260, 400}) level += t >= at ? 228 : 0;
    return level;
  });
  EXPECT_NE(detector.finding().state, VerdictState::kConfirmed);
}

TEST(SeriesDetectorTest, SaysTheSmallestSlopeItCouldTell) {
  const auto young = Watched(200, [](int) { return 4000.0; });
  const auto old = Watched(20000, [](int) { return 4000.0; });
  EXPECT_GT(young.finding().detection_floor, 0);
  EXPECT_LT(old.finding().detection_floor, young.finding().detection_floor / 10);
  // And it is honest: a leak three times as fast is told in the same time.
  const double rate = 3 * old.finding().detection_floor / kMiB;
  const auto leak = Watched(20000, [&](int t) { return 4000 + rate * t; });
  EXPECT_EQ(leak.finding().state, VerdictState::kConfirmed);
}

TEST(SeriesDetectorTest, RefusesPointsThatGoBackOrCannotBe) {
  SeriesDetector detector;
  EXPECT_TRUE(detector.Push(5, kSecond, 10));
  EXPECT_FALSE(detector.Push(4, kSecond, 10));
  EXPECT_FALSE(detector.Push(6, kSecond, -1));
  EXPECT_FALSE(detector.Push(6, kSecond, INT64_MAX));
  EXPECT_TRUE(detector.Push(6, 0, 10));  // a clock that steps back is taken as standing still
  EXPECT_TRUE(detector.Push(UINT64_MAX, kSecond, 10));
}

TEST(ForecastTest, CountsTheUsualPeakAgainstTheHeadroom) {
  GrowthNow growth;
  growth.slope = {10, 8, 20};
  growth.units_per_second = 2;
  growth.unit_now = 100;
  growth.peak_over_floor_bytes = 200;
  const auto forecast = ForecastOutOfMemory(growth, {"device 0", 0, false, 1000, 0}, 500);
  ASSERT_TRUE(forecast.has_value());
  EXPECT_EQ(forecast->headroom_bytes, 300);
  EXPECT_DOUBLE_EQ(forecast->units_left, 30);
  EXPECT_DOUBLE_EQ(forecast->units_left_low, 15);
  EXPECT_DOUBLE_EQ(forecast->units_left_high, 37.5);
  EXPECT_EQ(*forecast->at_step, 130u);
  EXPECT_DOUBLE_EQ(*forecast->seconds_left, 15);
}

TEST(ForecastTest, NoSlopeOrNoLimitIsNoForecastAndNoRoomIsNow) {
  GrowthNow growth;
  EXPECT_FALSE(ForecastOutOfMemory(growth, {"d", 0, false, 1000, 0}, 0).has_value());
  growth.slope = {10, 10, 10};
  EXPECT_FALSE(ForecastOutOfMemory(growth, {"d", 0, false, 0, 0}, 0).has_value());
  EXPECT_DOUBLE_EQ(ForecastOutOfMemory(growth, {"d", 0, false, 1000, 0}, 2000)->units_left, 0);
}

class Sites : public SiteTable {
 public:
  std::vector<SitePoint> rows;
  size_t size() const override { return rows.size(); }
  SitePoint At(size_t row) const override { return rows[row]; }
};

SitePoint SiteWith(uint64_t id, uint8_t shift, std::initializer_list<int64_t> cohorts) {
  SitePoint site;
  site.site_id = id;
  site.id = kLive;
  site.cohort_shift = shift;
  size_t i = 0;
  for (int64_t bytes : cohorts) {
    site.cohort_bytes[i++] = bytes;
    site.live_bytes += bytes;
  }
  return site;
}

TEST(SiteEvidenceTest, BlamesTheSiteWhoseGenerationsAreAlive) {
  Sites sites;
  sites.rows = {SiteWith(1, 3, {800, 0, 0, 0, 0, 0, 0}),        // weights
                SiteWith(2, 3, {0, 0, 0, 0, 0, 0, 500}),        // activations
                SiteWith(3, 3, {80, 80, 80, 80, 80, 80, 10})};  // 10 bytes a step
  const BlameAnswer answer = BlameSites(sites, {kLive, 8, 49, 10});
  EXPECT_TRUE(answer.can_tell);
  ASSERT_EQ(answer.sites.size(), 1u);
  EXPECT_EQ(answer.sites[0].site_id, 3u);
  EXPECT_DOUBLE_EQ(answer.sites[0].bytes_per_unit, 10);
  EXPECT_DOUBLE_EQ(answer.sites[0].share_of_slope, 1);
  EXPECT_EQ(answer.sites[0].generations_alive, 5u);
}

TEST(SiteEvidenceTest, ACacheThatFillsIsNotBlamed) {
  Sites sites;
  sites.rows = {SiteWith(1, 3, {800, 400, 200, 100, 50, 25, 12})};
  EXPECT_TRUE(BlameSites(sites, {kLive, 0, 55, 10}).sites.empty());
}

TEST(SiteEvidenceTest, AbsurdCohortsDoNoHarm) {
  SitePoint site = SiteWith(1, 255, {1, 1});
  EXPECT_EQ(RetainedBy(site, 0, UINT64_MAX).generations_seen, 16u);
  EXPECT_EQ(RetainedBy(site, UINT64_MAX, 0).generations_seen, 0u);
}

TEST(SiteWatchTest, FlagsASiteThatKeepsAMebibyteAStepWithin30Steps) {
  Sites sites;
  for (uint64_t id = 1; id <= 10; ++id) sites.rows.push_back(SiteWith(id, 0, {kMiB}));
  SiteWatch watch;
  for (uint64_t step = 1; step <= 30; ++step) {
    sites.rows[4].live_bytes += kMiB;
    sites.rows[7].live_bytes = static_cast<int64_t>(step * 7 % 5) * kMiB;
    watch.Tick(sites, step, static_cast<int64_t>(step) * kSecond);
  }
  const SiteGrowth* growth = watch.FastestOf(kLive);
  ASSERT_NE(growth, nullptr);
  EXPECT_EQ(growth->row, 4u);
  EXPECT_NEAR(growth->per_step, kMiB, 0.1 * kMiB);
}

TEST(SiteWatchTest, ASawToothIsForgottenOnceItsHeightIsKnown) {
  Sites sites;
  sites.rows = {SiteWith(1, 0, {0})};
  SiteWatch watch;
  for (uint64_t step = 1; step <= 600; ++step) {
    sites.rows[0].live_bytes = static_cast<int64_t>(step % 60) * kMiB;
    watch.Tick(sites, step, static_cast<int64_t>(step) * kSecond);
    if (step > 70) {
      ASSERT_EQ(watch.FastestOf(kLive), nullptr) << step;
    }
  }
}

TEST(SiteWatchTest, ATableThatShrinksOrIsReorderedStartsAnew) {
  Sites sites;
  for (uint64_t id = 1; id <= 5; ++id) sites.rows.push_back(SiteWith(id, 0, {kMiB}));
  SiteWatch watch;
  for (uint64_t step = 1; step <= 60; ++step) {
    for (auto& row : sites.rows) row.live_bytes += kMiB;
    if (step % 10 == 0) std::reverse(sites.rows.begin(), sites.rows.end());
    if (step == 40) sites.rows.resize(2);
    watch.Tick(sites, step, static_cast<int64_t>(step) * kSecond);
  }
  sites.rows.clear();
  watch.Tick(sites, 61, 61 * kSecond);
}

}  // namespace
}  // namespace tidemark::detect
