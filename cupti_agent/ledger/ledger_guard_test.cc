// What happens when the lock is not to be had, and when the process is not the one that started.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "cupti_agent/ledger/ledger.h"
#include "cupti_agent/ledger/ledger_test_util.h"
#include "cupti_agent/ledger/monotonic.h"

namespace tidemark::agent {
namespace {

using testing::LedgerTest;
using wire::Loss;

TEST(LedgerLockTest, SecondAcquireOfTheSameThreadIsReentryNotADeadlock) {
  LedgerLock lock;
  ASSERT_EQ(lock.Acquire(), LedgerLock::Outcome::kHeld);
  EXPECT_EQ(lock.Acquire(), LedgerLock::Outcome::kReentry);
  lock.Release();
  EXPECT_EQ(lock.Acquire(), LedgerLock::Outcome::kHeld);
  lock.Release();
}

TEST(LedgerLockTest, StuckOwnerCostsOneLongWaitThenShortOnes) {
  LedgerLock lock;
  std::atomic<bool> held{false}, let_go{false};
  std::thread owner([&] {
    (void)lock.Acquire();
    held = true;
    while (!let_go) usleep(1000);
    lock.Release();
  });
  while (!held) usleep(100);
  auto wait_ns = [&] {
    const uint64_t start = MonotonicNs();
    EXPECT_EQ(lock.Acquire(), LedgerLock::Outcome::kTimeout);
    return MonotonicNs() - start;
  };
  EXPECT_GE(wait_ns(), LedgerLock::kPatienceNs);
  EXPECT_LT(wait_ns(), LedgerLock::kPatienceNs / 2);
  let_go = true;
  owner.join();
  EXPECT_EQ(lock.Acquire(), LedgerLock::Outcome::kHeld);
  lock.Release();
}

Ledger* g_interrupted = nullptr;

TEST_F(LedgerTest, SignalHandlerThatAllocatesIsRefusedAndCountedOnlyInsideTheLock) {
  Open();
  g_interrupted = &ledger();
  struct sigaction action = {};
  action.sa_handler = [](int) {
    g_interrupted->FrameworkAllocated({.address = 0x99000, .bytes = 64, .device = 0}, 0, nullptr);
    g_interrupted->FrameworkFreed({.address = 0x99000, .bytes = 64, .device = 0});
  };
  struct sigaction old;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &old), 0);
  std::atomic<bool> stop{false};
  pthread_t self = pthread_self();
  std::thread sender([&] {
    while (!stop) {
      pthread_kill(self, SIGUSR1);
      usleep(20);
    }
  });
  for (uint64_t i = 0; i < 200000; ++i) {
    ledger().FrameworkAllocated({.address = 0x1000, .bytes = 512, .device = 0}, 0, nullptr);
    ledger().FrameworkFreed({.address = 0x1000, .bytes = 512, .device = 0});
  }
  stop = true;
  sender.join();
  sigaction(SIGUSR1, &old, nullptr);
  EXPECT_EQ(Losses(Loss::kLockTimeout), 0u);
  // Whether or not a signal hit inside the lock: an allocation and its free are refused or booked.
  const wire::TotalsRow* row = Totals(wire::Layer::kFramework, wire::Kind::kFwBlock, 0);
  EXPECT_EQ(row->live_bytes, static_cast<int64_t>(64 * (row->allocations - row->frees)));
}

TEST(AliveTest, ForkedChildHasNoLedgerAndLeavesTheParentsRegionAlone) {
  ASSERT_EQ(Active(), nullptr);
  ASSERT_EQ(g_ledger.Open({.region_bytes = kMinRegionBytes}), nullptr);
  ASSERT_TRUE(BecomeAlive());
  ASSERT_NE(Active(), nullptr);
  Active()->FrameworkAllocated({.address = 0x1000, .bytes = 512, .device = 0}, 0, nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (Ledger* ledger = Active()) {
      ledger->FrameworkAllocated({.address = 0x2000, .bytes = 99, .device = 0}, 0, nullptr);
      _exit(1);
    }
    _exit(0);
  }
  int status;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(g_ledger.region().Rows<wire::TotalsRow>(wire::Section::kTotals)[0].live_bytes, 512);
  CeaseAlive();
  EXPECT_EQ(Active(), nullptr);
}

}  // namespace
}  // namespace tidemark::agent
