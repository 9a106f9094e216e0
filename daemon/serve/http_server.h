// HTTP on CivetWeb: sockets and threads; what is answered is HttpApi's. Start and Stop belong to
// one thread.
#pragma once

#include <string>

#include "base/result.h"
#include "daemon/serve/http_api.h"

struct mg_context;

namespace tidemark::serve {

class HttpServer {
 public:
  explicit HttpServer(HttpApi& api) : api_(api) {}
  ~HttpServer() { Stop(); }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // `address` is an IP literal; `port` 0 takes a free one. Beyond loopback only where
  // `beyond_loopback` is set.
  Result<void> Start(const std::string& address, int port, bool beyond_loopback);
  int port() const { return port_; }
  void Stop();

  // For the C callback.
  HttpApi& api() { return api_; }

 private:
  HttpApi& api_;
  mg_context* context_ = nullptr;
  std::string address_;
  int port_ = 0;
};

}  // namespace tidemark::serve
