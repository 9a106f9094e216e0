// Serialised answers to snapshot requests. A hundred clients that watch the same thing share one
// conversion and one buffer a tick. Thread-safe.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "daemon/serve/peer.h"
#include "daemon/serve/to_proto.h"
#include "daemon/snapshot/snapshot_hub.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::serve {

// What goes beside the snapshot's own fields.
struct DaemonInfo {
  std::string version;
  std::string metrics_url;
};

// Fails with a message for a negative limit.
Result<ProtoOptions> ToOptions(const v1::GetSnapshotRequest& request);

// One viewer's snapshot as a message.
void BuildView(const NodeSnapshot& snapshot, const ProtoOptions& options, const Viewer& viewer,
               const DaemonInfo& info, v1::Snapshot* out);

class SnapshotViews {
 public:
  static constexpr size_t kMaxCached = 8;  // distinct (request, viewer) pairs of one snapshot

  explicit SnapshotViews(DaemonInfo info) : info_(std::move(info)) {}

  // `request` must have passed ToOptions. Fails when the message would be larger than protobuf can
  // write (2 GiB).
  Result<grpc::ByteBuffer> Serialized(const SnapshotHub::Pointer& snapshot,
                                      const v1::GetSnapshotRequest& request, const Viewer& viewer);

 private:
  const DaemonInfo info_;
  std::mutex mutex_;
  uint64_t sequence_ = 0;  // of what is cached
  std::map<std::pair<Viewer, std::string>, grpc::ByteBuffer> cached_;
};

}  // namespace tidemark::serve
