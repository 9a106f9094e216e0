// A spin lock that gives up: the agent must not make a thread of the job wait without bound, and a
// signal handler may have interrupted the holder on this very thread.
#pragma once

#include <sched.h>
#include <time.h>

#include <atomic>
#include <cstdint>

namespace tidemark::agent {

class BoundedLock {
 public:
  // False when the lock was not had within `patience_ns`.
  bool Acquire(uint64_t patience_ns) {
    if (!held_.exchange(true, std::memory_order_acquire)) return true;
    uint64_t give_up = Now() + patience_ns;
    while (held_.load(std::memory_order_relaxed) ||
           held_.exchange(true, std::memory_order_acquire)) {
      if (Now() > give_up) return false;
      sched_yield();
    }
    return true;
  }
  void Release() { held_.store(false, std::memory_order_release); }

 private:
  static uint64_t Now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
  }

  std::atomic<bool> held_{false};
};

}  // namespace tidemark::agent
