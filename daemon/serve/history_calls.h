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
class ListPostmortemsResponse;
class Postmortem;
}  // namespace tidemark::v1

namespace tidemark {
class PostMortems;
}

namespace tidemark::serve {

class HistoryCalls {
 public:
  // What a caller gets who brings no deadline, and at most.
  static constexpr std::chrono::seconds kPatience{10};
  static constexpr size_t kMostFileBytes = 256 << 20;
  static constexpr size_t kMostPointsOfFile = 4'000'000;

  // `history` and `post_mortems` may be null: the daemon keeps none. All outlive this.
  HistoryCalls(const SnapshotHub& hub, const HistoryReader* history,
               const PostMortems* post_mortems = nullptr)
      : hub_(hub), history_(history), post_mortems_(post_mortems) {}

  QueryStatus QueryRange(const v1::QueryRangeRequest& request, const Viewer& viewer,
                         std::chrono::steady_clock::time_point deadline,
                         v1::QueryRangeResponse* out) const;
  QueryStatus Diff(const v1::DiffRequest& request, const Viewer& viewer,
                   std::chrono::steady_clock::time_point deadline, v1::DiffResponse* out) const;
  // The whole file, of at most kMostFileBytes.
  QueryStatus Export(const v1::ExportRequest& request, const Viewer& viewer,
                     std::chrono::steady_clock::time_point deadline, std::string* file) const;

  QueryStatus ListPostmortems(const Viewer& viewer, v1::ListPostmortemsResponse* out) const;
  QueryStatus GetPostmortem(const std::string& id, const Viewer& viewer, v1::Postmortem* out) const;

 private:
  const SnapshotHub& hub_;
  const HistoryReader* const history_;
  const PostMortems* const post_mortems_;
};

}  // namespace tidemark::serve
