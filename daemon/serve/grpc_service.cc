#include "daemon/serve/grpc_service.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

namespace tidemark::serve {
namespace {

using grpc::Status;
using grpc::StatusCode;

grpc::ServerUnaryReactor* FinishWith(grpc::CallbackServerContext* context, const Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

// A stream that is over before it began.
class RefusedStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit RefusedStream(const Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

// gRPC names a connection that was handed over as a descriptor "fd:N".
std::optional<int> DescriptorOf(const std::string& peer) {
  constexpr std::string_view kPrefix = "fd:";
  if (!peer.starts_with(kPrefix)) return std::nullopt;
  int fd = -1;
  const char* end = peer.data() + peer.size();
  const auto [stop, error] = std::from_chars(peer.data() + kPrefix.size(), end, fd);
  if (error != std::errc() || stop != end || fd < 0) return std::nullopt;
  return fd;
}

struct TcpPeer {
  std::string address;
  uint16_t port = 0;
};

// gRPC writes "ipv4:127.0.0.1:4711" and "ipv6:%5B::1%5D:4711".
std::optional<TcpPeer> TcpPeerOf(std::string_view peer) {
  if (!peer.starts_with("ipv4:") && !peer.starts_with("ipv6:")) return std::nullopt;
  peer.remove_prefix(5);
  const size_t colon = peer.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view address = peer.substr(0, colon);
  if (address.starts_with("%5B") && address.ends_with("%5D")) {
    address = address.substr(3, address.size() - 6);
  }
  TcpPeer found{std::string(address)};
  const auto [end, error] =
      std::from_chars(peer.data() + colon + 1, peer.data() + peer.size(), found.port);
  if (error != std::errc() || end != peer.data() + peer.size()) return std::nullopt;
  return found;
}

// What the caller allows, on the clock that does not jump.
std::chrono::steady_clock::time_point DeadlineOf(const grpc::CallbackServerContext& context) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  return std::chrono::steady_clock::now() +
         std::clamp<std::chrono::nanoseconds>(left, std::chrono::seconds(0),
                                              HistoryCalls::kPatience);
}

// Sends a file in chunks once it is made. Deletes itself.
class FileStream final : public grpc::ServerWriteReactor<v1::ExportChunk> {
 public:
  void Begin(std::string file) {
    file_ = std::move(file);
    Next();
  }
  void OnWriteDone(bool ok) override {
    if (ok) return Next();
    Finish(Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  static constexpr size_t kChunkBytes = 1 << 20;

  void Next() {
    if (sent_ == file_.size()) return Finish(Status::OK);
    chunk_.set_data(file_.substr(sent_, kChunkBytes));
    sent_ += chunk_.data().size();
    StartWrite(&chunk_);
  }

  std::string file_;
  size_t sent_ = 0;
  v1::ExportChunk chunk_;
};

bool Parse(const grpc::ByteBuffer& bytes, v1::GetSnapshotRequest* request) {
  grpc::ByteBuffer copy(bytes);
  return grpc::SerializationTraits<v1::GetSnapshotRequest>::Deserialize(&copy, request).ok();
}

}  // namespace

// The descriptor cannot have been closed and reused meanwhile: a call keeps its transport, and the
// transport closes the descriptor only in its destructor. So the kernel's answer is about this
// peer, even when it has hung up already.
Result<Viewer> GrpcService::Admit(const grpc::CallbackServerContext& context) {
  counters_.grpc_requests.fetch_add(1, std::memory_order_relaxed);
  const std::string peer = context.peer();
  if (const std::optional<int> fd = DescriptorOf(peer)) return peers_.OfUnixSocket(*fd);
  // Behind TLS nobody gets here without a certificate that the clients' CA signed.
  const Viewer anybody{.sees_all = true, .remote = true};
  if (tcp_.tls.enabled()) return anybody;
  const std::optional<TcpPeer> tcp = TcpPeerOf(peer);
  if (!tcp) return Error{"find out who connected", "no connection of ours: " + peer, ""};
  if (const auto local = peers_.OfTcp(tcp->address, tcp->port, tcp_port_)) return *local;
  if (tcp_.beyond_loopback) return anybody;
  return Error{"find out who connected", "the kernel does not know the owner of " + peer,
               "ask on the daemon's socket"};
}

Status GrpcService::Refuse(Refusal cause, StatusCode code, const std::string& message) {
  counters_.Refuse(cause);
  return {code, message};
}

Status GrpcService::RefuseRemote() {
  return Refuse(Refusal::kNotYours, StatusCode::PERMISSION_DENIED,
                "from another machine one only reads; ask on the node itself");
}

Status GrpcService::MayTouch(const Viewer& viewer, pid_t pid) {
  const SnapshotHub::Pointer snapshot = hub_.Latest();
  if (!snapshot) return {StatusCode::UNAVAILABLE, "the first snapshot is not done yet"};
  const auto process = std::ranges::find(snapshot->processes, pid,
                                         [](const ProcessSnapshot& p) { return p.key.pid; });
  if (process == snapshot->processes.end()) {
    return {StatusCode::NOT_FOUND, "no process " + std::to_string(pid) + " is known here"};
  }
  if (!viewer.Sees(process->identity.uid)) {
    return Refuse(Refusal::kNotYours, StatusCode::PERMISSION_DENIED,
                  "process " + std::to_string(pid) +
                      " is another user's; ask as that user, as root or as a member of the "
                      "daemon's group");
  }
  return Status::OK;
}

grpc::ServerUnaryReactor* GrpcService::Enqueue(ControlQueue* queue,
                                               grpc::CallbackServerContext* context,
                                               std::function<Status()> act) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  // The context lives until the reactor is finished.
  const bool posted = queue->Post([context, reactor, act = std::move(act)] {
    reactor->Finish(context->IsCancelled() ? Status::CANCELLED : act());
  });
  if (!posted) {
    reactor->Finish(Refuse(Refusal::kBusy, StatusCode::RESOURCE_EXHAUSTED,
                           "too many requests wait already; try again in a second"));
  }
  return reactor;
}

grpc::ServerUnaryReactor* GrpcService::GetSnapshot(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  const Result<Viewer> viewer = Admit(*context);
  if (!viewer) {
    return FinishWith(context, Refuse(Refusal::kUnknownPeer, StatusCode::UNAUTHENTICATED,
                                      viewer.error().ToString()));
  }
  v1::GetSnapshotRequest parsed;
  if (!Parse(*request, &parsed)) {
    return FinishWith(context, Refuse(Refusal::kBadRequest, StatusCode::INVALID_ARGUMENT,
                                      "the request is no GetSnapshotRequest"));
  }
  if (const auto options = ToOptions(parsed); !options) {
    return FinishWith(context, Refuse(Refusal::kBadRequest, StatusCode::INVALID_ARGUMENT,
                                      options.error().ToString()));
  }
  const SnapshotHub::Pointer snapshot = hub_.Latest();
  if (!snapshot) {
    return FinishWith(context, {StatusCode::UNAVAILABLE, "the first snapshot is not done yet"});
  }
  Result<grpc::ByteBuffer> bytes = views_.Serialized(snapshot, parsed, *viewer);
  if (!bytes) {
    return FinishWith(context, {StatusCode::RESOURCE_EXHAUSTED, bytes.error().ToString()});
  }
  *response = std::move(*bytes);
  return FinishWith(context, Status::OK);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GrpcService::WatchSnapshots(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  const Result<Viewer> viewer = Admit(*context);
  if (!viewer) {
    return new RefusedStream(
        Refuse(Refusal::kUnknownPeer, StatusCode::UNAUTHENTICATED, viewer.error().ToString()));
  }
  v1::GetSnapshotRequest parsed;
  if (!Parse(*request, &parsed)) {
    return new RefusedStream(Refuse(Refusal::kBadRequest, StatusCode::INVALID_ARGUMENT,
                                    "the request is no GetSnapshotRequest"));
  }
  if (const auto options = ToOptions(parsed); !options) {
    return new RefusedStream(
        Refuse(Refusal::kBadRequest, StatusCode::INVALID_ARGUMENT, options.error().ToString()));
  }
  return watches_.Watch(std::move(parsed), *viewer, hub_.Latest());
}

grpc::ServerUnaryReactor* GrpcService::ListHolders(grpc::CallbackServerContext* context,
                                                   const v1::ListHoldersRequest* request,
                                                   v1::ListHoldersResponse* response) {
  const Result<Viewer> viewer = Admit(*context);
  if (!viewer) {
    return FinishWith(context, Refuse(Refusal::kUnknownPeer, StatusCode::UNAUTHENTICATED,
                                      viewer.error().ToString()));
  }
  if (request->max_addresses() < 0 || request->max_addresses() > kMaxHolders) {
    return FinishWith(context, Refuse(Refusal::kBadRequest, StatusCode::INVALID_ARGUMENT,
                                      "max_addresses must lie between 0 (the default, 64) and " +
                                          std::to_string(kMaxHolders)));
  }
  if (const Status allowed = MayTouch(*viewer, request->pid()); !allowed.ok()) {
    return FinishWith(context, allowed);
  }
  return Enqueue(&queue_, context, [this, request, response]() -> Status {
    const auto blocks = control_.Holders(request->pid(), request->site_id());
    if (!blocks) return {StatusCode::NOT_FOUND, blocks.error().ToString()};
    const int wanted = request->max_addresses() == 0 ? kDefaultHolders : request->max_addresses();
    response->set_blocks_total(blocks->size());
    for (const HeldBlock& block : *blocks) {
      if (response->blocks_size() == wanted) break;
      v1::ListHoldersResponse::Block* out = response->add_blocks();
      out->set_address(block.address);
      out->set_bytes(block.bytes);
      out->set_step(block.step);
    }
    return Status::OK;
  });
}

grpc::ServerUnaryReactor* GrpcService::Detach(grpc::CallbackServerContext* context,
                                              const v1::DetachRequest* request,
                                              v1::DetachResponse* response) {
  const Result<Viewer> viewer = Admit(*context);
  if (!viewer) {
    return FinishWith(context, Refuse(Refusal::kUnknownPeer, StatusCode::UNAUTHENTICATED,
                                      viewer.error().ToString()));
  }
  if (viewer->remote) return FinishWith(context, RefuseRemote());
  if (request->all() == (request->pid() != 0)) {
    return FinishWith(context, Refuse(Refusal::kBadRequest, StatusCode::INVALID_ARGUMENT,
                                      "give either pid or all"));
  }
  if (!request->all()) {
    if (const Status allowed = MayTouch(*viewer, request->pid()); !allowed.ok()) {
      return FinishWith(context, allowed);
    }
    return Enqueue(&queue_, context, [this, request, response]() -> Status {
      const Result<void> detached = control_.Detach(request->pid());
      if (!detached) return {StatusCode::NOT_FOUND, detached.error().ToString()};
      response->add_detached_pids(request->pid());
      return Status::OK;
    });
  }
  return Enqueue(&queue_, context, [this, context, viewer = *viewer, response]() -> Status {
    const SnapshotHub::Pointer snapshot = hub_.Latest();
    if (!snapshot) return {StatusCode::UNAVAILABLE, "the first snapshot is not done yet"};
    for (const ProcessSnapshot& process : snapshot->processes) {
      if (process.liveness != Liveness::kAlive || !viewer.Sees(process.identity.uid)) continue;
      if (context->IsCancelled()) return Status::CANCELLED;
      if (control_.Detach(process.key.pid)) response->add_detached_pids(process.key.pid);
    }
    return Status::OK;
  });
}

grpc::ServerUnaryReactor* GrpcService::ReleaseGpu(grpc::CallbackServerContext* context,
                                                  const v1::ReleaseGpuRequest* request,
                                                  v1::ReleaseGpuResponse* response) {
  const Result<Viewer> viewer = Admit(*context);
  if (!viewer) {
    return FinishWith(context, Refuse(Refusal::kUnknownPeer, StatusCode::UNAUTHENTICATED,
                                      viewer.error().ToString()));
  }
  if (viewer->remote) return FinishWith(context, RefuseRemote());
  if (!viewer->sees_all) {
    return FinishWith(context, Refuse(Refusal::kNotYours, StatusCode::PERMISSION_DENIED,
                                      "only root and members of the daemon's group may close the "
                                      "daemon's GPU handles"));
  }
  return Enqueue(&queue_, context, [this, request, response]() -> Status {
    const Result<void> done = control_.ReleaseGpu(request->resume());
    if (!done) return {StatusCode::FAILED_PRECONDITION, done.error().ToString()};
    response->set_released(!request->resume());
    return Status::OK;
  });
}

Status GrpcService::ToStatus(const QueryStatus& status) {
  switch (status.code) {
    case QueryCode::kOk:
      return Status::OK;
    case QueryCode::kInvalid:
      return Refuse(Refusal::kBadRequest, StatusCode::INVALID_ARGUMENT, status.message);
    case QueryCode::kNotFound:
      return {StatusCode::NOT_FOUND, status.message};
    case QueryCode::kUnavailable:
      return {StatusCode::UNAVAILABLE, status.message};
    case QueryCode::kDeadline:
      return {StatusCode::DEADLINE_EXCEEDED, status.message};
    case QueryCode::kTooLarge:
      return {StatusCode::RESOURCE_EXHAUSTED, status.message};
  }
  return {StatusCode::INTERNAL, status.message};
}

grpc::ServerUnaryReactor* GrpcService::AskPast(
    grpc::CallbackServerContext* context,
    std::function<QueryStatus(const Viewer&, std::chrono::steady_clock::time_point)> call) {
  const Result<Viewer> viewer = Admit(*context);
  if (!viewer) {
    return FinishWith(context, Refuse(Refusal::kUnknownPeer, StatusCode::UNAUTHENTICATED,
                                      viewer.error().ToString()));
  }
  return Enqueue(&past_queue_, context,
                 [this, viewer = *viewer, deadline = DeadlineOf(*context), call = std::move(call)] {
                   return ToStatus(call(viewer, deadline));
                 });
}

grpc::ServerUnaryReactor* GrpcService::QueryRange(grpc::CallbackServerContext* context,
                                                  const v1::QueryRangeRequest* request,
                                                  v1::QueryRangeResponse* response) {
  return AskPast(context, [this, request, response](const Viewer& viewer, auto deadline) {
    return past_.QueryRange(*request, viewer, deadline, response);
  });
}

grpc::ServerUnaryReactor* GrpcService::Diff(grpc::CallbackServerContext* context,
                                            const v1::DiffRequest* request,
                                            v1::DiffResponse* response) {
  return AskPast(context, [this, request, response](const Viewer& viewer, auto deadline) {
    return past_.Diff(*request, viewer, deadline, response);
  });
}

grpc::ServerWriteReactor<v1::ExportChunk>* GrpcService::Export(grpc::CallbackServerContext* context,
                                                               const v1::ExportRequest* request) {
  auto* stream = new FileStream;
  const Result<Viewer> viewer = Admit(*context);
  if (!viewer) {
    stream->Finish(
        Refuse(Refusal::kUnknownPeer, StatusCode::UNAUTHENTICATED, viewer.error().ToString()));
    return stream;
  }
  // The request lives until the stream is finished.
  const bool posted = past_queue_.Post(
      [this, context, request, stream, viewer = *viewer, deadline = DeadlineOf(*context)] {
        std::string file;
        const QueryStatus status = context->IsCancelled()
                                       ? QueryStatus{QueryCode::kDeadline, "nobody waits any more"}
                                       : past_.Export(*request, viewer, deadline, &file);
        if (!status.ok()) return stream->Finish(ToStatus(status));
        stream->Begin(std::move(file));
      });
  if (!posted) {
    stream->Finish(Refuse(Refusal::kBusy, StatusCode::RESOURCE_EXHAUSTED,
                          "too many requests wait already; try again in a second"));
  }
  return stream;
}

grpc::ServerUnaryReactor* GrpcService::ListPostmortems(grpc::CallbackServerContext* context,
                                                       const v1::ListPostmortemsRequest*,
                                                       v1::ListPostmortemsResponse* response) {
  return AskPast(context, [this, response](const Viewer& viewer, auto) {
    return past_.ListPostmortems(viewer, response);
  });
}

grpc::ServerUnaryReactor* GrpcService::GetPostmortem(grpc::CallbackServerContext* context,
                                                     const v1::GetPostmortemRequest* request,
                                                     v1::Postmortem* response) {
  return AskPast(context, [this, request, response](const Viewer& viewer, auto) {
    return past_.GetPostmortem(request->id(), viewer, response);
  });
}

}  // namespace tidemark::serve
