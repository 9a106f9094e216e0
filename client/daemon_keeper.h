// While the job runs: keeps the private daemon from thinking it is idle, and starts it again should
// it die; the agents in the job find the new one by themselves. A thread of its own, so that a
// daemon that hangs never delays a signal or the job's end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "client/private_daemon.h"

namespace tidemark::client {

class DaemonKeeper {
 public:
  DaemonKeeper(DaemonLocator locator, DaemonEndpoint endpoint,
               std::chrono::milliseconds interval = std::chrono::seconds(2));
  ~DaemonKeeper();  // stops
  DaemonKeeper(const DaemonKeeper&) = delete;
  DaemonKeeper& operator=(const DaemonKeeper&) = delete;

  // Returns how often the daemon had to be started again.
  int Stop();

 private:
  void Keep();

  const DaemonLocator locator_;
  const DaemonEndpoint endpoint_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  int restarts_ = 0;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace tidemark::client
