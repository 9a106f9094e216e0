#include "daemon/serve/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "daemon/serve/freshness.h"
#include "daemon/serve/grpc_service.h"
#include "daemon/serve/grpc_tls.h"
#include "daemon/serve/ip_address.h"
#include "daemon/serve/unix_listener.h"

namespace tidemark::serve {
namespace {

constexpr int kMaxRequestBytes = 64 << 10;  // the largest honest one is a list of pids
constexpr int kMaxResponseBytes = 512 << 20;
constexpr int kMaxStreamsOfConnection = 32;
constexpr int kIdleConnectionMs = 5 * 60 * 1000;  // also what a silent stranger gets
constexpr std::chrono::milliseconds kGrace{500};
constexpr int kHandshakeMs = 10 * 1000;

void EnableReflectionOnce() {
  static std::once_flag once;
  std::call_once(once, [] { grpc::reflection::InitProtoReflectionServerBuilderPlugin(); });
  grpc::EnableDefaultHealthCheckService(true);
}

// Null where the port is plain text.
Result<std::shared_ptr<GrpcTls>> CheckTcp(const GrpcTcp& tcp) {
  const std::string tried = "serve gRPC on " + HostAndPort(tcp.address, tcp.port);
  if (!IsIpAddress(tcp.address)) {
    return Error{tried, "that is no IP address and port", "for example 0.0.0.0:9471"};
  }
  if (tcp.tls.enabled()) {
    auto tls = std::make_shared<GrpcTls>(tcp.tls);
    if (const Result<void> loaded = tls->Load(); !loaded) return loaded.error();
    return tls;
  }
  if (IsLoopback(tcp.address) || tcp.beyond_loopback) return std::shared_ptr<GrpcTls>();
  return Error{tried, "plain gRPC beyond loopback is off",
               "set tls.certificate, tls.key and tls.client_ca, or allow it explicitly "
               "(api.beyond_loopback: true)"};
}

}  // namespace

class GrpcServer::Impl {
 public:
  Impl(const SnapshotHub& hub, Control& control, const PeerPolicy& peers, const HistoryCalls& past,
       ServeCounters& counters, const std::string& path, const GrpcTcp& tcp, DaemonInfo info)
      : hub_(hub),
        views_(std::move(info)),
        watches_(views_),
        tcp_(tcp),
        service_(hub, control, peers, past, counters, views_, watches_, tcp),
        listener_(path, peers, counters) {}

  Result<void> Start() {
    EnableReflectionOnce();
    grpc::ServerBuilder builder;
    if (!tcp_.address.empty()) {
      const auto checked = CheckTcp(tcp_);
      if (!checked) return checked.error();
      tls_ = *checked;
      builder.AddListeningPort(HostAndPort(tcp_.address, tcp_.port),
                               tls_ ? tls_ : grpc::InsecureServerCredentials(), &tcp_port_);
    }
    // Two daemons on one port would answer by turns.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
    builder.SetMaxSendMessageSize(kMaxResponseBytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsOfConnection);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleConnectionMs);
    // Only reflection runs on these threads.
    builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 2);
    builder.SetResourceQuota(grpc::ResourceQuota("tidemark").SetMaxThreads(8));
    server_ = builder.BuildAndStart();
    if (!server_ && !tcp_.address.empty()) {
      return Error{"serve gRPC on " + HostAndPort(tcp_.address, tcp_.port),
                   "the address is in use or not ours",
                   "stop what listens there, or set another api.listen"};
    }
    if (!server_) return Error{"start gRPC", "the library refused the server", ""};
    service_.SetTcpPort(static_cast<uint16_t>(tcp_port_));
    SetServing(false);
    const Result<void> listening = listener_.Start(
        [this](UniqueFd fd) { grpc::AddInsecureChannelFromFd(server_.get(), fd.Release()); });
    if (!listening) {
      server_->Shutdown();
      return listening.error();
    }
    watcher_ = std::thread([this] { Watch(); });
    return {};
  }

  int tcp_port() const { return tcp_port_; }

  // No connection may arrive once the server shuts down, so the listener goes first.
  void Stop() {
    listener_.Stop();
    stopping_ = true;
    watcher_.join();
    watches_.FinishAll({grpc::StatusCode::UNAVAILABLE, "the daemon is shutting down"});
    server_->Shutdown(std::chrono::system_clock::now() + kGrace);
    server_->Wait();
  }

 private:
  void Watch() {
    pthread_setname_np(pthread_self(), "api-watch");
    uint64_t sequence = 0;
    while (!stopping_) {
      const SnapshotHub::Pointer snapshot =
          hub_.WaitNewer(sequence, std::chrono::milliseconds(200));
      SetServing(IsFresh(hub_.Latest(), kStale));
      if (!snapshot) {
        // A closed hub answers at once, for ever.
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        continue;
      }
      sequence = snapshot->sequence;
      watches_.Offer(snapshot);
    }
  }

  void SetServing(bool serving) {
    if (serving_ == serving) return;
    serving_ = serving;
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    health->SetServingStatus("", serving);
    health->SetServingStatus(v1::Tidemark::service_full_name(), serving);
  }

  const SnapshotHub& hub_;
  SnapshotViews views_;
  WatchList watches_;
  const GrpcTcp tcp_;
  int tcp_port_ = 0;
  GrpcService service_;
  std::shared_ptr<GrpcTls> tls_;  // outlives the server
  std::unique_ptr<grpc::Server> server_;
  UnixListener listener_;
  std::optional<bool> serving_;  // Start, then the watcher
  std::atomic<bool> stopping_ = false;
  std::thread watcher_;
};

GrpcServer::GrpcServer(const SnapshotHub& hub, Control& control, const PeerPolicy& peers,
                       const HistoryCalls& past, ServeCounters& counters, std::string socket_path,
                       GrpcTcp tcp)
    : hub_(hub),
      control_(control),
      peers_(peers),
      past_(past),
      counters_(counters),
      socket_path_(std::move(socket_path)),
      tcp_(std::move(tcp)) {}

int GrpcServer::tcp_port() const { return impl_ ? impl_->tcp_port() : 0; }

GrpcServer::~GrpcServer() { Stop(); }

Result<void> GrpcServer::Start(const std::string& version, const std::string& metrics_url) {
  auto impl = std::make_unique<Impl>(hub_, control_, peers_, past_, counters_, socket_path_, tcp_,
                                     DaemonInfo{version, metrics_url});
  if (const Result<void> started = impl->Start(); !started) return started.error();
  impl_ = std::move(impl);
  return {};
}

void GrpcServer::Stop() {
  if (!impl_) return;
  impl_->Stop();
  impl_.reset();
}

}  // namespace tidemark::serve
