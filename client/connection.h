// One daemon, over its API socket. Owned and used by one thread. The daemon is trusted with what it
// says about itself; text that came from a job is made printable before it is shown.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

class Connection {
 public:
  // The first of `sockets` on which something accepts. On failure the error lists what was tried
  // and says how to start a daemon.
  static Result<Connection> Open(const std::vector<std::string>& sockets);

  Connection(Connection&&) noexcept;
  Connection& operator=(Connection&&) noexcept;
  ~Connection();

  const std::string& socket() const { return socket_; }

  Result<v1::Snapshot> GetSnapshot(const v1::GetSnapshotRequest& request,
                                   std::chrono::milliseconds timeout = std::chrono::seconds(10));
  // Calls `each` for every snapshot until it returns false (success) or the daemon ends the stream.
  Result<void> WatchSnapshots(const v1::GetSnapshotRequest& request,
                              const std::function<bool(const v1::Snapshot&)>& each);
  Result<v1::ListHoldersResponse> ListHolders(const v1::ListHoldersRequest& request);
  Result<v1::DetachResponse> Detach(const v1::DetachRequest& request);
  Result<v1::ReleaseGpuResponse> ReleaseGpu(const v1::ReleaseGpuRequest& request);
  Result<v1::ListPostmortemsResponse> ListPostmortems();
  Result<v1::Postmortem> GetPostmortem(const std::string& id);
  // Every page of it, in one.
  Result<v1::QueryRangeResponse> QueryRange(v1::QueryRangeRequest request);
  // The whole file.
  Result<std::string> Export(const v1::ExportRequest& request);

  // Whether the last failed call failed because the daemon said no (no such process, not yours)
  // rather than because it could not be reached.
  bool refused() const { return refused_; }

 private:
  class Stub;
  Connection(std::string socket, std::unique_ptr<Stub> stub);
  template <typename Response, typename Call>
  Result<Response> Ask(const std::string& tried, std::chrono::milliseconds timeout, Call call);

  std::string socket_;
  std::unique_ptr<Stub> stub_;
  bool refused_ = false;
};

}  // namespace tidemark::client
