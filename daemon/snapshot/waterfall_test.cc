#include "daemon/snapshot/waterfall.h"

#include <gtest/gtest.h>

namespace tidemark {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kContext = 518 * kMiB;
constexpr uint64_t kSecond = 1'000'000'000;

ClassTotal Total(MemoryClass memory_class, Witness witness, int64_t live, int device = 0) {
  ClassTotal total;
  total.memory_class = memory_class;
  total.witness = witness;
  total.device = device;
  total.live_bytes = live;
  total.allocations = live == 0 ? 0 : 1;
  return total;
}

int64_t Line(const Waterfall& fall, MemoryClass memory_class) {
  for (const WaterfallLine& line : fall.lines) {
    if (line.memory_class == memory_class) return line.bytes;
  }
  return 0;
}

std::string Note(const Waterfall& fall, MemoryClass memory_class = MemoryClass::kUnattributed) {
  for (const WaterfallLine& line : fall.lines) {
    if (line.memory_class == memory_class) return line.note;
  }
  return "no such line";
}

// One device of one process, as NVML and the agent would show it.
class WaterfallTest : public ::testing::Test {
 protected:
  Waterfall Step(int64_t figure, const std::vector<ClassTotal>& totals, bool quiet = true) {
    now_ += kSecond;
    const Waterfall fall = tracker_.Update({figure, false, "nvml"},
                                           {totals, accounts_, observer_, quiet, now_}, events_);
    int64_t sum = 0;
    for (const WaterfallLine& line : fall.lines) sum += line.bytes;
    EXPECT_EQ(sum, fall.figure_bytes) << "lines do not add up";
    EXPECT_EQ(fall.figure_bytes, figure);
    return fall;
  }
  // The first ten seconds, with nothing but a context.
  void SettleContext() {
    for (int i = 0; i < 12; ++i) Step(kContext, {});
  }
  void Happened(const std::string& type, int code = 0) {
    EventView event;
    event.type = type;
    event.code = code;
    event.unix_ns = now_ + kSecond / 2;
    events_.push_back(event);
  }

  WaterfallTracker tracker_{0};
  uint64_t now_ = 1000 * kSecond;
  int64_t observer_ = 0;
  std::vector<OwnAccountBytes> accounts_;
  std::deque<EventView> events_;
};

TEST_F(WaterfallTest, AFrameworksSegmentsAreSplitIntoLiveAndCacheOnce) {
  SettleContext();
  const Waterfall fall =
      Step(kContext + 120 * kMiB, {Total(MemoryClass::kDevice, Witness::kCupti, 120 * kMiB),
                                   Total(MemoryClass::kFwLive, Witness::kTorch, 70 * kMiB),
                                   Total(MemoryClass::kFwCache, Witness::kTorch, 30 * kMiB)});
  EXPECT_EQ(Line(fall, MemoryClass::kContext), kContext);
  EXPECT_EQ(Line(fall, MemoryClass::kFwLive), 70 * kMiB);
  EXPECT_EQ(Line(fall, MemoryClass::kFwCache), 30 * kMiB);
  EXPECT_EQ(Line(fall, MemoryClass::kDevice), 20 * kMiB);  // outside the framework
  EXPECT_EQ(Line(fall, MemoryClass::kUnattributed), 0);
}

TEST_F(WaterfallTest, ExpandableSegmentsComeOutOfVmm) {
  SettleContext();
  const Waterfall fall =
      Step(kContext + 64 * kMiB, {Total(MemoryClass::kVmm, Witness::kCupti, 64 * kMiB),
                                  Total(MemoryClass::kFwLive, Witness::kTorch, 60 * kMiB),
                                  Total(MemoryClass::kFwCache, Witness::kTorch, 4 * kMiB)});
  EXPECT_EQ(Line(fall, MemoryClass::kVmm), 0);
  EXPECT_EQ(Note(fall, MemoryClass::kVmm),
            "without expandable segments, which are fw_live and fw_cache: 64.0 MiB");
  EXPECT_EQ(Line(fall, MemoryClass::kUnattributed), 0);
}

TEST_F(WaterfallTest, ACommunicatorsBuffersAreNamedAndAreNoSegmentsOfTheFramework) {
  SettleContext();
  accounts_ = {{MemoryClass::kVmm, 0, 40 * kMiB, "communicator (libnccl.so.2)"}};
  const Waterfall fall =
      Step(kContext + 90 * kMiB, {Total(MemoryClass::kVmm, Witness::kCupti, 90 * kMiB),
                                  Total(MemoryClass::kFwLive, Witness::kTorch, 50 * kMiB)});
  EXPECT_EQ(Line(fall, MemoryClass::kVmm), 40 * kMiB);
  EXPECT_EQ(Note(fall, MemoryClass::kVmm),
            "communicator (libnccl.so.2): 40.0 MiB; without expandable segments, which are fw_live "
            "and fw_cache: 50.0 MiB");
  EXPECT_EQ(Line(fall, MemoryClass::kUnattributed), 0);
}

TEST_F(WaterfallTest, OneLookAtAProcessThatHasAllocatedIsEnoughToKnowItsContext) {
  const std::vector<ClassTotal> held = {Total(MemoryClass::kDevice, Witness::kCupti, 8 * kMiB)};
  Step(kContext + 8 * kMiB, held);
  Happened("module_loaded");
  const Waterfall fall = Step(kContext + 74 * kMiB, held);
  EXPECT_EQ(Line(fall, MemoryClass::kContext), kContext);
  EXPECT_EQ(Note(fall), "module load: 66.0 MiB");
}

TEST_F(WaterfallTest, TheCommunicatorThatLoadedAModuleGivesTheRiseItsName) {
  SettleContext();
  Happened("communicator");
  Happened("module_loaded");
  EXPECT_EQ(Note(Step(kContext + 170 * kMiB, {})), "communicator: 170 MiB");
}

TEST_F(WaterfallTest, CallsThatCancelOutAreStillCalls) {
  ClassTotal before = Total(MemoryClass::kDevice, Witness::kCupti, 8 * kMiB);
  ClassTotal after = before;
  ++after.frees;
  ++after.allocations;
  EXPECT_EQ(WaterfallTracker::TrackedBytes({before}, 0),
            WaterfallTracker::TrackedBytes({after}, 0));
  EXPECT_NE(WaterfallTracker::TrackedCalls({before}, 0),
            WaterfallTracker::TrackedCalls({after}, 0));
}

TEST_F(WaterfallTest, UnattributedMayBeNegative) {
  SettleContext();
  const Waterfall fall = Step(kContext, {Total(MemoryClass::kDevice, Witness::kCupti, 10 * kMiB)});
  EXPECT_EQ(Line(fall, MemoryClass::kUnattributed), -10 * kMiB);
}

TEST_F(WaterfallTest, ManagedPinnedImportsAndOtherDevicesAreNotInTheFigure) {
  SettleContext();
  const Waterfall fall =
      Step(kContext, {Total(MemoryClass::kManaged, Witness::kCupti, 5 * kMiB),
                      Total(MemoryClass::kPinned, Witness::kCupti, 6 * kMiB, -1),
                      Total(MemoryClass::kIpc, Witness::kCupti, 7 * kMiB),
                      Total(MemoryClass::kDevice, Witness::kCupti, 8 * kMiB, 1)});
  EXPECT_EQ(Line(fall, MemoryClass::kUnattributed), 0);
}

TEST_F(WaterfallTest, ARaisedStackLimitIsNamed) {
  SettleContext();
  Happened("limit_raised", 0);
  const Waterfall fall = Step(kContext + 3960 * kMiB, {});
  EXPECT_EQ(Line(fall, MemoryClass::kUnattributed), 3960 * kMiB);
  EXPECT_EQ(Note(fall), "stack limit: 3.87 GiB");
}

TEST_F(WaterfallTest, EachRiseKeepsItsName) {
  SettleContext();
  Happened("module_loaded");
  Step(kContext + 66 * kMiB, {});
  for (int i = 0; i < 5; ++i) Step(kContext + 66 * kMiB, {});
  Happened("communicator");
  const Waterfall fall = Step(kContext + 566 * kMiB, {});
  EXPECT_EQ(Note(fall), "module load: 66.0 MiB; communicator: 500 MiB");
  const Waterfall after = Step(kContext + 66 * kMiB, {});
  EXPECT_EQ(Note(after), "module load: 66.0 MiB");
}

TEST_F(WaterfallTest, ARiseThatNothingCoincidesWithSaysSo) {
  SettleContext();
  const Waterfall fall = Step(kContext + 40 * kMiB, {});
  EXPECT_EQ(Note(fall), "no event seen: 40.0 MiB");
}

TEST_F(WaterfallTest, ALimitRaisedInTheFirstSecondsIsNamedToo) {
  Step(kContext, {});
  Step(kContext, {});
  Happened("limit_raised", 0);
  const Waterfall fall = Step(kContext + 3960 * kMiB, {});
  EXPECT_EQ(Line(fall, MemoryClass::kContext), kContext);
  EXPECT_EQ(Note(fall), "stack limit: 3.87 GiB");
}

TEST_F(WaterfallTest, AContextUnderConstructionDoesNotBecomeTheSmallest) {
  Step(200 * kMiB, {});
  Step(kContext, {});
  const Waterfall fall = Step(kContext, {});
  EXPECT_EQ(Line(fall, MemoryClass::kContext), kContext);
  EXPECT_EQ(Line(fall, MemoryClass::kUnattributed), 0);
}

TEST_F(WaterfallTest, AFigureThatDoesNotFitItsTotalsTeachesNothing) {
  Step(kContext, {});
  Step(kContext, {});
  // Allocated between the two looks: figure - tracked is far too small.
  Step(kContext, {Total(MemoryClass::kDevice, Witness::kCupti, 400 * kMiB)}, false);
  const Waterfall fall =
      Step(kContext + 400 * kMiB, {Total(MemoryClass::kDevice, Witness::kCupti, 400 * kMiB)});
  EXPECT_EQ(Line(fall, MemoryClass::kContext), kContext);
  EXPECT_EQ(Line(fall, MemoryClass::kUnattributed), 0);
}

TEST_F(WaterfallTest, WhatWasLoadedBeforeTheContextCouldBeMeasuredIsSaidOfIt) {
  const std::vector<ClassTotal> loading = {Total(MemoryClass::kDevice, Witness::kCupti, 4 * kMiB)};
  Step(kContext + 4 * kMiB, loading, false);  // calls all the time
  Happened("module_loaded");
  Happened("module_loaded");
  Happened("communicator");
  Step(kContext + 84 * kMiB, loading, false);
  Waterfall fall = Step(kContext + 84 * kMiB, loading);
  EXPECT_EQ(Line(fall, MemoryClass::kContext), kContext + 80 * kMiB);
  EXPECT_EQ(Note(fall, MemoryClass::kContext),
            "with what came before it could be measured: communicator, module load (2)");
  Happened("limit_raised");
  fall = Step(kContext + 100 * kMiB, loading);
  EXPECT_EQ(Note(fall, MemoryClass::kContext),
            "with what came before it could be measured: communicator, module load (2)");
  EXPECT_EQ(Note(fall), "stack limit: 16.0 MiB");
}

TEST_F(WaterfallTest, TheAgentsOwnDeviceBytesAreALine) {
  SettleContext();
  observer_ = 2 * kMiB;
  const Waterfall fall = Step(kContext + 2 * kMiB, {});
  EXPECT_EQ(Line(fall, MemoryClass::kObserver), 2 * kMiB);
  EXPECT_EQ(Line(fall, MemoryClass::kUnattributed), 0);
}

TEST_F(WaterfallTest, WithoutAFigureOnlyWhatIsKnownIsShown) {
  const Waterfall fall = tracker_.Update(
      {std::nullopt, false, "nvml: no driver"},
      {{Total(MemoryClass::kDevice, Witness::kCupti, 8 * kMiB)}, {}, 0, true, now_}, {});
  EXPECT_FALSE(fall.figure_known);
  EXPECT_EQ(fall.figure_source, "nvml: no driver");
  EXPECT_EQ(fall.figure_bytes, 8 * kMiB);
  ASSERT_EQ(fall.lines.size(), 1u);
}

TEST_F(WaterfallTest, ADeviceWideFigureIsMarkedAndStillAddsUp) {
  const Waterfall fall = tracker_.Update(
      {100 * kMiB, true, "blind"},
      {{Total(MemoryClass::kDevice, Witness::kCupti, 8 * kMiB)}, {}, 0, true, now_}, {});
  EXPECT_TRUE(fall.device_wide);
  EXPECT_FALSE(fall.figure_known);
  EXPECT_EQ(Line(fall, MemoryClass::kUnattributed), 92 * kMiB);
  EXPECT_EQ(Line(fall, MemoryClass::kContext), 0);
}

}  // namespace
}  // namespace tidemark
