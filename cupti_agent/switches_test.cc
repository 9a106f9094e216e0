#include "cupti_agent/switches.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>

#include "cupti_agent/environment.h"
#include "wire/handshake.h"
#include "wire/region.h"

namespace tidemark::agent {
namespace {

std::map<std::string, std::string> g_variables;

const char* Get(const char* name) {
  const auto it = g_variables.find(name);
  return it == g_variables.end() ? nullptr : it->second.c_str();
}

Switches With(std::map<std::string, std::string> variables, const char* off_file = "/nonexistent") {
  g_variables = std::move(variables);
  return ReadSwitches(Get, off_file);
}

TEST(SwitchesTest, NothingSetMeansEverythingOnWithTheDefaults) {
  const Switches switches = With({});
  EXPECT_FALSE(switches.off);
  EXPECT_EQ(switches.taps, wire::kTapAll);
  EXPECT_EQ(switches.region_bytes, wire::kDefaultRegionBytes);
  EXPECT_EQ(switches.sampling_interval_bytes, 1u << 20);
  EXPECT_EQ(switches.max_records_per_second, 2000u);
}

TEST(SwitchesTest, OffByVariableAndByFile) {
  EXPECT_TRUE(With({{"TIDEMARK", "off"}}).off);
  EXPECT_TRUE(With({{"TIDEMARK", "OFF"}}).off);
  EXPECT_FALSE(With({{"TIDEMARK", "on"}}).off);
  char path[] = "/tmp/tidemark-off-XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  close(fd);
  EXPECT_TRUE(With({}, path).off);
  unlink(path);
  EXPECT_FALSE(With({}, path).off);
}

TEST(SwitchesTest, TapsAreThoseNamed) {
  EXPECT_EQ(With({{"TIDEMARK_TAPS", "cupti"}}).taps, wire::kTapCupti);
  EXPECT_EQ(With({{"TIDEMARK_TAPS", "framework,steps"}}).taps,
            wire::kTapFramework | wire::kTapSteps);
  EXPECT_EQ(With({{"TIDEMARK_TAPS", "all"}}).taps, wire::kTapAll);
  EXPECT_EQ(With({{"TIDEMARK_TAPS", "none"}}).taps, 0u);
  EXPECT_EQ(With({{"TIDEMARK_TAPS", ",,cupti,,"}}).taps, wire::kTapCupti);
}

TEST(SwitchesTest, NumberThatIsNoneLeavesTheDefault) {
  for (const char* text : {"", "x", "12x", "-1", "1e6"}) {
    EXPECT_EQ(With({{"TIDEMARK_SAMPLING_BYTES", text}}).sampling_interval_bytes, 1u << 20) << text;
  }
  EXPECT_EQ(With({{"TIDEMARK_SAMPLING_BYTES", "4096"}}).sampling_interval_bytes, 4096u);
  EXPECT_EQ(With({{"TIDEMARK_MAX_RECORDS_PER_SECOND", "0"}}).max_records_per_second, 0u);
}

std::string Collect(size_t room) {
  std::string text(room, '?');
  text.resize(CollectEnvironment(Get, text.data(), room));
  return text;
}

TEST(EnvironmentTest, OnlyTheAllowListLeavesTheProcess) {
  g_variables = {
      {"RANK", "3"}, {"WORLD_SIZE", "8"}, {"AWS_SECRET_ACCESS_KEY", "s"}, {"HOME", "/r"}};
  EXPECT_EQ(Collect(2048), std::string("RANK=3\0WORLD_SIZE=8\0", 20));
}

TEST(EnvironmentTest, VariableThatDoesNotFitIsLeftOutWhole) {
  g_variables = {{"TIDEMARK_JOB", std::string(3000, 'j')}, {"RANK", "3"}};
  EXPECT_EQ(Collect(2048), std::string("RANK=3\0", 7));
  EXPECT_EQ(Collect(7), std::string("RANK=3\0", 7));
  EXPECT_EQ(Collect(6), "");
}

}  // namespace
}  // namespace tidemark::agent
