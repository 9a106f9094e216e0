// What HTTP answers, apart from any HTTP library: read-only, a fixed table of paths, nothing from
// the file system. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/serve/metrics_exporter.h"
#include "daemon/serve/peer.h"
#include "daemon/serve/serve_counters.h"
#include "daemon/snapshot/snapshot_hub.h"

namespace tidemark::serve {

// Everything in it is untrusted except remote_address, remote_port and local_port.
struct HttpRequest {
  std::string method;
  std::string path;   // without the query
  std::string query;  // as sent
  std::string host;
  std::string authorization;
  std::string remote_address;
  uint16_t remote_port = 0;
  uint16_t local_port = 0;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  std::string extra_headers = {};  // whole lines, "Allow: GET, HEAD\r\n"
};

class HttpApi {
 public:
  // `token` empty: no remote peer may read JSON. `address` is what the server listens on.
  HttpApi(const SnapshotHub& hub, const PeerPolicy& peers, const MetricsExporter& exporter,
          ServeCounters& counters, std::string version, std::string token, std::string address)
      : hub_(hub),
        peers_(peers),
        exporter_(exporter),
        counters_(counters),
        version_(std::move(version)),
        token_(std::move(token)),
        address_(std::move(address)) {}

  HttpResponse Handle(const HttpRequest& request);

 private:
  HttpResponse Metrics() const;
  HttpResponse Health() const;
  HttpResponse Snapshot(const HttpRequest& request);
  HttpResponse Refuse(Refusal cause, int status, const std::string& why);

  const SnapshotHub& hub_;
  const PeerPolicy& peers_;
  const MetricsExporter& exporter_;
  ServeCounters& counters_;
  const std::string version_;
  const std::string token_;
  const std::string address_;
};

// "http://127.0.0.1:9470/metrics".
std::string MetricsUrlOf(const std::string& address, int port);

// Sent with every answer.
std::string_view SecurityHeaders();

}  // namespace tidemark::serve
