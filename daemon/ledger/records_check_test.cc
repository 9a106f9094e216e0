#include "daemon/ledger/records_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidemark {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using wire::Layer;

class RecordsCheckTest : public ::testing::Test {
 protected:
  std::vector<uint64_t> See(uint64_t callbacks, uint64_t records, uint32_t flushes) {
    region_.totals.assign(2, {});
    Fill(region_.totals[0], Layer::kDriver, callbacks);
    Fill(region_.totals[1], Layer::kRecords, records);
    region_.header.records_flushes = flushes;
    check_.Update(region_);
    return check_.Differences();
  }

  void Exit(wire::FeatureState records) {
    region_.header.state = static_cast<uint32_t>(wire::AgentState::kExited);
    wire::FeatureRow row = {};
    row.seq = 2;
    row.feature = static_cast<uint8_t>(wire::Feature::kCuptiRecords);
    row.state = static_cast<uint8_t>(records);
    region_.features.assign(1, row);
  }

 private:
  static void Fill(wire::TotalsRow& row, Layer layer, uint64_t bytes) {
    row.seq = 2;
    row.layer = static_cast<uint8_t>(layer);
    row.kind = static_cast<uint8_t>(wire::Kind::kDevice);
    row.allocated_bytes = bytes;
  }

  RegionCopy region_;
  RecordsCheck check_;
};

TEST_F(RecordsCheckTest, RecordsThatAreStillToBeFlushedAreNoDifference) {
  EXPECT_THAT(See(100, 40, 5), IsEmpty());
  EXPECT_THAT(See(100, 40, 6), IsEmpty());  // that flush may have begun before the 100
}

TEST_F(RecordsCheckTest, RecordsThatTwoFlushesDidNotBringAreMissing) {
  See(100, 40, 5);
  EXPECT_THAT(See(300, 90, 7), ElementsAre(10));
  EXPECT_THAT(See(300, 300, 8), IsEmpty());
}

TEST_F(RecordsCheckTest, RecordsOfWhatCallbacksNeverSawShowAtOnce) {
  EXPECT_THAT(See(100, 104, 5), ElementsAre(4));
}

TEST_F(RecordsCheckTest, AProcessThatExitedHasEqualBooks) {
  See(100, 40, 5);
  Exit(wire::FeatureState::kOn);
  EXPECT_THAT(See(300, 296, 6), ElementsAre(4));
  EXPECT_THAT(See(300, 300, 6), IsEmpty());
}

TEST_F(RecordsCheckTest, AProcessThatWasKilledOwesNoFlush) {
  See(100, 40, 5);
  EXPECT_THAT(See(300, 40, 5), IsEmpty());
}

TEST_F(RecordsCheckTest, RecordsThatWereSwitchedOffAreNotExpectedAtExit) {
  See(100, 100, 5);
  Exit(wire::FeatureState::kOff);
  EXPECT_THAT(See(300, 100, 5), IsEmpty());
}

}  // namespace
}  // namespace tidemark
