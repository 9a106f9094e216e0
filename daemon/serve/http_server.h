// HTTP on CivetWeb: sockets and threads; what is answered is HttpApi's. Start and Stop belong to
// one thread.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "daemon/serve/http_api.h"
#include "daemon/serve/tls_files.h"

struct mg_context;

namespace tidemark::serve {

class HttpServer {
 public:
  explicit HttpServer(HttpApi& api) : api_(api) {}
  ~HttpServer() { Stop(); }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // `address` is an IP literal; `port` 0 takes a free one. Plain text beyond loopback only where
  // `beyond_loopback` is set.
  Result<void> Start(const std::string& address, int port, bool beyond_loopback,
                     const TlsPaths& tls, ServeCounters& counters);
  int port() const { return port_; }
  void Stop();

  // For the C callbacks.
  HttpApi& api() { return api_; }
  TlsContext* tls() { return tls_.get(); }

 private:
  HttpApi& api_;
  std::unique_ptr<TlsContext> tls_;  // null: plain text
  mg_context* context_ = nullptr;
  std::string address_;
  int port_ = 0;
};

}  // namespace tidemark::serve
