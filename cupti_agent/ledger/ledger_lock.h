// The ledger's lock: bounded and aware of its owner. Taken inside foreign locks and, by accident,
// inside signal handlers, so it never waits without bound and never waits for its own thread.
//
// The owner's name is its thread pointer: unlike thread_local it needs no storage that a dlopened
// library might have to allocate lazily, and unlike gettid() it costs no system call.
#pragma once

#include <atomic>
#include <cstdint>

namespace tidemark::agent {

inline uintptr_t ThisThread() { return reinterpret_cast<uintptr_t>(__builtin_thread_pointer()); }

class LedgerLock {
 public:
  enum class Outcome { kHeld, kReentry, kTimeout };

  // Waits at most kPatienceNs; right after a time-out kImpatienceNs, until somebody gets the lock
  // again: one stuck owner must not cost every allocation of the job a long wait.
  Outcome Acquire() {
    uintptr_t expected = 0;
    if (owner_.compare_exchange_strong(expected, ThisThread(), std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
      return Outcome::kHeld;
    }
    return expected == ThisThread() ? Outcome::kReentry : AcquireSlowly();
  }
  void Release() { owner_.store(0, std::memory_order_release); }

  static constexpr uint64_t kPatienceNs = 250'000'000;
  static constexpr uint64_t kImpatienceNs = 1'000'000;

 private:
  Outcome AcquireSlowly();

  std::atomic<uintptr_t> owner_{0};
  std::atomic<bool> timed_out_{false};
};

}  // namespace tidemark::agent
