// HTTP through real sockets, well-behaved and not.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "daemon/serve/history_calls.h"
#include "daemon/serve/http_api.h"
#include "daemon/serve/page_assets.h"
#include "daemon/serve/server.h"
#include "daemon/serve/testing_peer.h"
#include "daemon/serve/testing_snapshot.h"
#include "daemon/serve/to_proto.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::serve {
namespace {

using ::testing::HasSubstr;
using testing::kStranger;
using ::testing::Not;
using ::testing::StartsWith;
using namespace std::chrono_literals;

class HttpServerTest : public ::testing::Test {
 protected:
  void StartServer(ServerOptions options = {}) {
    options.http_port = 0;
    options.version = "1.2.3";
    server_ = std::make_unique<Server>(hub_, control_, options);
    const Result<void> started = server_->Start();
    ASSERT_TRUE(started.ok()) << started.error().ToString();
    ASSERT_GT(server_->BoundHttpPort(), 0);
  }

  void PublishTwo() {
    NodeSnapshot node = testing::MakeNode(2);
    node.processes[1].identity.uid = kStranger;
    hub_.Publish(testing::Share(std::move(node)));
  }

  UniqueFd Connect() {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_->BoundHttpPort()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  // Everything the server says until it closes or says nothing for five seconds.
  static std::string Talk(const UniqueFd& fd, const std::string& request) {
    const timeval patience{5, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    (void)!send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
    std::string answer;
    char buffer[65536];
    ssize_t got = 0;
    while ((got = recv(fd.get(), buffer, sizeof buffer, 0)) > 0) {
      answer.append(buffer, static_cast<size_t>(got));
    }
    return answer;
  }

  // What comes until `end`, as it comes; less where the server closes or says nothing.
  static std::string ReadUntil(const UniqueFd& fd, const std::string& end) {
    const timeval patience{30, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::string text;
    char byte = 0;
    while (!text.ends_with(end) && recv(fd.get(), &byte, 1, 0) == 1) text.push_back(byte);
    return text;
  }

  static std::string RequestFor(const std::string& target, const std::string& headers = "",
                                const std::string& method = "GET") {
    return method + " " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
           headers + "\r\n";
  }
  std::string Get(const std::string& target) { return Talk(Connect(), RequestFor(target)); }
  static std::string Body(const std::string& answer) {
    return answer.substr(answer.find("\r\n\r\n") + 4);
  }

  SnapshotHub hub_;
  testing::FakeControl control_;
  std::unique_ptr<Server> server_;
};

TEST_F(HttpServerTest, ServesMetricsInPrometheusTextFormat) {
  PublishTwo();
  StartServer();
  const std::string answer = Get("/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(Body(answer), HasSubstr("# TYPE tidemark_steps_total counter\n"));
  EXPECT_THAT(Body(answer), HasSubstr("tidemark_steps_total{training_job=\"gpt-7b\",rank=\"0\","
                                      "local_rank=\"0\"} 41\n"));
}

TEST_F(HttpServerTest, PromtoolFindsNothingWrongInARealScrape) {
  if (system("command -v promtool >/dev/null") != 0) {
    GTEST_SKIP() << "no promtool; install the package prometheus";
  }
  hub_.Publish(testing::Share(testing::MakeNode(16)));
  for (const MetricsLevel level : {MetricsLevel::kBasic, MetricsLevel::kFull}) {
    ServerOptions options;
    options.metrics_level = level;
    StartServer(options);
    const std::string file = "/tmp/tidemark-scrape-" + std::to_string(getpid());
    std::ofstream(file) << Body(Get("/metrics"));
    FILE* promtool = popen(("promtool check metrics < " + file + " 2>&1").c_str(), "r");
    std::string said(4096, '\0');
    said.resize(fread(said.data(), 1, said.size(), promtool));
    EXPECT_EQ(pclose(promtool), 0) << said;
    EXPECT_EQ(said, "");
    std::filesystem::remove(file);
  }
}

TEST_F(HttpServerTest, JsonIsTheSameMessageAsTheRpc) {
  PublishTwo();
  StartServer();
  const std::string answer = Get("/api/v1/snapshot");
  EXPECT_THAT(answer, HasSubstr("Content-Type: application/json; charset=utf-8\r\n"));
  v1::Snapshot from_json;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(Body(answer), &from_json).ok());
  v1::Snapshot expected;
  ToProto(
      *hub_.Latest(), {}, [](const ProcessSnapshot&) { return true; }, &expected);
  expected.set_daemon_version("1.2.3");
  expected.set_metrics_url(server_->MetricsUrl());
  EXPECT_EQ(from_json.SerializeAsString(), expected.SerializeAsString());
  EXPECT_THAT(Body(answer), HasSubstr("\"live_bytes\":\"943718400\""));
}

TEST_F(HttpServerTest, JsonTakesTheOptionsOfTheRpc) {
  PublishTwo();
  StartServer();
  v1::Snapshot snapshot;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(
                  Body(Get("/api/v1/snapshot?pid=1001&max_sites=1&omit_steps=true")), &snapshot)
                  .ok());
  ASSERT_EQ(snapshot.processes_size(), 1);
  EXPECT_EQ(snapshot.processes(0).sites_size(), 1);
  EXPECT_EQ(snapshot.processes(0).steps_size(), 0);
  for (const char* bad : {"max_sites=-1", "max_sites=x", "pid=99999999999", "pid", "nonsense=1",
                          "omit_sites=1", "pid=1001%00"}) {
    EXPECT_THAT(Get(std::string("/api/v1/snapshot?") + bad), StartsWith("HTTP/1.1 400 ")) << bad;
  }
}

TEST_F(HttpServerTest, AnotherUserSeesOnlyItsOwnProcesses) {
  PublishTwo();
  StartServer();
  const UniqueFd fd = testing::ConnectTcpAs(kStranger, kStranger, server_->BoundHttpPort());
  ASSERT_TRUE(fd.valid());
  v1::Snapshot snapshot;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(
                  Body(Talk(fd, RequestFor("/api/v1/snapshot"))), &snapshot)
                  .ok());
  ASSERT_EQ(snapshot.processes_size(), 1);
  EXPECT_EQ(snapshot.processes(0).pid(), 1001);
}

TEST_F(HttpServerTest, HealthFollowsTheTick) {
  StartServer();
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 503 "));
  PublishTwo();
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200 "));
  NodeSnapshot old = testing::MakeNode(1);
  old.monotonic_ns -= 60'000'000'000u;
  hub_.Publish(testing::Share(std::move(old)));
  EXPECT_THAT(Get("/healthz"), HasSubstr("the last snapshot is older than 10 s"));
}

TEST_F(HttpServerTest, EveryAnswerCarriesTheSecurityHeaders) {
  PublishTwo();
  StartServer();
  for (const char* target : {"/metrics", "/healthz", "/api/v1/snapshot", "/api/v1/diff", "/nothing",
                             "/assets/nothing.js"}) {
    const std::string answer = Get(target);
    for (const char* header :
         {"X-Content-Type-Options: nosniff", "X-Frame-Options: DENY",
          "Content-Security-Policy: default-src 'none'", "Referrer-Policy: no-referrer",
          "Cross-Origin-Resource-Policy: same-origin", "Cache-Control: no-store"}) {
      EXPECT_THAT(answer, HasSubstr(header)) << target;
    }
    EXPECT_THAT(answer, Not(HasSubstr("Access-Control-Allow"))) << target;
    EXPECT_THAT(answer, Not(HasSubstr("Server:"))) << target;
  }
}

TEST_F(HttpServerTest, ThePageLoadsOnlyWhatTheDaemonServesAndIsNeverFramed) {
  StartServer();
  if (PageAssets().empty()) GTEST_SKIP() << "built without the page: " << PageMissingReason();
  for (const PageAsset& asset : PageAssets()) {
    const std::string answer = Get(std::string(asset.path));
    for (const char* header :
         {"HTTP/1.1 200 OK", "X-Content-Type-Options: nosniff", "X-Frame-Options: DENY",
          "Content-Security-Policy: default-src 'self';", "frame-ancestors 'none'",
          "Referrer-Policy: no-referrer", "Cross-Origin-Resource-Policy: same-origin"}) {
      EXPECT_THAT(answer, HasSubstr(header)) << asset.path;
    }
    EXPECT_THAT(answer, HasSubstr("Content-Type: " + std::string(asset.content_type) + "\r\n"));
    const std::string packed =
        Talk(Connect(), RequestFor(std::string(asset.path), "Accept-Encoding: gzip, deflate\r\n"));
    EXPECT_THAT(packed, HasSubstr("Content-Encoding: gzip\r\n"));
    EXPECT_EQ(Body(packed), asset.gzip);
    EXPECT_GT(Body(answer).size(), 0u);
    // The length of the original is at the end of a gzip file.
    uint32_t original = 0;
    std::memcpy(&original, asset.gzip.data() + asset.gzip.size() - 4, 4);
    EXPECT_EQ(Body(answer).size(), original) << asset.path;
  }
}

TEST_F(HttpServerTest, ThePageIsSmall) {
  size_t bytes = 0;
  for (const PageAsset& asset : PageAssets()) bytes += asset.gzip.size();
  EXPECT_LT(bytes, 500u << 10);
}

TEST_F(HttpServerTest, WithoutAPageItSaysWhy) {
  if (!PageAssets().empty()) GTEST_SKIP() << "built with the page";
  StartServer();
  EXPECT_THAT(Get("/"), HasSubstr("runs, without its page: " + std::string(PageMissingReason())));
}

TEST_F(HttpServerTest, IsReadOnly) {
  PublishTwo();
  StartServer();
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    const std::string answer =
        Talk(Connect(), RequestFor("/api/v1/snapshot", "Content-Length: 0\r\n", method));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 ")) << method;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n")) << method;
  }
  const std::string head = Talk(Connect(), RequestFor("/metrics", "", "HEAD"));
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(Body(head), "");
}

TEST_F(HttpServerTest, NoPathReachesTheFileSystem) {
  PublishTwo();
  StartServer();
  for (const char* target :
       {"/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/metrics/../../etc/passwd",
        "/..%2f..%2fetc/passwd", "/etc/passwd", "//etc/passwd", "/.htpasswd", "/metrics/",
        "/api/v1/snapshot/../../../etc/passwd", "/\\..\\..\\etc\\passwd", "/index.html", "/api/v1",
        "/cgi-bin/x"}) {
    const std::string answer = Get(target);
    EXPECT_THAT(answer, Not(HasSubstr("root:"))) << target;
    EXPECT_THAT(answer, Not(StartsWith("HTTP/1.1 200 "))) << target;
  }
  // CivetWeb ends a path at a zero byte: what is left is "/".
  EXPECT_EQ(Body(Get("/%00/etc/passwd")), Body(Get("/")));
}

TEST_F(HttpServerTest, AForeignHostNameIsRefused) {
  PublishTwo();
  StartServer();
  const auto with_host = [&](const std::string& host) {
    return Talk(Connect(),
                "GET /api/v1/snapshot HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
  };
  EXPECT_THAT(with_host("evil.example"), StartsWith("HTTP/1.1 421 "));
  EXPECT_THAT(with_host("evil.example:9470"), StartsWith("HTTP/1.1 421 "));
  EXPECT_THAT(with_host("localhost:9470"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(with_host("127.0.0.1:9470"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(with_host("[::1]:9470"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, KeepsAConnectionForTheNextScrape) {
  PublishTwo();
  StartServer();
  const UniqueFd fd = Connect();
  const std::string one = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string answer = Talk(fd, one + RequestFor("/healthz"));
  EXPECT_NE(answer.find("HTTP/1.1 200", 10), std::string::npos);
}

TEST_F(HttpServerTest, ABodyIsNeverTakenForTheNextRequest) {
  PublishTwo();
  StartServer();
  const std::string inner = "GET /api/v1/snapshot HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (const char* method : {"GET", "POST"}) {
    const std::string outer = std::string(method) + " /healthz HTTP/1.1\r\nHost: localhost\r\n" +
                              "Content-Length: " + std::to_string(inner.size()) + "\r\n\r\n";
    const std::string answers = Talk(Connect(), outer + inner + RequestFor("/metrics"));
    EXPECT_THAT(answers, Not(HasSubstr("\"processes\""))) << method;
  }
}

TEST_F(HttpServerTest, StreamsASnapshotATick) {
  PublishTwo();
  StartServer();
  const UniqueFd fd = Connect();
  const std::string request = RequestFor("/api/v1/stream?omit_sites=true&max_steps=1");
  ASSERT_EQ(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  const std::string head = ReadUntil(fd, "\n\n");
  EXPECT_THAT(head, HasSubstr("Content-Type: text/event-stream; charset=utf-8\r\n"));
  EXPECT_THAT(head, HasSubstr("id: 1\ndata: {\"sequence\":\"1\""));
  v1::Snapshot snapshot;
  const size_t data = head.find("data: ") + 6;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(head.substr(data, head.size() - data - 2),
                                                          &snapshot)
                  .ok());
  EXPECT_EQ(snapshot.processes_size(), 2);
  EXPECT_EQ(snapshot.processes(0).sites_size(), 0);

  NodeSnapshot next = testing::MakeNode(1);
  next.sequence = 7;
  hub_.Publish(testing::Share(std::move(next)));
  EXPECT_THAT(ReadUntil(fd, "\n\n"), StartsWith("id: 7\ndata: {"));
}

TEST_F(HttpServerTest, StreamsAreFewAndLeaveRoomForTheOthers) {
  PublishTwo();
  StartServer();
  std::vector<UniqueFd> streams;
  const std::string request = RequestFor("/api/v1/stream?omit_sites=true");
  for (int i = 0; i < HttpApi::kMostStreams; ++i) {
    streams.push_back(Connect());
    (void)!send(streams.back().get(), request.data(), request.size(), MSG_NOSIGNAL);
    EXPECT_THAT(ReadUntil(streams.back(), "\n\n"), StartsWith("HTTP/1.1 200 "));
  }
  EXPECT_THAT(Get("/api/v1/stream"), StartsWith("HTTP/1.1 503 "));
  const std::string metrics = Get("/metrics");
  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(metrics, HasSubstr("tidemark_refused_requests_total{cause=\"busy\"} 1\n"));
}

TEST_F(HttpServerTest, StopEndsStreams) {
  PublishTwo();
  StartServer();
  const UniqueFd fd = Connect();
  const std::string request = RequestFor("/api/v1/stream?omit_sites=true");
  (void)!send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
  EXPECT_THAT(ReadUntil(fd, "\n\n"), StartsWith("HTTP/1.1 200 "));
  server_->Stop();
  char byte = 0;
  EXPECT_EQ(recv(fd.get(), &byte, 1, 0), 0);
}

TEST_F(HttpServerTest, QuestionsToThePastTakeTheFieldsOfTheRpc) {
  PublishTwo();
  StartServer();
  EXPECT_THAT(Get("/api/v1/query_range?ranks=0&memory_classes=fw_live&include_marks=true"),
              StartsWith("HTTP/1.1 503 "));  // no history here
  EXPECT_THAT(Get("/api/v1/query_range?sites=1"), StartsWith("HTTP/1.1 400 "));
  v1::DiffResponse diff;
  const std::string answer = Get(
      "/api/v1/diff?before.moment.name=load&after.moment.name=now&after.ranks=0&before.ranks=0");
  ASSERT_THAT(answer, StartsWith("HTTP/1.1 200 "));
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(Body(answer), &diff).ok());
  EXPECT_GT(diff.sites_size(), 0);
  // Of the end of loading only some classes are known, and the device's as a whole: the others are
  // no growth since.
  std::set<std::string> classes;
  for (const v1::DiffClass& line : diff.classes()) classes.insert(line.memory_class());
  EXPECT_THAT(classes, ::testing::IsSupersetOf({"fw_live", "driver_device"}));
  EXPECT_THAT(classes, Not(::testing::Contains("device")));
  EXPECT_THAT(classes, Not(::testing::Contains("context")));
  EXPECT_THAT(Get("/api/v1/diff?before.moment.name=yesterday"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Get("/api/v1/diff?before.pids=7"), StartsWith("HTTP/1.1 404 "));
  const std::string file = Get("/api/v1/export?format=folded");
  EXPECT_THAT(file, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(file, HasSubstr("Content-Disposition: attachment\r\n"));
  EXPECT_THAT(Get("/api/v1/export?format=exe"), StartsWith("HTTP/1.1 400 "));
}

TEST_F(HttpServerTest, RefusalsAreCountedByCause) {
  PublishTwo();
  StartServer();
  // A path, a query and headers that are larger than any that is meant; a body; unknown methods.
  EXPECT_THAT(Get("/" + std::string(9000, 'x')), Not(StartsWith("HTTP/1.1 200")));
  EXPECT_THAT(Get("/api/v1/snapshot?pid=" + std::string(9000, '1')),
              Not(StartsWith("HTTP/1.1 200")));
  EXPECT_THAT(Talk(Connect(), RequestFor("/healthz", "X: " + std::string(9000, 'x') + "\r\n")),
              Not(StartsWith("HTTP/1.1 200")));
  EXPECT_THAT(Talk(Connect(), RequestFor("/healthz", "", "BREW")), Not(StartsWith("HTTP/1.1 200")));
  EXPECT_THAT(Get("/etc/passwd"), StartsWith("HTTP/1.1 404 "));
  const std::string metrics = Get("/metrics");
  EXPECT_THAT(metrics, HasSubstr("tidemark_refused_requests_total{cause=\"bad_request\"} 5\n"));
}

TEST_F(HttpServerTest, ABodyIsNotWaitedFor) {
  PublishTwo();
  StartServer();
  const std::string answer = Talk(Connect(),
                                  "POST /api/v1/snapshot HTTP/1.1\r\nHost: localhost\r\n"
                                  "Content-Length: 1000000000\r\n\r\nstart");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
}

TEST_F(HttpServerTest, GarbageAndSilenceLeaveItAlive) {
  PublishTwo();
  StartServer();
  std::mt19937 random(11);
  std::vector<UniqueFd> open;
  for (int round = 0; round < 100; ++round) {
    UniqueFd fd = Connect();
    std::string bytes = round % 3 == 0 ? "GET /" : "";
    const size_t length = random() % 20000;
    for (size_t i = 0; i < length; ++i) bytes.push_back(static_cast<char>(random()));
    if (round % 2 == 0) bytes += "\r\n\r\n";
    (void)!send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  for (int i = 0; i < 4; ++i) open.push_back(Connect());  // say nothing
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, StopsWithinASecondWhileClientsHang) {
  PublishTwo();
  StartServer();
  const UniqueFd silent = Connect();
  const UniqueFd half = Connect();
  (void)!send(half.get(), "GET /met", 8, MSG_NOSIGNAL);
  std::this_thread::sleep_for(50ms);
  const auto start = std::chrono::steady_clock::now();
  server_->Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1900ms);
  EXPECT_EQ(server_->BoundHttpPort(), 0);
}

TEST_F(HttpServerTest, RefusesAnAddressBeyondLoopbackUnlessAskedFor) {
  for (const char* address : {"0.0.0.0", "10.1.2.3"}) {
    Server server(hub_, control_, {.http_address = address, .http_port = 0});
    const Result<void> started = server.Start();
    ASSERT_FALSE(started.ok()) << address;
    EXPECT_THAT(started.error().ToString(), HasSubstr("plain HTTP beyond loopback is off"));
  }
  Server asked(hub_, control_,
               {.http_address = "0.0.0.0", .http_port = 0, .http_beyond_loopback = true});
  EXPECT_TRUE(asked.Start().ok());
}

TEST_F(HttpServerTest, SaysWhenTheAddressIsTakenOrNone) {
  StartServer();
  Server second(hub_, control_, {.http_port = server_->BoundHttpPort()});
  const Result<void> started = second.Start();
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().ToString(), HasSubstr("in use"));
  for (const char* address : {"localhost", "", "127.0.0.1:1", "1.2.3"}) {
    Server server(hub_, control_, {.http_address = address, .http_port = 0});
    EXPECT_FALSE(server.Start().ok()) << address;
  }
}

TEST_F(HttpServerTest, ServesOnIpv6LoopbackOrSaysWhyNot) {
  PublishTwo();
  Server server(hub_, control_, {.http_address = "::1", .http_port = 0});
  const Result<void> started = server.Start();
  if (started.ok()) {
    EXPECT_THAT(server.MetricsUrl(), StartsWith("http://[::1]:"));
  } else {  // Debian's CivetWeb
    EXPECT_THAT(started.error().ToString(), HasSubstr("built without IPv6"));
  }
}

TEST_F(HttpServerTest, ATokenFileThatOthersReadIsRefused) {
  const std::string file = "/tmp/tidemark-token-" + std::to_string(getpid());
  std::ofstream(file) << "0123456789abcdef0123456789abcdef\n";
  chmod(file.c_str(), 0644);
  Server open(hub_, control_, {.http_port = 0, .http_token_file = file});
  EXPECT_FALSE(open.Start().ok());
  chmod(file.c_str(), 0600);
  Server closed(hub_, control_, {.http_port = 0, .http_token_file = file});
  EXPECT_TRUE(closed.Start().ok());
  std::ofstream(file) << "short";
  Server weak(hub_, control_, {.http_port = 0, .http_token_file = file});
  EXPECT_FALSE(weak.Start().ok());
  std::filesystem::remove(file);
}

// A peer on another machine, as far as the kernel's table can tell.
class RemotePeerTest : public ::testing::Test {
 protected:
  HttpResponse Ask(const std::string& token, const std::string& authorization) {
    hub_.Publish(testing::Share(testing::MakeNode(1)));
    HttpApi api(hub_, peers_, past_, exporter_, counters_, "1", token, "0.0.0.0", false);
    return api.Handle({.method = "GET",
                       .path = "/api/v1/snapshot",
                       .query = "",
                       .host = "node-7:9470",
                       .authorization = authorization,
                       .remote_address = "192.0.2.1",
                       .remote_port = 40000,
                       .local_port = 9470});
  }
  SnapshotHub hub_;
  PeerPolicy peers_{"tidemark-no-such-group"};
  const HistoryCalls past_{hub_, nullptr};
  ServeCounters counters_;
  MetricsExporter exporter_{hub_, counters_, MetricsLevel::kBasic, "1"};
};

TEST_F(RemotePeerTest, NeedsTheToken) {
  const std::string token = "0123456789abcdef";
  EXPECT_EQ(Ask("", "").status, 401);
  EXPECT_EQ(Ask("", "Bearer ").status, 401);
  EXPECT_EQ(Ask(token, "").status, 401);
  EXPECT_EQ(Ask(token, "Bearer 0123456789abcdeX").status, 401);
  EXPECT_EQ(Ask(token, "Bearer 0123456789abcdef0").status, 401);
  EXPECT_EQ(Ask(token, "Basic 0123456789abcdef").status, 401);
  EXPECT_EQ(counters_.refusals[static_cast<size_t>(Refusal::kNoToken)], 6u);
  EXPECT_EQ(Ask(token, "Bearer 0123456789abcdef").status, 200);
}

}  // namespace
}  // namespace tidemark::serve
