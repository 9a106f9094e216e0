#include "daemon/ledger/witness_check.h"

#include <gtest/gtest.h>

namespace tidemark {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

// Two witnesses of cuMemAlloc, read one after the other once a second.
class WitnessCheckTest : public testing::Test {
 protected:
  // The agent is read, `between` calls are made, the probes are read, `after` calls are made.
  void Tick(uint64_t between, uint64_t after) {
    time_ += kSecond;
    const WitnessCounts agent = agent_;
    Call(between);
    check_.Update(time_, agent, probes_);
    Call(after);
  }
  void Call(uint64_t calls) {
    for (WitnessCounts* counts : {&agent_, &probes_}) {
      (*counts)[0].calls += calls;
      (*counts)[0].requested_bytes += calls * 4096;
    }
  }
  WitnessDifferenceView Found() const {
    const auto all = check_.Differences();
    return all.size() == 1 ? all[0] : WitnessDifferenceView{};
  }

  WitnessCheck check_;
  WitnessCounts agent_ = {};
  WitnessCounts probes_ = {};
  uint64_t time_ = 1'000 * kSecond;
};

TEST_F(WitnessCheckTest, CallsFromBeforeTheProbesAndBetweenTwoLooksAreNoDifference) {
  agent_[0] = {1000, 1000 * 4096};
  for (int i = 0; i < 100; ++i) Tick(static_cast<uint64_t>(i % 7), static_cast<uint64_t>(i % 5));
  EXPECT_GT(Found().compared_calls, 400u);
  EXPECT_EQ(Found().calls, 0);
  EXPECT_EQ(Found().bytes, 0);
  EXPECT_EQ(Found().calls_last_minute, 0);
}

TEST_F(WitnessCheckTest, ACallThatOneWitnessMissedIsExactOnceTheCallsPause) {
  for (int i = 0; i < 10; ++i) Tick(2, 3);
  Tick(0, 0);
  Tick(0, 0);
  agent_[0].calls += 2;  // the probes do not see these two
  agent_[0].requested_bytes += 2 * 4096 + 1;
  for (int i = 0; i < 10; ++i) Tick(2, 3);
  Tick(0, 0);
  Tick(0, 0);
  EXPECT_EQ(Found().calls, 2);
  EXPECT_EQ(Found().bytes, 2 * 4096 + 1);
  EXPECT_EQ(Found().calls_last_minute, 2);
  for (int i = 0; i < 70; ++i) Tick(1, 1);
  Tick(0, 0);
  EXPECT_EQ(Found().calls, 2) << "the total stays";
  EXPECT_EQ(Found().calls_last_minute, 0) << "the minute is over";
}

TEST_F(WitnessCheckTest, WhatTheAgentMissedIsNegative) {
  Tick(0, 0);
  Tick(0, 0);
  probes_[0].calls += 3;
  probes_[0].requested_bytes += 3 * 4096;
  Tick(0, 0);
  Tick(0, 0);
  EXPECT_EQ(Found().calls, -3);
  EXPECT_EQ(Found().bytes, -3 * 4096);
}

TEST_F(WitnessCheckTest, ACallThatLastsManyTicksIsADifferenceOnlyUntilItEnds) {
  Tick(0, 0);
  Tick(0, 0);
  probes_[0].calls += 1;  // at entry
  probes_[0].requested_bytes += 4096;
  for (int i = 0; i < 5; ++i) Tick(0, 0);
  EXPECT_EQ(Found().calls, -1);
  agent_[0].calls += 1;  // at return
  agent_[0].requested_bytes += 4096;
  Tick(0, 0);
  Tick(0, 0);
  EXPECT_EQ(Found().calls, 0);
}

TEST_F(WitnessCheckTest, APauseKeepsWhatWasFoundAndComparesAnew) {
  Tick(0, 0);
  Tick(0, 0);
  agent_[0].calls += 1;
  Tick(0, 0);
  Tick(0, 0);
  check_.Pause();
  agent_[0].calls += 500;  // nobody else was there
  Tick(0, 1);
  Tick(0, 0);
  Tick(0, 0);
  EXPECT_EQ(Found().calls, 1);
}

TEST_F(WitnessCheckTest, ACountThatGoesBackwardsIsNotBelieved) {
  Call(100);
  Tick(0, 0);
  Tick(0, 0);
  agent_[0] = {1, 1};
  Tick(0, 0);
  EXPECT_TRUE(check_.Differences().empty());
}

}  // namespace
}  // namespace tidemark
