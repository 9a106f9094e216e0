#include "daemon/serve/snapshot_views.h"

#include <grpcpp/impl/codegen/proto_utils.h>

namespace tidemark::serve {

Result<ProtoOptions> ToOptions(const v1::GetSnapshotRequest& request) {
  if (request.max_sites() < 0 || request.max_steps() < 0) {
    return Error{"read the request", "max_sites and max_steps must not be negative", "0 means all"};
  }
  return ProtoOptions{.pids = {request.pids().begin(), request.pids().end()},
                      .max_sites = static_cast<size_t>(request.max_sites()),
                      .max_steps = static_cast<size_t>(request.max_steps()),
                      .omit_sites = request.omit_sites(),
                      .omit_steps = request.omit_steps()};
}

void BuildView(const NodeSnapshot& snapshot, const ProtoOptions& options, const Viewer& viewer,
               const DaemonInfo& info, v1::Snapshot* out) {
  ToProto(
      snapshot, options,
      [&](const ProcessSnapshot& process) { return viewer.Sees(process.identity.uid); }, out);
  out->set_daemon_version(info.version);
  out->set_metrics_url(info.metrics_url);
}

Result<grpc::ByteBuffer> SnapshotViews::Serialized(const SnapshotHub::Pointer& snapshot,
                                                   const v1::GetSnapshotRequest& request,
                                                   const Viewer& viewer) {
  // Whoever sees all sees the same, whatever the uid.
  const std::pair key(viewer.sees_all ? Viewer{.sees_all = true, .uid = 0} : viewer,
                      request.SerializeAsString());
  {
    std::lock_guard lock(mutex_);
    if (sequence_ == snapshot->sequence) {
      if (const auto hit = cached_.find(key); hit != cached_.end()) return hit->second;
    }
  }
  v1::Snapshot message;
  BuildView(*snapshot, ToOptions(request).value(), viewer, info_, &message);
  grpc::ByteBuffer bytes;
  bool own_buffer = false;
  if (message.ByteSizeLong() > INT32_MAX ||
      !grpc::SerializationTraits<v1::Snapshot>::Serialize(message, &bytes, &own_buffer).ok()) {
    return Error{"write the snapshot", "it is larger than one message can be",
                 "ask for fewer sites (max_sites) or one process (pids)"};
  }

  std::lock_guard lock(mutex_);
  if (snapshot->sequence > sequence_) {
    cached_.clear();
    sequence_ = snapshot->sequence;
  }
  if (snapshot->sequence == sequence_ && cached_.size() < kMaxCached) cached_.emplace(key, bytes);
  return bytes;
}

}  // namespace tidemark::serve
