#include "client/targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace tidemark::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TargetsTest, AListMayLeavePortsOutAndRepeatNodes) {
  const auto targets = ParseTargets("gpu-1:9000,gpu-2,[fd00::1]:7,gpu-2:9471");
  ASSERT_TRUE(targets.ok()) << targets.error().ToString();
  EXPECT_THAT(*targets,
              ElementsAre(Target{"gpu-1", 9000}, Target{"gpu-2", 9471}, Target{"fd00::1", 7}));
  EXPECT_EQ((*targets)[2].Text(), "[fd00::1]:7");
}

TEST(TargetsTest, WhatIsNoHostAndPortIsAnErrorThatQuotesIt) {
  for (const char* bad : {"gpu-1:", "gpu-1:0", "gpu-1:70000", "gpu-1:x", ":9471", "[fd00::1", "a b",
                          "[::1]x", "http://gpu-1", "gpu-1,,gpu-2", "unix:/run/x"}) {
    const auto targets = ParseTargets(bad);
    EXPECT_FALSE(targets.ok()) << bad;
  }
  EXPECT_THAT(ParseTargets("a,b:x").error().tried, HasSubstr("\"b:x\""));
}

class TargetsFileTest : public ::testing::Test {
 protected:
  Result<std::vector<Target>> Read(const std::string& text) {
    const std::string path = ::testing::TempDir() + "tidemark-targets.json";
    std::ofstream(path) << text;
    auto targets = ReadTargetsFile(path, 9471);
    std::remove(path.c_str());
    return targets;
  }
};

TEST_F(TargetsFileTest, TheMetricsPortIsReplaced) {
  const auto targets = Read(R"([{"targets": ["gpu-1:9470", "gpu-2:9470"], "labels": {"a": "b"}},
                                {"targets": ["gpu-1:9470"]}])");
  ASSERT_TRUE(targets.ok()) << targets.error().ToString();
  EXPECT_THAT(*targets, ElementsAre(Target{"gpu-1", 9471}, Target{"gpu-2", 9471}));
}

TEST_F(TargetsFileTest, AnythingElseIsRefused) {
  for (const char* bad : {"", "{", "{}", "[1]", "[{}]", R"([{"targets": "a"}])",
                          R"([{"targets": [1]}])", R"([{"targets": ["a:b:c"]}])"}) {
    EXPECT_FALSE(Read(bad).ok()) << bad;
  }
  EXPECT_FALSE(ReadTargetsFile("/nowhere/at/all", 1).ok());
}

TEST(PrometheusTargetsTest, OnlyJobsOfTidemarkCountAndDownOnesToo) {
  const auto targets = ParsePrometheusTargets(R"({"status": "success", "data": {"activeTargets": [
      {"labels": {"job": "tidemark", "instance": "gpu-1:9470"}, "health": "up"},
      {"labels": {"job": "my-tidemark", "instance": "gpu-2:9470"}, "health": "down"},
      {"labels": {"job": "node", "instance": "gpu-3:9100"}}]}})",
                                              9471);
  ASSERT_TRUE(targets.ok()) << targets.error().ToString();
  EXPECT_THAT(*targets, ElementsAre(Target{"gpu-1", 9471}, Target{"gpu-2", 9471}));
}

TEST(PrometheusTargetsTest, AStrangeAnswerIsAnErrorNotACrash) {
  for (const char* bad :
       {"", "<html>", "[]", "null", R"({"status": "error"})", R"({"status": "success"})",
        R"({"status": "success", "data": []})", R"({"status": 1, "data": {}})",
        R"({"status": "success", "data": {"activeTargets": {}}})",
        R"({"status": "success", "data": {"activeTargets": [1]}})"}) {
    EXPECT_FALSE(ParsePrometheusTargets(bad, 9471).ok()) << bad;
  }
}

}  // namespace
}  // namespace tidemark::client
