#pragma once

#include <cstdint>
#include <ctime>

namespace tidemark::agent {

inline uint64_t ClockNs(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

inline uint64_t MonotonicNs() { return ClockNs(CLOCK_MONOTONIC); }

// A few ms behind, and a few ns instead of tens: for moments on hot paths.
inline uint64_t CoarseMonotonicNs() { return ClockNs(CLOCK_MONOTONIC_COARSE); }

}  // namespace tidemark::agent
