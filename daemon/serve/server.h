// Everything the daemon serves: gRPC on a unix socket, /metrics and JSON over HTTP. A facade, so
// that gRPC, protobuf and CivetWeb headers stay inside this folder.
//
// Start and Stop belong to one thread (main); requests run on the server's own threads and only
// read published snapshots. Every peer is untrusted: what it may see and do is decided by the uid
// that the kernel vouches for (see peer.h).
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "daemon/serve/control.h"
#include "daemon/serve/grpc_tcp.h"
#include "daemon/snapshot/snapshot_hub.h"

namespace tidemark {
class HistoryReader;
class PostMortems;
}  // namespace tidemark

namespace tidemark::serve {

enum class MetricsLevel : uint8_t { kBasic, kFull };

struct ServerOptions {
  std::string api_socket = {};         // path of the gRPC socket; empty = not served
  std::string api_group = "tidemark";  // members see every process, others only their own uid's
  GrpcTcp api_tcp = {};                // the same service for other machines

  bool http = true;
  std::string http_address = "127.0.0.1";  // IP literal
  int http_port = 9470;                    // 0 = any free one, told by BoundHttpPort()
  // With TLS every client shows a certificate, and then reads everything.
  TlsPaths http_tls = {};
  // Plain text beyond loopback is refused unless this is set. /metrics and /healthz are then open
  // to whoever can connect; JSON asks remote peers for the token.
  bool http_beyond_loopback = false;
  std::string http_token_file = {};  // bearer token of remote JSON readers; empty = they get none

  MetricsLevel metrics_level = MetricsLevel::kBasic;
  const HistoryReader* history = nullptr;     // outlives the server; null: none is kept
  const PostMortems* post_mortems = nullptr;  // likewise
  std::string version = {};  // of the daemon, shown in snapshots and tidemark_build_info
};

class Server {
 public:
  // `hub` and `control` outlive the server.
  Server(const SnapshotHub& hub, Control& control, ServerOptions options);
  ~Server();  // stops
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Binds and serves; on failure nothing is left running. Fails when an address is in use, the
  // socket's directory is missing, the address is refused by policy, or the token cannot be read.
  Result<void> Start();

  // The port of gRPC over TCP once started; 0 when it is not served.
  int BoundApiPort() const;
  // The port of HTTP once started; 0 when HTTP is not served.
  int BoundHttpPort() const;
  // "http://127.0.0.1:9470/metrics"; empty when HTTP is not served.
  std::string MetricsUrl() const;

  // Ends streams, lets requests under way finish for half a second, closes and unlinks the socket.
  // Returns within 2 s; idempotent.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark::serve
