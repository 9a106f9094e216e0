// Runs what may take up to a second (see Control) one after the other on a thread of its own, so
// that no gRPC thread waits for an agent. Post is thread-safe; jobs run on the queue's thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace tidemark::serve {

class ControlQueue {
 public:
  static constexpr size_t kMaxWaiting = 32;

  ControlQueue() : thread_([this] { Run(); }) {}

  // Jobs that wait are still run, so that each of their callers gets an answer.
  ~ControlQueue() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  // False when kMaxWaiting jobs wait already; `job` is then not run.
  [[nodiscard]] bool Post(std::function<void()> job) {
    {
      std::lock_guard lock(mutex_);
      if (jobs_.size() >= kMaxWaiting) return false;
      jobs_.push_back(std::move(job));
    }
    wake_.notify_one();
    return true;
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace tidemark::serve
