#include "daemon/serve/http_api.h"

#include <arpa/inet.h>
#include <google/protobuf/util/json_util.h>
#include <prometheus/text_serializer.h>

#include <charconv>
#include <optional>

#include "daemon/serve/freshness.h"
#include "daemon/serve/snapshot_views.h"

namespace tidemark::serve {
namespace {

constexpr std::chrono::seconds kStale{10};
constexpr std::string_view kJson = "application/json; charset=utf-8";

// Only these, so that nothing has to be decoded: digits, words, "=" and "&".
std::optional<v1::GetSnapshotRequest> ParseQuery(std::string_view query) {
  v1::GetSnapshotRequest request;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view name = pair.substr(0, equals);
    const std::string_view value = pair.substr(equals + 1);
    if (name == "omit_sites" || name == "omit_steps") {
      if (value != "true" && value != "false") return std::nullopt;
      if (name == "omit_sites") request.set_omit_sites(value == "true");
      if (name == "omit_steps") request.set_omit_steps(value == "true");
      continue;
    }
    int32_t number = 0;
    const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || stop != value.data() + value.size()) return std::nullopt;
    if (name == "pid") {
      request.add_pids(number);
    } else if (name == "max_sites") {
      request.set_max_sites(number);
    } else if (name == "max_steps") {
      request.set_max_steps(number);
    } else {
      return std::nullopt;
    }
  }
  return request;
}

// Whether a browser could have been sent here by a page of somebody else whose name resolves to our
// address: such requests carry that name as their host.
bool IsOwnHost(std::string_view host) {
  if (const size_t colon = host.rfind(':');
      colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos) {
    host = host.substr(0, colon);
  }
  if (host.empty() || host == "localhost") return true;
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  in6_addr address{};
  const std::string text(host);
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

// Takes the same time however much of the token is right.
bool TokenMatches(std::string_view authorization, std::string_view token) {
  constexpr std::string_view kBearer = "Bearer ";
  if (token.empty() || !authorization.starts_with(kBearer)) return false;
  authorization.remove_prefix(kBearer.size());
  if (authorization.size() != token.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < token.size(); ++i) {
    difference |= static_cast<unsigned char>(authorization[i] ^ token[i]);
  }
  return difference == 0;
}

HttpResponse JsonError(int status, const std::string& why) {
  // `why` is ours: it never needs escaping.
  return {.status = status,
          .content_type = std::string(kJson),
          .body = "{\"error\":\"" + why + "\"}\n"};
}

}  // namespace

std::string_view SecurityHeaders() {
  return "X-Content-Type-Options: nosniff\r\n"
         "X-Frame-Options: DENY\r\n"
         "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'; base-uri 'none'\r\n"
         "Cross-Origin-Resource-Policy: same-origin\r\n"
         "Referrer-Policy: no-referrer\r\n"
         "Cache-Control: no-store\r\n";
}

std::string MetricsUrlOf(const std::string& address, int port) {
  const bool v6 = address.find(':') != std::string::npos;
  return "http://" + (v6 ? "[" + address + "]" : address) + ":" + std::to_string(port) + "/metrics";
}

HttpResponse HttpApi::Refuse(Refusal cause, int status, const std::string& why) {
  counters_.Refuse(cause);
  return JsonError(status, why);
}

HttpResponse HttpApi::Handle(const HttpRequest& request) {
  counters_.http_requests.fetch_add(1, std::memory_order_relaxed);
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse response = Refuse(Refusal::kBadRequest, 405, "everything here is read-only");
    response.extra_headers = "Allow: GET, HEAD\r\n";
    return response;
  }
  if (request.path == "/metrics") return Metrics();
  if (request.path == "/healthz") return Health();
  if (request.path == "/api/v1/snapshot") return Snapshot(request);
  if (request.path == "/") {
    return {.body = "tidemarkd " + version_ + ": /metrics /healthz /api/v1/snapshot\n"};
  }
  return Refuse(Refusal::kBadRequest, 404,
                "no such path; there are /metrics, /healthz and "
                "/api/v1/snapshot");
}

HttpResponse HttpApi::Metrics() const {
  return {.status = 200,
          .content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = prometheus::TextSerializer().Serialize(exporter_.Collect())};
}

HttpResponse HttpApi::Health() const {
  const SnapshotHub::Pointer latest = hub_.Latest();
  if (IsFresh(latest, kStale)) return {.body = "ok\n"};
  return {.status = 503,
          .body = latest ? "the last snapshot is older than 10 s\n"
                         : "the first snapshot is not done yet\n"};
}

HttpResponse HttpApi::Snapshot(const HttpRequest& request) {
  Viewer viewer;
  if (TokenMatches(request.authorization, token_)) {
    viewer.sees_all = true;
  } else if (const auto local =
                 peers_.OfTcp(request.remote_address, request.remote_port, request.local_port)) {
    if (!IsOwnHost(request.host)) {
      return Refuse(Refusal::kForeignHost, 421, "ask by address or as localhost");
    }
    viewer = *local;
  } else {
    HttpResponse response =
        Refuse(Refusal::kNoToken, 401,
               token_.empty() ? "JSON is for this machine only: the daemon has no http_token_file"
                              : "send the daemon's token: Authorization: Bearer TOKEN");
    response.extra_headers = "WWW-Authenticate: Bearer\r\n";
    return response;
  }
  const auto parsed = ParseQuery(request.query);
  if (!parsed) {
    return Refuse(Refusal::kBadRequest, 400,
                  "the query may hold pid, max_sites, max_steps, omit_sites and omit_steps");
  }
  const auto options = ToOptions(*parsed);
  if (!options) {
    return Refuse(Refusal::kBadRequest, 400, "max_sites and max_steps must not be negative");
  }
  const SnapshotHub::Pointer latest = hub_.Latest();
  if (!latest) return JsonError(503, "the first snapshot is not done yet");
  v1::Snapshot message;
  BuildView(*latest, *options, viewer, {version_, MetricsUrlOf(address_, request.local_port)},
            &message);
  google::protobuf::util::JsonPrintOptions print;
  print.always_print_primitive_fields = true;
  print.preserve_proto_field_names = true;
  HttpResponse response{.content_type = std::string(kJson)};
  if (!google::protobuf::util::MessageToJsonString(message, &response.body, print).ok()) {
    return JsonError(500, "the snapshot cannot be written as JSON");
  }
  response.body += "\n";
  return response;
}

}  // namespace tidemark::serve
