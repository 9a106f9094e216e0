// gRPC tidemark.v1 on the API socket and, where asked for, TCP, with reflection and health. Start
// and Stop belong to one thread.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "daemon/serve/control.h"
#include "daemon/serve/grpc_tcp.h"
#include "daemon/serve/history_calls.h"
#include "daemon/serve/peer.h"
#include "daemon/serve/serve_counters.h"
#include "daemon/snapshot/snapshot_hub.h"

namespace tidemark::serve {

class GrpcServer {
 public:
  // A snapshot older than this makes health say NOT_SERVING: the tick is stuck.
  static constexpr std::chrono::seconds kStale{10};

  GrpcServer(const SnapshotHub& hub, Control& control, const PeerPolicy& peers,
             const HistoryCalls& past, ServeCounters& counters, std::string socket_path,
             GrpcTcp tcp);
  ~GrpcServer();  // stops

  // `version` and `metrics_url` go into every snapshot.
  Result<void> Start(const std::string& version, const std::string& metrics_url);

  // Of TCP once started; 0 when it is not served.
  int tcp_port() const;

  // Streams end with UNAVAILABLE, calls under way get half a second. Idempotent.
  void Stop();

 private:
  class Impl;

  const SnapshotHub& hub_;
  Control& control_;
  const PeerPolicy& peers_;
  const HistoryCalls& past_;
  ServeCounters& counters_;
  const std::string socket_path_;
  const GrpcTcp tcp_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark::serve
