#include "daemon/detect/estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "daemon/detect/safetensors.h"

namespace tidemark::detect {
namespace {

std::vector<std::string> TableOf(int stage, int64_t nodes, int64_t gpus) {
  std::vector<std::string> cells;
  for (const EstimateRow& row : Estimate({stage, 6897000000, 314000000, nodes, gpus, 1.5})) {
    char text[64];
    std::snprintf(text, sizeof text, "%.2f|%.2f", static_cast<double>(row.cpu_bytes) / (1 << 30),
                  static_cast<double>(row.gpu_bytes) / (1 << 30));
    cells.push_back(text);
  }
  return cells;
}

TEST(EstimateTest, Stage3OnOneGpuPrintsUpstreamsTable) {
  EXPECT_THAT(TableOf(3, 1, 1),
              testing::ElementsAre("173.43|1.17", "173.43|1.17", "154.16|14.02", "154.16|14.02",
                                   "1.75|116.79", "38.54|116.79"));
}

TEST(EstimateTest, Stage3OnEightGpusPrintsUpstreamsTable) {
  EXPECT_THAT(TableOf(3, 1, 8), testing::ElementsAre("173.43|1.17", "308.32|1.17", "154.16|2.78",
                                                     "308.32|2.78", "14.04|15.62", "308.32|15.62"));
}

TEST(EstimateTest, Stage2FollowsItsFormulas) {
  const auto rows = Estimate({2, 1000, 0, 2, 4, 1.5});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].gpu_bytes, 2000);
  EXPECT_EQ(rows[0].cpu_bytes, 1000 * 32 * 3 / 2);
  EXPECT_EQ(rows[1].gpu_bytes, 2000 + 18000 / 8);
  EXPECT_EQ(rows[1].cpu_bytes, 1000 * 4 * 4 * 3 / 2);
}

TEST(EstimateTest, Stage1IsLabelledAsOurOwn) {
  std::ostringstream out, err;
  EXPECT_EQ(RunEstimate({1, "1000M", "", "", 1, 4, 1.5, false}, out, err), 0);
  EXPECT_THAT(out.str(), testing::HasSubstr("Tidemark's own formula"));
  EXPECT_EQ(Estimate({1, 1000, 0, 1, 4, 1.5})[0].gpu_bytes, 4000 + 3000);
}

TEST(EstimateTest, TheCommandSaysWhatItLeavesOut) {
  std::ostringstream out, err;
  EXPECT_EQ(RunEstimate({3, "6897M", "314M", "", 1, 8, 1.5, false}, out, err), 0);
  EXPECT_THAT(out.str(),
              testing::AllOf(testing::HasSubstr("Left out: activations"),
                             testing::HasSubstr("308.32GB |   1.17GB | offload_param=cpu, "
                                                "offload_optimizer=cpu, zero_init=0"),
                             testing::HasSubstr("6897M total params, 314M largest layer")));
}

TEST(EstimateTest, RefusesCountsThatAreNone) {
  for (const char* bad : {"", "x", "-5M", "0", "7Q", "1e300", "nan", "6897M "}) {
    EXPECT_FALSE(ParseParameterCount(bad).ok()) << bad;
  }
  EXPECT_EQ(*ParseParameterCount("6897M"), 6897000000);
  EXPECT_EQ(*ParseParameterCount("0.5B"), 500000000);
}

TEST(EstimateTest, RefusesOptionsThatCannotBe) {
  std::ostringstream out, err;
  EXPECT_EQ(RunEstimate({4, "1M", "1M", "", 1, 1, 1.5, false}, out, err), 2);
  EXPECT_EQ(RunEstimate({3, "1M", "", "", 1, 1, 1.5, false}, out, err), 2);
  EXPECT_EQ(RunEstimate({3, "1M", "2M", "", 1, 1, 1.5, false}, out, err), 2);
  EXPECT_EQ(RunEstimate({3, "1M", "1M", "", 0, 1, 1.5, false}, out, err), 2);
  EXPECT_EQ(RunEstimate({3, "", "", "/nonexistent", 1, 1, 1.5, false}, out, err), 2);
  EXPECT_EQ(out.str(), "");
}

std::string Safetensors(const std::string& json) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  return bytes + json;
}

TEST(SafetensorsTest, CountsParametersAndFindsTheLargestModule) {
  const auto directory = std::filesystem::path(testing::TempDir()) / "tidemark_model";
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "a.safetensors", std::ios::binary) << Safetensors(
      R"({"__metadata__":{"format":"pt"},
          "wte.weight":{"dtype":"BF16","shape":[100,8],"data_offsets":[0,1600]},
          "h.0.fc.weight":{"dtype":"BF16","shape":[8,4],"data_offsets":[1600,1664]}})");
  std::ofstream(directory / "b.safetensors", std::ios::binary)
      << Safetensors(R"({"h.0.fc.bias":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})");
  const auto model = ReadModel(directory.string());
  ASSERT_TRUE(model.ok()) << model.error().ToString();
  EXPECT_EQ(model->params, 836);
  EXPECT_EQ(model->largest_module, 800);
  EXPECT_EQ(model->largest_module_name, "wte");
  EXPECT_EQ(model->tensors.size(), 3u);
  std::filesystem::remove_all(directory);
}

TEST(SafetensorsTest, RefusesHeadersThatLie) {
  const std::string bad[] = {
      "",
      "abc",
      std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8),
      std::string("\x00\x00\x00\x06\x00\x00\x00\x00", 8) + "{}",
      Safetensors("[]"),
      Safetensors("{\"a\":{}}"),
      Safetensors(R"({"a":{"shape":[-1],"data_offsets":[0,1]}})"),
      Safetensors(R"({"a":{"shape":[4294967296,4294967296],"data_offsets":[0,1]}})"),
      Safetensors(R"({"a":{"shape":[1],"data_offsets":[9,1]}})"),
  };
  for (const std::string& bytes : bad) {
    std::istringstream in(bytes);
    EXPECT_FALSE(ReadSafetensorsHeader(in, "f").ok()) << testing::PrintToString(bytes);
  }
}

}  // namespace
}  // namespace tidemark::detect
