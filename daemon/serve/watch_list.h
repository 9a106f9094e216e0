// The streams of WatchSnapshots. A thread hands each new snapshot to every stream; a stream whose
// reader is slow skips to the latest when its last write is through.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <set>

#include "daemon/serve/snapshot_views.h"

namespace tidemark::serve {

class WatchList {
 public:
  explicit WatchList(SnapshotViews& views) : views_(views) {}

  // A reactor for one accepted stream; it deletes itself when the stream is over. `latest` may be
  // null: then the stream begins with the first tick.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Watch(v1::GetSnapshotRequest request, Viewer viewer,
                                                    const SnapshotHub::Pointer& latest);

  // From the watch thread only.
  void Offer(const SnapshotHub::Pointer& snapshot);

  // Ends every stream with `status`, and those that come later at once.
  void FinishAll(const grpc::Status& status);

 private:
  class Stream;

  SnapshotViews& views_;
  std::mutex mutex_;
  std::set<std::shared_ptr<Stream>> streams_;
  bool finished_ = false;
};

}  // namespace tidemark::serve
