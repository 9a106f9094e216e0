// Where the tick thread publishes and everybody else looks. Readers hold the snapshot by pointer
// for as long as they like; the tick never waits for them. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "daemon/snapshot/node_snapshot.h"

namespace tidemark {

class SnapshotHub {
 public:
  using Pointer = std::shared_ptr<const NodeSnapshot>;

  void Publish(Pointer snapshot) {
    {
      std::lock_guard lock(mutex_);
      latest_ = std::move(snapshot);
    }
    published_.notify_all();
  }

  // The latest snapshot; null until the first tick is done.
  Pointer Latest() const {
    std::lock_guard lock(mutex_);
    return latest_;
  }

  // Waits for a snapshot newer than `sequence`; null when `timeout` passes or the hub closes.
  Pointer WaitNewer(uint64_t sequence, std::chrono::milliseconds timeout) const {
    std::unique_lock lock(mutex_);
    const bool newer = published_.wait_for(
        lock, timeout, [&] { return closed_ || (latest_ && latest_->sequence > sequence); });
    return newer && !closed_ ? latest_ : nullptr;
  }

  // Wakes every waiter for good; called once at shutdown.
  void Close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    published_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable published_;
  Pointer latest_;
  bool closed_ = false;
};

}  // namespace tidemark
