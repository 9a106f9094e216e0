#include "daemon/source/nvml/nvml_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

namespace tidemark {
namespace {

std::shared_ptr<const NvmlSample> Ask(NvmlSource& source) {
  source.Request();
  pollfd wait = {source.event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 10'000), 1);
  source.DrainEvent();
  return source.Latest();
}

TEST(NvmlSourceTest, WithoutADriverItSaysSoAndWhatThatMeans) {
  NvmlSource source("/nonexistent/libnvidia-ml.so.1");
  ASSERT_TRUE(source.Start().ok());
  const auto sample = Ask(source);
  EXPECT_EQ(sample->state.state, "unavailable");
  EXPECT_THAT(sample->state.reason, ::testing::HasSubstr("without an NVIDIA driver"));
  EXPECT_TRUE(sample->devices.empty());
}

TEST(NvmlSourceTest, ALibraryThatIsNotNvmlIsRefused) {
  NvmlSource source("libm.so.6");
  ASSERT_TRUE(source.Start().ok());
  EXPECT_THAT(Ask(source)->state.reason, ::testing::HasSubstr("lacks NVML's basic functions"));
}

TEST(NvmlSourceTest, DevicesAreReadAndReleasedAndOpenedAgain) {
  NvmlSource source(SIM_NVML);
  ASSERT_TRUE(source.Start().ok());
  auto sample = Ask(source);
  ASSERT_EQ(sample->state.state, "on") << sample->state.reason;
  ASSERT_FALSE(sample->devices.empty());
  EXPECT_FALSE(sample->devices[0].view.uuid.empty());
  EXPECT_GT(sample->devices[0].view.total_bytes, 0);
  EXPECT_TRUE(sample->devices[0].processes_known) << sample->devices[0].why;
  EXPECT_GE(sample->end_monotonic_ns, sample->begin_monotonic_ns);

  ASSERT_TRUE(source.Release().ok());
  sample = Ask(source);
  EXPECT_EQ(sample->state.state, "off");
  EXPECT_TRUE(sample->devices.empty());
  source.Resume();
  EXPECT_EQ(Ask(source)->state.state, "on");
}

TEST(NvmlSourceTest, ReleasingWhatWasNeverOpenedIsDoneAtOnce) {
  NvmlSource source("/nonexistent/libnvidia-ml.so.1");
  ASSERT_TRUE(source.Start().ok());
  EXPECT_TRUE(source.Release().ok());
}

}  // namespace
}  // namespace tidemark
