// Pushes alerts to Alertmanager's API v2, for sites without Prometheus.
//
// What is sent is always all that is true: the latest list replaces the one before, so there is no
// queue that could grow, and a lost message is made good by the next. It is sent when an alert
// starts or ends and again every `resend`; Alertmanager lets an alert end by itself when nothing
// is heard of it for four times that long (the daemon died). A failure is tried again after
// 1, 2, 4 ... 30 s, but within `resend`, with what is true then.
//
// Thread: Offer, state and Stop from the owner's; a thread of its own does the sending.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "daemon/serve/alert/alert_board.h"
#include "daemon/serve/alert/http_post.h"

namespace tidemark::serve {

struct AlertmanagerState {
  uint64_t sent = 0;    // messages taken
  uint64_t failed = 0;  // messages not taken; each was made good by a later one or will be
  std::string reason;   // of the last failure; empty while it works
};

// The body of a POST to /api/v2/alerts. Bytes that are not UTF-8 are replaced.
std::string ToAlertmanagerJson(const std::vector<Alert>& alerts, uint64_t now_unix_ns,
                               std::chrono::seconds resend);

class AlertmanagerPush {
 public:
  // `resend` is a second at least.
  AlertmanagerPush(HttpUrl url, std::chrono::seconds resend);
  ~AlertmanagerPush();

  Result<void> Start();
  void Stop();  // within a moment; what was not sent stays unsent

  void Offer(std::vector<Alert> alerts);
  AlertmanagerState state() const;

 private:
  using Names = std::set<std::pair<AlertTexts, bool>>;

  void Run();
  bool AwaitWork(std::chrono::steady_clock::time_point due, bool changes_count);

  const HttpUrl url_;
  const std::chrono::seconds resend_;
  UniqueFd stop_event_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Alert> alerts_;
  Names names_;  // of alerts_: which, and whether ended
  bool changed_ = false;
  bool stopping_ = false;
  AlertmanagerState state_;
  std::thread thread_;
};

}  // namespace tidemark::serve
