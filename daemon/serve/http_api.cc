#include "daemon/serve/http_api.h"

#include <arpa/inet.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/wrappers.pb.h>
#include <prometheus/text_serializer.h>
#include <zlib.h>

#include <algorithm>
#include <memory>

#include "daemon/serve/freshness.h"
#include "daemon/serve/http_query.h"
#include "daemon/serve/ip_address.h"
#include "daemon/serve/page_assets.h"
#include "daemon/serve/snapshot_views.h"
#include "daemon/serve/utf8.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::serve {
namespace {

constexpr std::chrono::seconds kStale{10};
constexpr std::string_view kJson = "application/json; charset=utf-8";

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

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions print;
  print.always_print_primitive_fields = true;
  print.preserve_proto_field_names = true;
  std::string json;
  // Only invalid UTF-8 could fail, and what is in our messages is valid.
  (void)google::protobuf::util::MessageToJsonString(message, &json, print);
  return json;
}

HttpResponse JsonAnswer(const google::protobuf::Message& message) {
  return {.content_type = std::string(kJson), .body = ToJson(message) + "\n"};
}

HttpResponse JsonError(int status, const std::string& why) {
  google::protobuf::StringValue quoted;
  quoted.set_value(Utf8(why));
  return {.status = status,
          .content_type = std::string(kJson),
          .body = "{\"error\":" + ToJson(quoted) + "}\n"};
}

std::string Inflate(std::string_view gzip) {
  std::string text;
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) return text;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(gzip.data()));
  stream.avail_in = static_cast<uInt>(gzip.size());
  char piece[65536];
  int state = Z_OK;
  while (state == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(piece);
    stream.avail_out = sizeof piece;
    state = inflate(&stream, Z_NO_FLUSH);
    text.append(piece, sizeof piece - stream.avail_out);
  }
  inflateEnd(&stream);
  return text;
}

// GetSnapshot's request; "pid" is the name that this path has always had for it.
Result<v1::GetSnapshotRequest> SnapshotRequest(std::string_view query) {
  std::string named;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (!named.empty()) named += '&';
    named += pair.starts_with("pid=") ? "pids=" + std::string(pair.substr(4)) : std::string(pair);
  }
  v1::GetSnapshotRequest request;
  if (const auto read = ReadQuery(named, &request); !read) return read.error();
  return request;
}

// Counts one thing for as long as it lives.
class Holding {
 public:
  explicit Holding(std::atomic<int>& count) : count_(count), number_(++count) {}
  ~Holding() { --count_; }
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;
  int number() const { return number_; }

 private:
  std::atomic<int>& count_;
  const int number_;
};

}  // namespace

std::string SecurityHeaders(bool page) {
  return std::string(
             "X-Content-Type-Options: nosniff\r\n"
             "X-Frame-Options: DENY\r\n"
             "Content-Security-Policy: default-src ") +
         (page ? "'self'; object-src 'none'; form-action 'none'" : "'none'") +
         "; frame-ancestors 'none'; base-uri 'none'\r\n"
         "Cross-Origin-Resource-Policy: same-origin\r\n"
         "Referrer-Policy: no-referrer\r\n";
}

std::string MetricsUrlOf(const std::string& address, int port, bool tls) {
  return (tls ? "https://" : "http://") + HostAndPort(address, port) + "/metrics";
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
  using Call = HttpResponse (HttpApi::*)(const HttpRequest&, const Viewer&);
  constexpr std::pair<std::string_view, Call> kCalls[] = {
      {"/api/v1/snapshot", &HttpApi::Snapshot},      {"/api/v1/stream", &HttpApi::Stream},
      {"/api/v1/query_range", &HttpApi::QueryRange}, {"/api/v1/diff", &HttpApi::Diff},
      {"/api/v1/export", &HttpApi::Export},
  };
  for (const auto& [path, call] : kCalls) {
    if (request.path != path) continue;
    HttpResponse refused;
    const std::optional<Viewer> viewer = Admit(request, &refused);
    return viewer ? (this->*call)(request, *viewer) : refused;
  }
  return Page(request);
}

HttpResponse HttpApi::Page(const HttpRequest& request) {
  const auto assets = PageAssets();
  const auto asset = std::ranges::find(assets, request.path, &PageAsset::path);
  if (asset != assets.end()) {
    HttpResponse response{.content_type = std::string(asset->content_type), .page = true};
    // Their names change with what is in them; those of the page and its like do not.
    response.extra_headers = !asset->path.starts_with("/assets/")
                                 ? "Cache-Control: no-cache\r\n"
                                 : "Cache-Control: public, max-age=31536000, immutable\r\n";
    response.extra_headers += "Vary: Accept-Encoding\r\n";
    if (request.accept_encoding.find("gzip") != std::string::npos) {
      response.extra_headers += "Content-Encoding: gzip\r\n";
      response.body = asset->gzip;
    } else {
      response.body = Inflate(asset->gzip);
    }
    return response;
  }
  if (request.path == "/") {
    return {.body = "tidemarkd " + version_ +
                    " runs, without its page: " + std::string(PageMissingReason()) +
                    "\nThere are /metrics, /healthz and /api/v1/snapshot.\n"};
  }
  return Refuse(Refusal::kBadRequest, 404,
                "no such path; there are /, /metrics, /healthz and /api/v1/snapshot, stream, "
                "query_range, diff and export");
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

std::optional<Viewer> HttpApi::Admit(const HttpRequest& request, HttpResponse* refused) {
  if (tls_) return Viewer{.sees_all = true, .remote = true};
  if (TokenMatches(request.authorization, token_)) return Viewer{.sees_all = true};
  const auto local = peers_.OfTcp(request.remote_address, request.remote_port, request.local_port);
  if (local && IsOwnHost(request.host)) return local;
  if (local) {
    *refused = Refuse(Refusal::kForeignHost, 421, "ask by address or as localhost");
    return std::nullopt;
  }
  *refused =
      Refuse(Refusal::kNoToken, 401,
             token_.empty() ? "JSON is for this machine only: the daemon has no http.token_file"
                            : "send the daemon's token: Authorization: Bearer TOKEN");
  refused->extra_headers = "WWW-Authenticate: Bearer\r\n";
  return std::nullopt;
}

HttpResponse HttpApi::OfStatus(const QueryStatus& status) {
  switch (status.code) {
    case QueryCode::kInvalid:
      return Refuse(Refusal::kBadRequest, 400, status.message);
    case QueryCode::kNotFound:
      return JsonError(404, status.message);
    case QueryCode::kDeadline:
      return JsonError(504, status.message);
    case QueryCode::kTooLarge:
      return JsonError(507, status.message);
    case QueryCode::kOk:
    case QueryCode::kUnavailable:
      break;
  }
  return JsonError(503, status.message);
}

HttpResponse HttpApi::Snapshot(const HttpRequest& request, const Viewer& viewer) {
  const auto parsed = SnapshotRequest(request.query);
  if (!parsed) return Refuse(Refusal::kBadRequest, 400, parsed.error().ToString());
  const auto options = ToOptions(*parsed);
  if (!options) return Refuse(Refusal::kBadRequest, 400, options.error().ToString());
  const SnapshotHub::Pointer latest = hub_.Latest();
  if (!latest) return JsonError(503, "the first snapshot is not done yet");
  v1::Snapshot message;
  BuildView(*latest, *options, viewer, {version_, MetricsUrlOf(address_, request.local_port, tls_)},
            &message);
  return JsonAnswer(message);
}

// Server-sent events, one snapshot each. A slow reader gets the latest, not the backlog: the next
// piece is made when the last one is written.
HttpResponse HttpApi::Stream(const HttpRequest& request, const Viewer& viewer) {
  const auto parsed = SnapshotRequest(request.query);
  if (!parsed) return Refuse(Refusal::kBadRequest, 400, parsed.error().ToString());
  const auto options = ToOptions(*parsed);
  if (!options) return Refuse(Refusal::kBadRequest, 400, options.error().ToString());
  auto holding = std::make_shared<Holding>(streams_);
  if (holding->number() > kMostStreams) {
    HttpResponse response = Refuse(Refusal::kBusy, 503, "enough streams are open already");
    response.extra_headers = "Retry-After: 5\r\n";
    return response;
  }
  HttpResponse response{.content_type = "text/event-stream; charset=utf-8"};
  response.stream = [this, viewer, options = *options, holding, port = request.local_port,
                     sequence = uint64_t{0}]() mutable -> std::optional<std::string> {
    constexpr std::chrono::milliseconds kLook{250};
    constexpr int kLooksUntilSignOfLife = 20;
    for (int look = 0; look < kLooksUntilSignOfLife; ++look) {
      if (closing_) return std::nullopt;
      const SnapshotHub::Pointer next = hub_.WaitNewer(sequence, kLook);
      if (!next) continue;
      sequence = next->sequence;
      v1::Snapshot message;
      BuildView(*next, options, viewer, {version_, MetricsUrlOf(address_, port, tls_)}, &message);
      return "id: " + std::to_string(sequence) + "\ndata: " + ToJson(message) + "\n\n";
    }
    return ": no tick\n\n";
  };
  return response;
}

HttpResponse HttpApi::QueryRange(const HttpRequest& request, const Viewer& viewer) {
  v1::QueryRangeRequest question;
  if (const auto read = ReadQuery(request.query, &question); !read) {
    return Refuse(Refusal::kBadRequest, 400, read.error().ToString());
  }
  v1::QueryRangeResponse answer;
  const QueryStatus status = past_.QueryRange(
      question, viewer, std::chrono::steady_clock::now() + HistoryCalls::kPatience, &answer);
  return status.ok() ? JsonAnswer(answer) : OfStatus(status);
}

HttpResponse HttpApi::Diff(const HttpRequest& request, const Viewer& viewer) {
  v1::DiffRequest question;
  if (const auto read = ReadQuery(request.query, &question); !read) {
    return Refuse(Refusal::kBadRequest, 400, read.error().ToString());
  }
  v1::DiffResponse answer;
  const QueryStatus status = past_.Diff(
      question, viewer, std::chrono::steady_clock::now() + HistoryCalls::kPatience, &answer);
  return status.ok() ? JsonAnswer(answer) : OfStatus(status);
}

HttpResponse HttpApi::Export(const HttpRequest& request, const Viewer& viewer) {
  v1::ExportRequest question;
  if (const auto read = ReadQuery(request.query, &question); !read) {
    return Refuse(Refusal::kBadRequest, 400, read.error().ToString());
  }
  HttpResponse response{.content_type = "application/octet-stream"};
  response.extra_headers = "Content-Disposition: attachment\r\n";
  const QueryStatus status = past_.Export(
      question, viewer, std::chrono::steady_clock::now() + HistoryCalls::kPatience, &response.body);
  return status.ok() ? response : OfStatus(status);
}

}  // namespace tidemark::serve
