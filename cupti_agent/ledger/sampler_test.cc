#include "cupti_agent/ledger/sampler.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tidemark::agent {
namespace {

TEST(SamplerTest, EstimateIsTheFormulaOfTheHeader) {
  constexpr uint64_t kInterval = 1 << 20;
  for (uint64_t bytes : {1ul, 512ul, 65536ul, 262144ul, 524288ul, kInterval - 1}) {
    const double z = static_cast<double>(bytes);
    const double exact = z / -std::expm1(-z / kInterval);
    EXPECT_NEAR(static_cast<double>(Sampler::Estimate(bytes, kInterval)), exact, 0.5 + exact * 1e-9)
        << bytes;
  }
}

TEST(SamplerTest, EveryAllocationFromTheIntervalUpIsPickedAndStandsForItself) {
  Sampler sampler;
  sampler.Init(1 << 20, 1);
  for (uint64_t bytes : {1ul << 20, (1ul << 20) + 1, 1ul << 40}) {
    EXPECT_EQ(sampler.Sample(bytes), bytes);
  }
  sampler.SetInterval(1);
  for (uint64_t bytes = 1; bytes < 1000; ++bytes) EXPECT_EQ(sampler.Sample(bytes), bytes);
}

TEST(SamplerTest, SumOfEstimatesIsUnbiasedForEverySize) {
  constexpr uint64_t kInterval = 1 << 16;
  Sampler sampler;
  sampler.Init(kInterval, 12345);
  for (uint64_t bytes : {512ul, 4096ul, 20000ul, 60000ul}) {
    double sum = 0;
    uint64_t picked = 0;
    constexpr int kAllocations = 400000;
    for (int i = 0; i < kAllocations; ++i) {
      const uint64_t estimate = sampler.Sample(bytes);
      sum += static_cast<double>(estimate);
      picked += estimate != 0;
    }
    const double truth = static_cast<double>(bytes) * kAllocations;
    const double p = -std::expm1(-static_cast<double>(bytes) / kInterval);
    // Five standard deviations of a binomial count.
    const double sigma = std::sqrt(kAllocations * p * (1 - p));
    EXPECT_NEAR(static_cast<double>(picked), p * kAllocations, 5 * sigma) << bytes;
    EXPECT_NEAR(sum / truth, 1, 5 * sigma / (p * kAllocations)) << bytes;
  }
}

TEST(SamplerTest, SeedDecidesWhichAllocationsArePicked) {
  auto picks = [](uint64_t seed) {
    Sampler sampler;
    sampler.Init(1 << 20, seed);
    std::string text;
    for (int i = 0; i < 2000; ++i) text += sampler.Sample(40000) ? '1' : '0';
    return text;
  };
  EXPECT_EQ(picks(7), picks(7));
  EXPECT_NE(picks(7), picks(8));
}

}  // namespace
}  // namespace tidemark::agent
