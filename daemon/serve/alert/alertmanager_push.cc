#include "daemon/serve/alert/alertmanager_push.h"

#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace tidemark::serve {
namespace {

using std::chrono::steady_clock;

constexpr char kPath[] = "/api/v2/alerts";
constexpr std::chrono::seconds kPatience{10};
constexpr std::chrono::seconds kMostBackoff{30};

std::string Rfc3339(uint64_t unix_ns) {
  const auto seconds = static_cast<time_t>(unix_ns / 1'000'000'000u);
  tm parts = {};
  ::gmtime_r(&seconds, &parts);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  char text[48];
  std::snprintf(text, sizeof text, "%s.%03uZ", date,
                static_cast<unsigned>(unix_ns / 1'000'000u % 1000u));
  return text;
}

uint64_t UnixNow() {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

std::string ToAlertmanagerJson(const std::vector<Alert>& alerts, uint64_t now_unix_ns,
                               std::chrono::seconds resend) {
  using Json = nlohmann::json;
  const auto lives = static_cast<uint64_t>(
      std::chrono::nanoseconds(std::max(4 * resend, std::chrono::seconds(60))).count());
  Json list = Json::array();
  for (const Alert& alert : alerts) {
    const uint64_t ends = alert.ends_unix_ns != 0 ? alert.ends_unix_ns : now_unix_ns + lives;
    list.push_back({{"labels", alert.labels},
                    {"annotations", alert.annotations},
                    {"startsAt", Rfc3339(alert.starts_unix_ns)},
                    {"endsAt", Rfc3339(ends)}});
  }
  return list.dump(-1, ' ', false, Json::error_handler_t::replace);
}

AlertmanagerPush::AlertmanagerPush(HttpUrl url, std::chrono::seconds resend)
    : url_(std::move(url)), resend_(resend) {}

AlertmanagerPush::~AlertmanagerPush() { Stop(); }

Result<void> AlertmanagerPush::Start() {
  stop_event_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_event_.valid()) return Error{"start the push of alerts", std::strerror(errno), ""};
  thread_ = std::thread([this] { Run(); });
  ::pthread_setname_np(thread_.native_handle(), "alertmanager");
  return {};
}

void AlertmanagerPush::Stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  const uint64_t one = 1;
  (void)!::write(stop_event_.get(), &one, sizeof(one));
  wake_.notify_all();
  thread_.join();
}

void AlertmanagerPush::Offer(std::vector<Alert> alerts) {
  Names names;
  for (const Alert& alert : alerts) names.emplace(alert.labels, alert.ends_unix_ns != 0);
  std::lock_guard lock(mutex_);
  alerts_ = std::move(alerts);
  if (names == names_) return;
  names_ = std::move(names);
  changed_ = true;
  wake_.notify_all();
}

AlertmanagerState AlertmanagerPush::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

// False when it is time to end.
bool AlertmanagerPush::AwaitWork(steady_clock::time_point due, bool changes_count) {
  std::unique_lock lock(mutex_);
  wake_.wait_until(lock, due, [&] { return stopping_ || (changes_count && changed_); });
  return !stopping_;
}

void AlertmanagerPush::Run() {
  const std::chrono::seconds most_backoff = std::min(resend_, kMostBackoff);
  std::chrono::seconds backoff{0};
  auto due = steady_clock::now() + resend_;
  while (AwaitWork(due, backoff.count() == 0)) {
    std::vector<Alert> alerts;
    {
      std::lock_guard lock(mutex_);
      alerts = alerts_;
      changed_ = false;
    }
    if (alerts.empty()) {
      backoff = std::chrono::seconds(0);
      due = steady_clock::now() + resend_;
      continue;
    }
    const Result<void> sent = HttpPost(url_, kPath, ToAlertmanagerJson(alerts, UnixNow(), resend_),
                                       kPatience, stop_event_.get());
    std::lock_guard lock(mutex_);
    if (sent.ok()) {
      ++state_.sent;
      if (!state_.reason.empty()) spdlog::info("alerts reach Alertmanager again");
      state_.reason.clear();
      backoff = std::chrono::seconds(0);
      due = steady_clock::now() + resend_;
      continue;
    }
    if (stopping_) return;
    ++state_.failed;
    // Once an outage, not once a try.
    if (state_.reason.empty()) spdlog::warn("no alerts: {}", sent.error().ToString());
    state_.reason = sent.error().ToString();
    backoff = std::clamp(2 * backoff, std::chrono::seconds(1), most_backoff);
    due = steady_clock::now() + backoff;
  }
}

}  // namespace tidemark::serve
