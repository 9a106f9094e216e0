#include "cupti_agent/ledger/ledger_lock.h"

#include <sched.h>

#include <ctime>

#include "cupti_agent/ledger/monotonic.h"

namespace tidemark::agent {
namespace {

constexpr int kSpins = 200;
constexpr int kYields = 64;
constexpr long kNapNs = 50'000;

}  // namespace

LedgerLock::Outcome LedgerLock::AcquireSlowly() {
  const uintptr_t self = ThisThread();
  auto try_once = [&] {
    uintptr_t expected = 0;
    return owner_.load(std::memory_order_relaxed) == 0 &&
           owner_.compare_exchange_strong(expected, self, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  };
  for (int i = 0; i < kSpins; ++i) {
    if (try_once()) return Outcome::kHeld;
    __builtin_ia32_pause();
  }
  const uint64_t patience =
      timed_out_.load(std::memory_order_relaxed) ? kImpatienceNs : kPatienceNs;
  const uint64_t start = MonotonicNs();
  for (int round = 0;; ++round) {
    if (try_once()) {
      timed_out_.store(false, std::memory_order_relaxed);
      return Outcome::kHeld;
    }
    if (MonotonicNs() - start > patience) break;
    if (round < kYields) {
      sched_yield();
    } else {
      timespec nap{0, kNapNs};
      nanosleep(&nap, nullptr);
    }
  }
  timed_out_.store(true, std::memory_order_relaxed);
  return Outcome::kTimeout;
}

}  // namespace tidemark::agent
