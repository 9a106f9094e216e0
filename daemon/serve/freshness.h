// Whether the tick is alive: what /healthz and gRPC health say.
#pragma once

#include <chrono>
#include <ctime>

#include "daemon/snapshot/snapshot_hub.h"

namespace tidemark::serve {

// By CLOCK_MONOTONIC, as the tick thread stamps its snapshots.
inline bool IsFresh(const SnapshotHub::Pointer& snapshot, std::chrono::nanoseconds limit) {
  if (!snapshot) return false;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t age =
      now.tv_sec * 1'000'000'000LL + now.tv_nsec - static_cast<int64_t>(snapshot->monotonic_ns);
  return age < limit.count();
}

}  // namespace tidemark::serve
