#include "client/daemon_keeper.h"

#include <utility>

#include "client/connection.h"

namespace tidemark::client {

DaemonKeeper::DaemonKeeper(DaemonLocator locator, DaemonEndpoint endpoint,
                           std::chrono::milliseconds interval)
    : locator_(std::move(locator)),
      endpoint_(std::move(endpoint)),
      interval_(interval),
      thread_([this] { Keep(); }) {}

DaemonKeeper::~DaemonKeeper() { Stop(); }

int DaemonKeeper::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  return restarts_;
}

void DaemonKeeper::Keep() {
  v1::GetSnapshotRequest request;
  request.set_omit_sites(true);
  request.set_omit_steps(true);
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, interval_, [this] { return stopping_; })) {
    lock.unlock();
    bool lost = true;
    if (Result<Connection> connection = Connection::Open({endpoint_.api_socket})) {
      // An answer of any kind will do: before its first tick a daemon has no snapshot.
      lost = false;
      (void)connection->GetSnapshot(request, std::chrono::seconds(1)).ok();
    }
    const bool started = lost && endpoint_.is_private && locator_.FindOrStart().ok();
    lock.lock();
    restarts_ += started ? 1 : 0;
  }
}

}  // namespace tidemark::client
