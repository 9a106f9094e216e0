// From verdicts to alerts: which are firing, since when, and which have ended.
//
// An alert's labels say what it is; equal labels are one alert, from whatever node. They are
// exactly alertname, training_job, class and scope, and node, rank and site where scope is rank.
// Names and texts are those of deploy/prometheus/rules: a site uses one of the two paths.
//
// A leak that half of the job's ranks on this node share (two at least) is one alert of the job;
// its node and ranks are annotations, so that the alerts of many nodes are one. A rank with
// neighbours waits a moment, for them to be confirmed too. What is no longer true goes on for a
// minute, so that nothing flutters.
//
// Thread: the tick's. Untrusted: names and texts come from observed processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/snapshot/node_snapshot.h"

namespace tidemark::serve {

using AlertTexts = std::map<std::string, std::string>;

struct Alert {
  AlertTexts labels;
  AlertTexts annotations;
  uint64_t starts_unix_ns = 0;
  uint64_t ends_unix_ns = 0;  // 0 = firing
};

class AlertBoard {
 public:
  static constexpr std::chrono::seconds kRankWaits{15};     // for the rest of its job
  static constexpr std::chrono::seconds kSuspectWaits{60};  // a forecast that nothing confirms
  static constexpr std::chrono::seconds kGoesOn{60};        // after it was true last
  static constexpr std::chrono::seconds kAfterDeath{60};    // a process that ended still speaks
  static constexpr std::chrono::minutes kRemembered{10};    // ended alerts are told this long
  static constexpr size_t kMost = 1024;

  // Takes the next snapshot in. What fires now and what ended in the last minutes; more than kMost
  // are left out and counted.
  std::vector<Alert> Update(const NodeSnapshot& snapshot);

  uint64_t left_out() const { return left_out_; }

 private:
  struct State {
    AlertTexts annotations;
    uint64_t true_since_ns = 0;  // these three: monotonic
    uint64_t true_last_ns = 0;
    uint64_t ended_ns = 0;        // 0 = not yet
    uint64_t starts_unix_ns = 0;  // 0 = still waits
    uint64_t ends_unix_ns = 0;
  };
  struct Claim {
    AlertTexts annotations;
    std::chrono::seconds waits{0};
  };
  using Claims = std::map<AlertTexts, Claim>;

  static void ClaimLeaks(const NodeSnapshot& snapshot, Claims* claims);
  static void ClaimOutOfMemory(const NodeSnapshot& snapshot, Claims* claims);

  std::map<AlertTexts, State> states_;
  uint64_t left_out_ = 0;
};

}  // namespace tidemark::serve
