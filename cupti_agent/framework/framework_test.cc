#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "cupti_agent/framework/backward_tap.h"
#include "cupti_agent/framework/nvtx_tap.h"
#include "cupti_agent/framework/step_counter.h"

namespace tidemark::agent {
namespace {

int StepsOf(StepCounter& counter, int iterations, int passes, int scopes) {
  int steps = 0;
  for (int i = 0; i < iterations; ++i) {
    for (int p = 0; p < passes; ++p) steps += counter.OnBackward() ? 1 : 0;
    for (int s = 0; s < scopes; ++s) counter.OnOptimizerScope();
  }
  return steps + (counter.OnEnd() ? 1 : 0);
}

TEST(StepCounter, WithScopesAStepEndsAtTheFirstBackwardPassAfterThem) {
  for (int passes : {1, 4}) {
    for (int scopes : {1, 2, 7}) {
      StepCounter counter;
      counter.SetScopesVisible(true);
      EXPECT_EQ(StepsOf(counter, 10, passes, scopes), 10) << passes << " passes, " << scopes;
    }
  }
}

TEST(StepCounter, ScopesBeforeTheFirstBackwardPassEndNothing) {
  StepCounter counter;
  counter.SetScopesVisible(true);
  counter.OnOptimizerScope();
  EXPECT_FALSE(counter.OnBackward());
}

TEST(StepCounter, WithoutScopesBackwardPassesAreCounted) {
  StepCounter counter;
  EXPECT_EQ(StepsOf(counter, 10, 1, 0), 10);
  StepCounter accumulating;
  accumulating.SetBackwardPerStep(4);
  EXPECT_EQ(StepsOf(accumulating, 10, 4, 0), 10);
}

TEST(StepCounter, AnUnfinishedGroupOfPassesIsNoStep) {
  StepCounter counter;
  counter.SetBackwardPerStep(4);
  EXPECT_EQ(StepsOf(counter, 1, 7, 0), 1);
}

TEST(StepCounter, WaitsForScopesBeforeItCountsPasses) {
  StepCounter counter;
  counter.SetScopesVisible(true);
  const int waited = static_cast<int>(StepCounter::kPassesWithoutScopes);
  for (int i = 0; i < waited; ++i) EXPECT_FALSE(counter.OnBackward()) << i;
  EXPECT_TRUE(counter.OnBackward());
  // An optimizer that shows up after all takes over.
  counter.OnOptimizerScope();
  EXPECT_TRUE(counter.OnBackward());
  EXPECT_FALSE(counter.OnBackward());
}

TEST(StepCounter, AnExplicitMarkEndsTheGuessing) {
  StepCounter counter;
  counter.OnExplicitStep();
  EXPECT_EQ(StepsOf(counter, 10, 1, 1), 0);
}

[[gnu::noinline]] bool Nested(int depth, bool* inner) {
  [[maybe_unused]] volatile char frame[64] = {};
  auto* pointer = static_cast<uint64_t*>(__builtin_frame_address(0)) + 1;  // the return address
  bool nested = IsNestedCall(reinterpret_cast<uint64_t>(pointer), *pointer);
  if (depth > 0) *inner = Nested(depth - 1, inner);
  frame[1] = 1;
  return nested;
}

[[gnu::noinline]] bool FromDeeper(int depth, bool* inner) {
  [[maybe_unused]] volatile char frame[256] = {};
  bool nested = depth > 0 ? FromDeeper(depth - 1, inner) : Nested(0, inner);
  frame[1] = 1;
  return nested;
}

TEST(IsNestedCall, TellsACallInsideAnotherFromALaterDeeperOne) {
  bool inner = false;
  EXPECT_FALSE(Nested(1, &inner));
  EXPECT_TRUE(inner);
  for (int depth : {0, 3, 1, 7, 2, 40}) {
    EXPECT_FALSE(FromDeeper(depth, &inner)) << depth;
    EXPECT_FALSE(Nested(1, &inner)) << depth;
    EXPECT_TRUE(inner) << depth;
  }
}

// What a compiler lays out for nvtxEventAttributes_t, up to the message.
struct Attributes {
  uint16_t version = 3;
  uint16_t size = 48;
  uint8_t unused[28] = {};
  int32_t message_type = 1;
  const char* message = "step";
};

class Nvtx : public testing::Test {
 protected:
  void SetUp() override { SetStepRange("step"); }
  void TearDown() override { SetStepRange(""); }

  // Whether the call was taken as a step: from then on the counter guesses nothing.
  bool IsStep(void (*observer)(const HookCall&), int argument, const void* value) {
    HookCall call = {};
    call.arguments[argument] = reinterpret_cast<uint64_t>(value);
    observer(call);
    g_step_counter.OnBackward();
    return !g_step_counter.OnBackward();
  }
};

TEST_F(Nvtx, ARangeOfAnotherNameIsNoStep) {
  Attributes attributes;
  attributes.message = "forward";
  EXPECT_FALSE(IsStep(OnRangePush, 0, "forward"));
  EXPECT_FALSE(IsStep(OnRangePush, 0, nullptr));
  EXPECT_FALSE(IsStep(OnRangePushEx, 0, &attributes));
  EXPECT_FALSE(IsStep(OnDomainRangePushEx, 1, nullptr));
  attributes.message = "step";
  attributes.message_type = 2;  // UTF-16
  EXPECT_FALSE(IsStep(OnDomainRangePushEx, 1, &attributes));
  attributes.message_type = 1;
  attributes.size = 24;  // ends before the message
  EXPECT_FALSE(IsStep(OnRangePushEx, 0, &attributes));
  SetStepRange("");
  EXPECT_FALSE(IsStep(OnRangePush, 0, ""));
}

TEST_F(Nvtx, TheConfiguredRangeIsAStep) {
  Attributes attributes;
  EXPECT_TRUE(IsStep(OnDomainRangePushEx, 1, &attributes));
  EXPECT_TRUE(IsStep(OnRangePushEx, 0, &attributes));
  EXPECT_TRUE(IsStep(OnRangePush, 0, "step"));
}

}  // namespace
}  // namespace tidemark::agent
