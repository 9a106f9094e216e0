#include "daemon/serve/server.h"

#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "daemon/serve/grpc_server.h"
#include "daemon/serve/history_calls.h"
#include "daemon/serve/http_server.h"

namespace tidemark::serve {
namespace {

// A token that others can read is none.
Result<std::string> ReadToken(const std::string& path) {
  if (path.empty()) return std::string();
  const std::string tried = "read the HTTP token from " + path;
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return Error{tried, "there is no such file", ""};
  if ((info.st_mode & 077) != 0) {
    return Error{tried, "others may read it", "chmod 600 " + path};
  }
  std::ifstream file(path);
  std::string token((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  token.erase(token.find_last_not_of(" \r\n") + 1);
  if (token.size() < 16 || token.size() > 512) {
    return Error{tried, "a token has 16 to 512 characters", "openssl rand -hex 32 > " + path};
  }
  return token;
}

}  // namespace

class Server::Impl {
 public:
  Impl(const SnapshotHub& hub, Control& control, ServerOptions options)
      : hub_(hub),
        control_(control),
        options_(std::move(options)),
        peers_(options_.api_group),
        past_(hub, options_.history, options_.post_mortems),
        exporter_(hub, counters_, options_.metrics_level, options_.version) {}

  ~Impl() { Stop(); }

  Result<void> Start() {
    if (options_.http) {
      const Result<std::string> token = ReadToken(options_.http_token_file);
      if (!token) return token.error();
      api_ = std::make_unique<HttpApi>(hub_, peers_, past_, exporter_, counters_, options_.version,
                                       *token, options_.http_address, options_.http_tls.enabled());
      auto http = std::make_unique<HttpServer>(*api_);
      const auto started = http->Start(options_.http_address, options_.http_port,
                                       options_.http_beyond_loopback, options_.http_tls, counters_);
      if (!started) return started.error();
      http_ = std::move(http);
    }
    if (options_.api_socket.empty()) return {};
    grpc_ = std::make_unique<GrpcServer>(hub_, control_, peers_, past_, counters_,
                                         options_.api_socket, options_.api_tcp);
    const auto started = grpc_->Start(options_.version, MetricsUrl());
    if (started) return {};
    Stop();
    return started.error();
  }

  // Both at once: each may wait for its clients.
  void Stop() {
    std::thread http([this] { http_.reset(); });
    grpc_.reset();
    http.join();
    api_.reset();
  }

  int port() const { return http_ ? http_->port() : 0; }
  int api_port() const { return grpc_ ? grpc_->tcp_port() : 0; }

  std::string MetricsUrl() const {
    return http_ ? MetricsUrlOf(options_.http_address, port(), options_.http_tls.enabled()) : "";
  }

 private:
  const SnapshotHub& hub_;
  Control& control_;
  const ServerOptions options_;
  const PeerPolicy peers_;
  const HistoryCalls past_;
  ServeCounters counters_;
  const MetricsExporter exporter_;
  std::unique_ptr<HttpApi> api_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<GrpcServer> grpc_;
};

Server::Server(const SnapshotHub& hub, Control& control, ServerOptions options)
    : impl_(std::make_unique<Impl>(hub, control, std::move(options))) {}
Server::~Server() = default;
Result<void> Server::Start() { return impl_->Start(); }
int Server::BoundApiPort() const { return impl_->api_port(); }
int Server::BoundHttpPort() const { return impl_->port(); }
std::string Server::MetricsUrl() const { return impl_->MetricsUrl(); }
void Server::Stop() { impl_->Stop(); }

}  // namespace tidemark::serve
