#include "daemon/serve/alert/alertmanager_push.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <nlohmann/json.hpp>

namespace tidemark::serve {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Alert Named(const std::string& name) { return {{{"alertname", name}}, {{"summary", "s"}}, 1, 0}; }

// A server on a free port of the loopback that takes one connection after another and gives each
// the same answer; "" = none, while the connection stays open.
class FakeServer {
 public:
  explicit FakeServer(std::string answer) : answer_(std::move(answer)) {
    listener_.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    socklen_t size = sizeof address;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    url = {"127.0.0.1", std::to_string(ntohs(address.sin_port)), ""};
    thread_ = std::thread([this] { Run(); });
  }
  ~FakeServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

  std::string Received() {
    std::lock_guard lock(mutex_);
    return received_;
  }

  void SetAnswer(const std::string& answer) {
    std::lock_guard lock(mutex_);
    answer_ = answer;
  }

  HttpUrl url;

 private:
  void Run() {
    std::vector<UniqueFd> open;
    for (;;) {
      UniqueFd peer(::accept(listener_.get(), nullptr, nullptr));
      if (!peer.valid()) return;
      char buffer[65536];
      const ssize_t got = ::recv(peer.get(), buffer, sizeof buffer, 0);
      std::lock_guard lock(mutex_);
      if (got > 0) received_.assign(buffer, static_cast<size_t>(got));
      if (!answer_.empty()) {
        (void)::send(peer.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
      } else {
        open.push_back(std::move(peer));
      }
    }
  }

  std::mutex mutex_;
  std::string answer_;
  std::string received_;
  UniqueFd listener_;
  std::thread thread_;
};

template <typename Condition>
bool Comes(Condition condition) {
  const auto end = steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

TEST(AlertmanagerJsonTest, SaysWhatWhenAndUntilWhen) {
  Alert ended = Named("A");
  ended.starts_unix_ns = 1'790'000'000'123'000'000;
  ended.ends_unix_ns = 1'790'000'060'000'000'000;
  const auto json = nlohmann::json::parse(
      ToAlertmanagerJson({ended, Named("B")}, 1'790'000'100'000'000'000, std::chrono::seconds(30)));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["labels"]["alertname"], "A");
  EXPECT_EQ(json[0]["annotations"]["summary"], "s");
  EXPECT_EQ(json[0]["startsAt"], "2026-09-21T14:13:20.123Z");
  EXPECT_EQ(json[0]["endsAt"], "2026-09-21T14:14:20.000Z");
  EXPECT_EQ(json[1]["endsAt"], "2026-09-21T14:17:00.000Z") << "four times resend from now";
}

TEST(AlertmanagerJsonTest, BytesThatAreNotUtf8DoNotSpoilTheMessage) {
  Alert alert = Named("A");
  alert.annotations["summary"] = "\xff\x80 x\n\"";
  const auto json = nlohmann::json::parse(ToAlertmanagerJson({alert}, 1, std::chrono::seconds(30)));
  EXPECT_THAT(json[0]["annotations"]["summary"].get<std::string>(), HasSubstr(" x\n\""));
}

TEST(AlertmanagerPushTest, SendsWhatStartsAtOnceToTheV2Path) {
  FakeServer server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  AlertmanagerPush push(server.url, std::chrono::hours(1));
  ASSERT_TRUE(push.Start().ok());
  push.Offer({Named("A")});
  ASSERT_TRUE(Comes([&] { return push.state().sent == 1; }));
  EXPECT_THAT(server.Received(), StartsWith("POST /api/v2/alerts HTTP/1.1\r\n"));
  EXPECT_EQ(push.state().reason, "");
}

TEST(AlertmanagerPushTest, SendsAgainAfterAFailureWhatIsTrueThen) {
  FakeServer server("HTTP/1.1 503 Service Unavailable\r\n\r\n");
  AlertmanagerPush push(server.url, std::chrono::hours(1));
  ASSERT_TRUE(push.Start().ok());
  push.Offer({Named("Older")});
  ASSERT_TRUE(Comes([&] { return push.state().failed >= 1; }));
  EXPECT_THAT(push.state().reason, HasSubstr("HTTP/1.1 503"));
  push.Offer({Named("Newer")});
  server.SetAnswer("HTTP/1.1 200 OK\r\n\r\n");
  ASSERT_TRUE(Comes([&] { return push.state().sent == 1; }));
  EXPECT_THAT(server.Received(), HasSubstr("Newer"));
  EXPECT_EQ(push.state().reason, "");
}

TEST(AlertmanagerPushTest, ADeadServerIsTriedAgainAndNeverHoldsUpItsCaller) {
  HttpUrl url;
  {
    FakeServer gone("");
    url = gone.url;
  }
  AlertmanagerPush push(url, std::chrono::hours(1));
  ASSERT_TRUE(push.Start().ok());
  push.Offer({Named("A")});
  ASSERT_TRUE(Comes([&] { return push.state().failed >= 2; }));
  EXPECT_EQ(push.state().sent, 0u);
}

TEST(AlertmanagerPushTest, StopsWhileAServerKeepsItWaiting) {
  FakeServer silent("");
  AlertmanagerPush push(silent.url, std::chrono::hours(1));
  ASSERT_TRUE(push.Start().ok());
  push.Offer({Named("A")});
  ASSERT_TRUE(Comes([&] { return !silent.Received().empty(); }));
  const auto begin = steady_clock::now();
  push.Stop();
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(9)) << "it waited for the answer";
}

TEST(HttpUrlTest, TakesHostPortAndPrefix) {
  const Result<HttpUrl> url = ParseHttpUrl("http://[::1]:9093/am/");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->port, "9093");
  EXPECT_EQ(url->path, "/am");
  EXPECT_EQ(ParseHttpUrl("http://alerts")->port, "80");
}

TEST(HttpUrlTest, RefusesWhatItCannotReach) {
  for (const char* text : {"", "alerts:9093", "https://alerts", "http://", "http://:1",
                           "http://a:b", "http://a:", "http://a\r\nX: y", "http://user@a"}) {
    EXPECT_FALSE(ParseHttpUrl(text).ok()) << text;
  }
}

}  // namespace
}  // namespace tidemark::serve
