#include "cupti_agent/ledger/live_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace tidemark::agent {
namespace {

class LiveTableTest : public ::testing::Test {
 protected:
  void Init(uint32_t capacity) {
    rows_.assign(capacity, {});
    ASSERT_TRUE(table_.Init(rows_.data(), &used_, capacity));
  }
  std::vector<wire::LiveRow> rows_;
  uint64_t used_ = 0;
  LiveTable table_;
};

TEST_F(LiveTableTest, HoldsExactlyWhatAMapHoldsWhileItGrowsAndShrinks) {
  constexpr uint32_t kCapacity = 50000;
  Init(kCapacity);
  std::map<uint64_t, uint64_t> truth;
  std::mt19937_64 random(3);
  for (int op = 0; op < 300000; ++op) {
    const uint64_t address = 0x7f0000000000 + (random() % 100000) * 512;
    const uint32_t found = table_.Find(address, Space::kAddress);
    ASSERT_EQ(found != LiveTable::kNone, truth.count(address) == 1);
    if (found != LiveTable::kNone) {
      ASSERT_EQ(table_.row(found).bytes, truth[address]);
      table_.Erase(found);
      truth.erase(address);
    } else if (table_.full()) {
      ASSERT_EQ(truth.size(), kCapacity);
    } else {
      ASSERT_NE(table_.Insert({address, random() % 1000, 0, 0, 0}, Space::kAddress, 3, 9),
                LiveTable::kNone);
      truth[address] = table_.row(table_.Find(address, Space::kAddress)).bytes;
    }
  }
  EXPECT_EQ(table_.live(), truth.size());
  for (const auto& [address, bytes] : truth) {
    ASSERT_NE(table_.Find(address, Space::kAddress), LiveTable::kNone);
  }
}

TEST_F(LiveTableTest, FullTableRefusesAndTakesAgainAfterAnErase) {
  Init(100);
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_NE(table_.Insert({16 + i, 1, 0, 0, 0}, Space::kAddress, 0, 0), LiveTable::kNone);
  }
  EXPECT_TRUE(table_.full());
  EXPECT_EQ(table_.Insert({5000, 1, 0, 0, 0}, Space::kAddress, 0, 0), LiveTable::kNone);
  table_.Erase(table_.Find(20, Space::kAddress));
  EXPECT_NE(table_.Insert({5000, 1, 0, 0, 0}, Space::kAddress, 0, 0), LiveTable::kNone);
  EXPECT_NE(table_.Find(5000, Space::kAddress), LiveTable::kNone);
}

TEST_F(LiveTableTest, StaysDenseAtTheFrontHoweverManyAddressesPass) {
  Init(100000);
  for (uint64_t i = 0; i < 50000; ++i) {
    const uint32_t number =
        table_.Insert({0x1000 + i * 4096, 1, 0, 0, 0}, Space::kAddress, 0, kNoOwner);
    if (i >= 10) table_.Erase(table_.Find(0x1000 + (i - 10) * 4096, Space::kAddress));
    ASSERT_LT(number, 12u);
  }
  EXPECT_LE(table_.ResidentIndexBytes(), 3u * 4096);
}

}  // namespace
}  // namespace tidemark::agent
