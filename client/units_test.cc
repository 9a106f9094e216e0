#include "client/units.h"

#include <gtest/gtest.h>

#include <limits>

namespace tidemark::client {
namespace {

TEST(Units, BytesHaveThreeDigitsAndNoEmptyDecimals) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1024), "1 KiB");
  EXPECT_EQ(FormatBytes(256ll << 20), "256 MiB");
  EXPECT_EQ(FormatBytes(1536ll << 20), "1.50 GiB");
  EXPECT_EQ(FormatBytes((12ll << 20) + (512 << 10)), "12.5 MiB");
  EXPECT_EQ(FormatBytes((140ll << 30) + 1), "140 GiB");
  EXPECT_EQ(FormatBytes(-(12ll << 20)), "-12 MiB");
}

TEST(Units, ExtremeByteCountsStillPrint) {
  EXPECT_EQ(FormatBytes(std::numeric_limits<int64_t>::max()), "8192 PiB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<int64_t>::min()), "-8192 PiB");
}

TEST(Units, ADeltaCarriesItsSign) {
  EXPECT_EQ(FormatDelta(8ll << 20), "+8 MiB");
  EXPECT_EQ(FormatDelta(-(8ll << 20)), "-8 MiB");
  EXPECT_EQ(FormatDelta(0), "0 B");
}

TEST(Units, BlocksOfOneSizeReadAsCountTimesSize) {
  EXPECT_EQ(FormatBlocks(36, 256ull << 20, 256ull << 20), "36 x 256 MiB");
  EXPECT_EQ(FormatBlocks(36, 1 << 20, 256ull << 20), "36 blocks of 1 MiB to 256 MiB");
  EXPECT_EQ(FormatBlocks(1, 1 << 20, 2 << 20), "1 block of 1 MiB to 2 MiB");
  EXPECT_EQ(FormatBlocks(0, 0, 0), "none");
}

TEST(Units, ASlopeSharesOneUnitWithItsInterval) {
  const double mib = 1 << 20;
  EXPECT_EQ(FormatSlope(8 * mib, 7.9 * mib, 8.1 * mib, "step"), "+8.0 MiB/step (7.9 to 8.1)");
  EXPECT_EQ(FormatSlope(2048 * mib, 2000 * mib, 2100 * mib, "h"), "+2.0 GiB/h (2.0 to 2.1)");
  EXPECT_EQ(FormatSlope(-mib, -2 * mib, 0, "step"), "-1.0 MiB/step (-2.0 to 0.0)");
}

TEST(Units, CountsAreGrouped) {
  EXPECT_EQ(FormatCount(7), "7");
  EXPECT_EQ(FormatCount(4310), "4,310");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
}

TEST(Units, DurationsGrowCoarser) {
  EXPECT_EQ(FormatDuration(42), "42 s");
  EXPECT_EQ(FormatDuration(160), "02:40");
  EXPECT_EQ(FormatDuration(3 * 3600 + 160), "3:02:40");
  EXPECT_EQ(FormatDuration(2 * 86400 + 3 * 3600 + 120), "2 d 03:02");
  EXPECT_EQ(FormatDuration(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(FormatDuration(-1), "?");
}

TEST(Units, ASmallShareIsNotNothing) {
  EXPECT_EQ(FormatShare(0.972), "97 %");
  EXPECT_EQ(FormatShare(0.001), "<1 %");
  EXPECT_EQ(FormatShare(0), "0 %");
}

TEST(Units, RanksFoldIntoRanges) {
  EXPECT_EQ(FormatRanges({3, 0, 1, 2, 2}), "0-3");
  EXPECT_EQ(FormatRanges({0, 1, 4}), "0,1,4");
  EXPECT_EQ(FormatRanges({5}), "5");
  EXPECT_EQ(FormatRanges({}), "");
}

}  // namespace
}  // namespace tidemark::client
