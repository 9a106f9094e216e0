// Hand-made snapshots and a Control that remembers, for the tests and benchmarks of serving.
#pragma once

#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/serve/control.h"
#include "daemon/snapshot/node_snapshot.h"

namespace tidemark::serve::testing {

inline uint64_t MonotonicNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// A Python site that keeps `live_bytes`, blamed at model.py:`line`.
std::shared_ptr<const SiteView> MakeSite(uint64_t id, int64_t live_bytes, uint32_t line);

// A rank on its own device with every class of memory, `sites` sites and a confirmed leak.
ProcessSnapshot MakeRank(pid_t pid, int rank, uid_t uid, size_t sites = 4);

// A fresh node with `ranks` ranks of one job.
NodeSnapshot MakeNode(size_t ranks, size_t sites = 4, uint64_t sequence = 1);

inline std::shared_ptr<const NodeSnapshot> Share(NodeSnapshot snapshot) {
  return std::make_shared<const NodeSnapshot>(std::move(snapshot));
}

class FakeControl : public Control {
 public:
  Result<void> Detach(pid_t pid) override {
    std::lock_guard lock(mutex);
    if (pid == without_agent) return Error{"detach", "the process has no agent", ""};
    detached.push_back(pid);
    return {};
  }
  Result<std::vector<HeldBlock>> Holders(pid_t, uint64_t site_id) override {
    if (hold.count() > 0) std::this_thread::sleep_for(hold);
    std::vector<HeldBlock> blocks;
    for (uint64_t i = 0; i < 100; ++i) blocks.push_back({0x1000 * (i + 1), site_id, i});
    return blocks;
  }
  Result<void> ReleaseGpu(bool resume) override {
    released = !resume;
    return {};
  }

  std::mutex mutex;
  std::vector<pid_t> detached;
  pid_t without_agent = -1;
  std::atomic<bool> released = false;
  std::chrono::milliseconds hold{0};
};

}  // namespace tidemark::serve::testing
