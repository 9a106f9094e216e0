// What the API answers about the past: for gRPC and HTTP alike, without either's headers. Each call
// may take until its deadline, so it belongs on a thread that may wait.
//
// Thread-safe. Requests are untrusted, and a viewer sees only processes that snapshots would show.
#pragma once

#include <chrono>
#include <string>

#include "daemon/serve/peer.h"
#include "daemon/snapshot/snapshot_hub.h"
#include "daemon/store/history_reader.h"

namespace tidemark::v1 {
class DiffRequest;
class DiffResponse;
class ExportRequest;
}  // namespace tidemark::v1

namespace tidemark::serve {

class HistoryCalls {
 public:
  // What a caller gets who brings no deadline, and at most.
  static constexpr std::chrono::seconds kPatience{10};
  static constexpr size_t kMostFileBytes = 256 << 20;
  static constexpr size_t kMostPointsOfFile = 4'000'000;

  // `history` may be null: the daemon keeps none. Both outlive this.
  HistoryCalls(const SnapshotHub& hub, const HistoryReader* history)
      : hub_(hub), history_(history) {}

  QueryStatus QueryRange(const v1::QueryRangeRequest& request, const Viewer& viewer,
                         std::chrono::steady_clock::time_point deadline,
                         v1::QueryRangeResponse* out) const;
  QueryStatus Diff(const v1::DiffRequest& request, const Viewer& viewer,
                   std::chrono::steady_clock::time_point deadline, v1::DiffResponse* out) const;
  // The whole file, of at most kMostFileBytes.
  QueryStatus Export(const v1::ExportRequest& request, const Viewer& viewer,
                     std::chrono::steady_clock::time_point deadline, std::string* file) const;

 private:
  const SnapshotHub& hub_;
  const HistoryReader* const history_;
};

}  // namespace tidemark::serve
