// What HTTP answers, apart from any HTTP library: read-only, a fixed table of paths, nothing from
// the file system. Thread-safe.
//
//   /                       the page; its files beside it
//   /metrics /healthz       for Prometheus and probes, open to whoever can connect
//   /api/v1/snapshot        GetSnapshot      \.
//   /api/v1/stream          WatchSnapshots    |  the RPC's request as a query, its
//   /api/v1/query_range     QueryRange        |  answer as JSON (docs/operations.md)
//   /api/v1/diff            Diff              |
//   /api/v1/export          Export           /   the file itself
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/serve/history_calls.h"
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
  std::string accept_encoding = {};
  std::string remote_address;
  uint16_t remote_port = 0;
  uint16_t local_port = 0;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  std::string extra_headers = {};  // whole lines, "Allow: GET, HEAD\r\n"
  bool page = false;               // one of the page's files: they may load each other
  // Set: the body is what this gives, piece by piece, until it gives nothing. Waits for the next.
  std::function<std::optional<std::string>()> stream = {};
};

class HttpApi {
 public:
  // Each holds one of the server's threads; a page that gets none asks again instead.
  static constexpr int kMostStreams = 8;

  // `token` empty: no remote peer may read JSON. `address` is what the server listens on. With
  // `tls` nobody gets here without a certificate that the clients' CA signed.
  HttpApi(const SnapshotHub& hub, const PeerPolicy& peers, const HistoryCalls& past,
          const MetricsExporter& exporter, ServeCounters& counters, std::string version,
          std::string token, std::string address, bool tls)
      : hub_(hub),
        peers_(peers),
        past_(past),
        exporter_(exporter),
        counters_(counters),
        version_(std::move(version)),
        token_(std::move(token)),
        address_(std::move(address)),
        tls_(tls) {}

  HttpResponse Handle(const HttpRequest& request);

  // For what the server refuses before there is a request, or gives up on.
  void CountRefusal(Refusal cause) { counters_.Refuse(cause); }

  // Ends every stream within half a second; for good.
  void Close() { closing_ = true; }

 private:
  HttpResponse Metrics() const;
  HttpResponse Health() const;
  HttpResponse Page(const HttpRequest& request);
  HttpResponse Snapshot(const HttpRequest& request, const Viewer& viewer);
  HttpResponse Stream(const HttpRequest& request, const Viewer& viewer);
  HttpResponse QueryRange(const HttpRequest& request, const Viewer& viewer);
  HttpResponse Diff(const HttpRequest& request, const Viewer& viewer);
  HttpResponse Export(const HttpRequest& request, const Viewer& viewer);

  // Who asks; nothing, and why not in `refused`, when JSON is not for them.
  std::optional<Viewer> Admit(const HttpRequest& request, HttpResponse* refused);
  HttpResponse Refuse(Refusal cause, int status, const std::string& why);
  HttpResponse OfStatus(const QueryStatus& status);

  const SnapshotHub& hub_;
  const PeerPolicy& peers_;
  const HistoryCalls& past_;
  const MetricsExporter& exporter_;
  ServeCounters& counters_;
  const std::string version_;
  const std::string token_;
  const std::string address_;
  const bool tls_;
  std::atomic<int> streams_ = 0;
  std::atomic<bool> closing_ = false;
};

// "http://127.0.0.1:9470/metrics", with `tls` "https://...".
std::string MetricsUrlOf(const std::string& address, int port, bool tls);

// Sent with every answer; the page's files may load each other, everything else nothing.
std::string SecurityHeaders(bool page);

}  // namespace tidemark::serve
