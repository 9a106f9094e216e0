#include "daemon/serve/http_server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <future>
#include <optional>
#include <string_view>

#include "base/unique_fd.h"
#include "daemon/serve/ip_address.h"

extern "C" int tidemark_civetweb_tls();  // civetweb_tls/libssl.cc

namespace tidemark::serve {
namespace {

std::string_view ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 421:
      return "Misdirected Request";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 507:
      return "Insufficient Storage";
    default:
      return "Internal Server Error";
  }
}

std::string HeadOf(int status, bool page) {
  return "HTTP/1.1 " + std::to_string(status) + " " + std::string(ReasonOf(status)) + "\r\n" +
         SecurityHeaders(page);
}

// Gives up on a reader that takes less than a piece in CivetWeb's request timeout, or that is not
// done in kPatience whatever it takes: each holds one of the threads.
bool Write(mg_connection* connection, std::string_view bytes) {
  constexpr size_t kPiece = 64 << 10;
  constexpr std::chrono::seconds kPatience{10};
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, kPiece);
    if (mg_write(connection, piece.data(), piece.size()) != static_cast<int>(piece.size()) ||
        std::chrono::steady_clock::now() > give_up) {
      return false;
    }
    bytes.remove_prefix(piece.size());
  }
  return true;
}

std::string Text(const char* text) { return text == nullptr ? "" : text; }

// Answers everything, so that CivetWeb's own handling of files, CGI and authorization is never
// reached.
int OnRequest(mg_connection* connection) {
  const mg_request_info* info = mg_get_request_info(connection);
  auto* server = static_cast<HttpServer*>(info->user_data);
  const HttpRequest request{.method = Text(info->request_method),
                            .path = Text(info->local_uri),
                            .query = Text(info->query_string),
                            .host = Text(mg_get_header(connection, "Host")),
                            .authorization = Text(mg_get_header(connection, "Authorization")),
                            .accept_encoding = Text(mg_get_header(connection, "Accept-Encoding")),
                            .remote_address = info->remote_addr,
                            .remote_port = static_cast<uint16_t>(info->remote_port),
                            .local_port = static_cast<uint16_t>(info->server_port)};
  const HttpResponse response = server->api().Handle(request);
  // A body is never read, so what follows it must not be taken for a request, nor waited for.
  const bool has_body =
      info->content_length > 0 || mg_get_header(connection, "Transfer-Encoding") != nullptr;
  if (response.stream || has_body) mg_disable_connection_keep_alive(connection);
  std::string head = HeadOf(response.status, response.page);
  head += "Content-Type: " + response.content_type + "\r\n" + response.extra_headers;
  if (!response.page) head += "Cache-Control: no-store\r\n";
  if (response.stream || has_body) head += "Connection: close\r\n";
  if (!response.stream) {
    head += "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
  }
  head += "\r\n";
  bool written = Write(connection, head);
  if (request.method != "HEAD") {
    if (response.stream) {
      while (written) {
        const std::optional<std::string> piece = response.stream();
        if (!piece) break;
        written = Write(connection, *piece);
      }
    } else {
      written = written && Write(connection, response.body);
    }
  }
  if (!written) {
    if (!response.stream) server->api().CountRefusal(Refusal::kSlowOrGone);
    mg_disable_connection_keep_alive(connection);
  }
  return response.status;
}

// CivetWeb's own error pages (malformed requests) carry its version; ours carry nothing.
int OnError(mg_connection* connection, int status, const char*) {
  const mg_request_info* info = mg_get_request_info(connection);
  auto* server = static_cast<HttpServer*>(info->user_data);
  server->api().CountRefusal(status == 408 ? Refusal::kSlowOrGone : Refusal::kBadRequest);
  Write(connection, HeadOf(status, false) +
                        "Cache-Control: no-store\r\nContent-Length: 0\r\nConnection: "
                        "close\r\n\r\n");
  return 0;
}

int Silent(const mg_connection*, const char*) { return 1; }

// CivetWeb asks once when it starts and once when it ends; the context stays ours.
int OnTlsContext(void** context, void* user_data) {
  if (*context == nullptr) *context = static_cast<HttpServer*>(user_data)->tls()->Entry();
  return 1;
}

void Knock(const std::string& address, int port) {
  sockaddr_storage storage{};
  socklen_t length = 0;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    length = sizeof *v4;
  } else {
    inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    length = sizeof *v6;
  }
  const UniqueFd fd(socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  (void)connect(fd.get(), reinterpret_cast<const sockaddr*>(&storage), length);
}

}  // namespace

Result<void> HttpServer::Start(const std::string& address, int port, bool beyond_loopback,
                               const TlsPaths& tls, ServeCounters& counters) {
  const bool v6 = address.find(':') != std::string::npos;
  std::string listen_on = HostAndPort(address, port);
  if (!IsIpAddress(address) || port < 0 || port > 65535) {
    return Error{"serve HTTP on " + listen_on, "that is no IP address and port",
                 "for example 127.0.0.1 and 9470"};
  }
  if (v6 && !mg_check_feature(MG_FEATURES_IPV6)) {
    return Error{"serve HTTP on " + listen_on, "CivetWeb is built without IPv6 here",
                 "listen on an IPv4 address"};
  }
  if (tls.enabled()) {
    if (!mg_check_feature(MG_FEATURES_TLS)) {
      return Error{"serve HTTPS on " + listen_on, "CivetWeb is built without TLS here",
                   "use the daemon of the package"};
    }
    tls_ = std::make_unique<TlsContext>(tls, counters);
    if (const auto loaded = tls_->Load(); !loaded) return loaded.error();
    listen_on += "s";  // CivetWeb's mark of a port with TLS
  }
  if (!tls.enabled() && !IsLoopback(address) && !beyond_loopback) {
    return Error{
        "serve HTTP on " + listen_on, "plain HTTP beyond loopback is off",
        "set http.tls, listen on 127.0.0.1, or allow it explicitly (http.beyond_loopback: true)"};
  }
  // The request timeout bounds how long a slow client holds one of the threads, and so also Stop.
  const char* options[] = {"listening_ports",
                           listen_on.c_str(),
                           "num_threads",
                           "24",
                           "request_timeout_ms",
                           "1500",
                           "enable_keep_alive",
                           "yes",
                           "keep_alive_timeout_ms",
                           "1000",
                           "max_request_size",
                           "8192",
                           "enable_directory_listing",
                           "no",
                           nullptr};
  mg_callbacks callbacks{};
  callbacks.begin_request = OnRequest;
  callbacks.http_error = OnError;
  if (tls_) callbacks.external_ssl_ctx = OnTlsContext;
  callbacks.log_message = Silent;
  if (tls_ &&
      (tidemark_civetweb_tls() == 0 || (mg_init_library(MG_FEATURES_TLS) & MG_FEATURES_TLS) == 0)) {
    return Error{"serve HTTPS on " + listen_on, "CivetWeb cannot use this OpenSSL",
                 "use the daemon of the package, or install OpenSSL's development files"};
  }
  context_ = mg_start(&callbacks, this, options);
  if (context_ == nullptr) {
    return Error{"serve HTTP on " + listen_on, "the address is in use or not ours",
                 "stop what listens there, or set another http port"};
  }
  mg_server_port bound{};
  if (mg_get_server_ports(context_, 1, &bound) == 1) port_ = bound.port;
  address_ = address;
  return {};
}

// CivetWeb looks for its stop flag every two seconds, or when somebody connects.
void HttpServer::Stop() {
  if (context_ == nullptr) return;
  api_.Close();
  const auto stopped = std::async(std::launch::async, [this] { mg_stop(context_); });
  while (stopped.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    Knock(address_, port_);
  }
  context_ = nullptr;
}

}  // namespace tidemark::serve
