#include "daemon/source/bpf/allocation_ledger.h"

#include <gtest/gtest.h>

namespace tidemark {
namespace {

constexpr AllocationKey kA = {KeySpace::kPointer, 0xa000};
constexpr AllocationKey kB = {KeySpace::kPointer, 0xb000};

LedgerAllocation Bytes(uint64_t bytes, uint64_t time_ns = 1) {
  return {.bytes = bytes, .time_ns = time_ns, .memory_class = MemoryClass::kPinned};
}

LedgerTotal Pinned(const AllocationLedger& ledger) {
  auto found = ledger.totals().find({MemoryClass::kPinned, -1});
  return found == ledger.totals().end() ? LedgerTotal{} : found->second;
}

TEST(AllocationLedgerTest, AFreeThatSucceedsEndsTheAllocationWhenItBegins) {
  AllocationLedger ledger(10);
  ledger.Allocate(kA, Bytes(100));
  ledger.BeginFree(1, kA);
  EXPECT_EQ(Pinned(ledger).live_bytes, 0u);
  EXPECT_EQ(Pinned(ledger).freed_bytes, 100u);
  EXPECT_EQ(Pinned(ledger).peak_bytes, 100u);
}

TEST(AllocationLedgerTest, AFreeThatFailsPutsTheAllocationBack) {
  AllocationLedger ledger(10);
  ledger.Allocate(kA, Bytes(100));
  ledger.BeginFree(1, kA);
  ledger.FailFree(1);
  EXPECT_EQ(Pinned(ledger).live_bytes, 100u);
  EXPECT_EQ(Pinned(ledger).live_count, 1u);
  EXPECT_EQ(Pinned(ledger).freed_bytes, 0u);
  EXPECT_EQ(Pinned(ledger).allocated_count, 1u);
}

TEST(AllocationLedgerTest, AnAllocationThatFindsItsAddressHeldByAPendingFreeWins) {
  AllocationLedger ledger(10);
  ledger.Allocate(kA, Bytes(100));
  ledger.BeginFree(1, kA);
  ledger.Allocate(kA, Bytes(7));  // another thread was handed the address
  ledger.FailFree(1);
  EXPECT_EQ(Pinned(ledger).live_bytes, 7u);
  EXPECT_EQ(Pinned(ledger).live_count, 1u);
}

TEST(AllocationLedgerTest, FreesOfUnknownAddressesAreCountedAndSubtractNothing) {
  AllocationLedger ledger(10);
  ledger.Allocate(kA, Bytes(100));
  ledger.BeginFree(1, kB);
  EXPECT_EQ(ledger.unknown_frees(), 1u);
  EXPECT_EQ(Pinned(ledger).live_bytes, 100u);
  ledger.BeginFree(2, kB);
  ledger.FailFree(2);  // not even an allocation from before
  EXPECT_EQ(ledger.unknown_frees(), 1u);
}

TEST(AllocationLedgerTest, AnAddressHandedOutTwiceWasFreedInBetween) {
  AllocationLedger ledger(10);
  ledger.Allocate(kA, Bytes(100));
  ledger.Allocate(kA, Bytes(30));
  EXPECT_EQ(Pinned(ledger).live_bytes, 30u);
  EXPECT_EQ(Pinned(ledger).live_count, 1u);
  EXPECT_EQ(Pinned(ledger).allocated_bytes, 130u);
  EXPECT_EQ(Pinned(ledger).freed_bytes, 100u);
}

TEST(AllocationLedgerTest, AFullTableKeepsAllocatedTotalsExactAndSaysHowManyAreMissing) {
  AllocationLedger ledger(2);
  for (uint64_t i = 1; i <= 5; ++i) ledger.Allocate({KeySpace::kPointer, i}, Bytes(10));
  EXPECT_EQ(Pinned(ledger).allocated_bytes, 50u);
  EXPECT_EQ(Pinned(ledger).live_bytes, 20u);
  EXPECT_EQ(ledger.table_full(), 3u);
}

TEST(AllocationLedgerTest, WhatAnotherWitnessKnewCountsOnceWhateverHappenedMeanwhile) {
  AllocationLedger ledger(10);
  ledger.BeginFree(1, kA);         // from before, freed since
  ledger.Allocate(kB, Bytes(50));  // seen by both
  ledger.Seed(kA, Bytes(100));
  ledger.Seed(kB, Bytes(50));
  ledger.Seed({KeySpace::kPointer, 0xc000}, Bytes(8));
  EXPECT_EQ(Pinned(ledger).live_bytes, 58u);
  EXPECT_EQ(Pinned(ledger).live_count, 2u);
}

TEST(AllocationLedgerTest, AnotherProgramEndsOnlyWhatIsOlder) {
  AllocationLedger ledger(10);
  ledger.Allocate(kA, Bytes(100, 10));
  ledger.Allocate(kB, Bytes(7, 30));
  ledger.EndAllBefore(20);
  EXPECT_EQ(Pinned(ledger).live_bytes, 7u);
}

TEST(AllocationLedgerTest, EqualValuesOfDifferentKindsAreDifferentAllocations) {
  AllocationLedger ledger(10);
  ledger.Allocate({KeySpace::kPointer, 5}, Bytes(1));
  ledger.Allocate({KeySpace::kVmm, 5}, Bytes(2));
  ledger.BeginFree(1, {KeySpace::kVmm, 5});
  EXPECT_EQ(Pinned(ledger).live_bytes, 1u);
}

TEST(AllocationLedgerTest, SitesHoldWhatTheirStackAllocated) {
  AllocationLedger ledger(10);
  LedgerAllocation allocation = Bytes(100);
  allocation.stack_id = 42;
  ledger.Allocate(kA, allocation);
  allocation.bytes = 50;
  ledger.Allocate(kB, allocation);
  ledger.BeginFree(1, kA);
  const LedgerSite& site = ledger.sites().at({MemoryClass::kPinned, 42});
  EXPECT_EQ(site.live_bytes, 50u);
  EXPECT_EQ(site.allocated_bytes, 150u);
  EXPECT_EQ(site.min_block_bytes, 50u);
  EXPECT_EQ(site.max_block_bytes, 100u);
}

}  // namespace
}  // namespace tidemark
