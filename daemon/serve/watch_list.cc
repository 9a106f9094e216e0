#include "daemon/serve/watch_list.h"

#include <utility>
#include <vector>

namespace tidemark::serve {

// Locking: gRPC never runs a reaction (On...) inside StartWrite or Finish, so both are called under
// mutex_; that keeps a write from starting after Finish.
class WatchList::Stream : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                          public std::enable_shared_from_this<Stream> {
 public:
  Stream(WatchList& list, v1::GetSnapshotRequest request, Viewer viewer)
      : list_(list), request_(std::move(request)), viewer_(viewer) {}

  void Offer(const SnapshotHub::Pointer& snapshot) {
    std::lock_guard lock(mutex_);
    latest_ = snapshot;
    WriteIfIdle();
  }

  void End(const grpc::Status& status) {
    std::lock_guard lock(mutex_);
    EndLocked(status);
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) return EndLocked(grpc::Status::CANCELLED);
    WriteIfIdle();
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }

  void OnDone() override {
    const std::shared_ptr<Stream> self = shared_from_this();  // until this function is over
    std::lock_guard lock(list_.mutex_);
    list_.streams_.erase(self);
  }

 private:
  void WriteIfIdle() {
    if (ended_ || writing_ || !latest_ || latest_->sequence <= sent_) return;
    Result<grpc::ByteBuffer> bytes = list_.views_.Serialized(latest_, request_, viewer_);
    if (!bytes) {
      return EndLocked({grpc::StatusCode::RESOURCE_EXHAUSTED, bytes.error().ToString()});
    }
    sent_ = latest_->sequence;
    buffer_ = std::move(*bytes);
    writing_ = true;
    StartWrite(&buffer_);
  }

  void EndLocked(const grpc::Status& status) {
    if (std::exchange(ended_, true)) return;
    Finish(status);
  }

  WatchList& list_;
  const v1::GetSnapshotRequest request_;
  const Viewer viewer_;
  std::mutex mutex_;
  SnapshotHub::Pointer latest_;
  grpc::ByteBuffer buffer_;  // being written
  uint64_t sent_ = 0;
  bool writing_ = false;
  bool ended_ = false;
};

grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchList::Watch(v1::GetSnapshotRequest request,
                                                             Viewer viewer,
                                                             const SnapshotHub::Pointer& latest) {
  const auto stream = std::make_shared<Stream>(*this, std::move(request), viewer);
  bool finished = false;
  {
    std::lock_guard lock(mutex_);
    streams_.insert(stream);
    finished = finished_;
  }
  if (finished) {
    stream->End({grpc::StatusCode::UNAVAILABLE, "the daemon is shutting down"});
  } else if (latest) {
    stream->Offer(latest);
  }
  return stream.get();
}

void WatchList::Offer(const SnapshotHub::Pointer& snapshot) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    std::lock_guard lock(mutex_);
    streams.assign(streams_.begin(), streams_.end());
  }
  for (const auto& stream : streams) stream->Offer(snapshot);
}

void WatchList::FinishAll(const grpc::Status& status) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    std::lock_guard lock(mutex_);
    finished_ = true;
    streams.assign(streams_.begin(), streams_.end());
  }
  for (const auto& stream : streams) stream->End(status);
}

}  // namespace tidemark::serve
