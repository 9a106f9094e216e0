// For tests and benchmarks of the history: a node whose every figure is known, second by second.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/snapshot/node_snapshot.h"
#include "daemon/source/agent/region_reader.h"

namespace tidemark {

// `ranks` processes with pids from kFirstPid. Second s is unix time kBeginS + s; in it, rank r's
//   fw_live   = FwLive(r, s)    (at random from 1 to 2 GiB: no two can be mixed up, nor compressed)
//   context   = 518 MiB, anon = (s + 1) * 4096
//   site i    = FwLive((r + 1) * 1000 + i, s), i from 1
// Step n ends with second n where `steps` are asked for.
class TestingNode {
 public:
  static constexpr uint64_t kBeginS = 1'800'000'000;
  static constexpr pid_t kFirstPid = 1000;

  explicit TestingNode(int ranks, int sites = 0, bool steps = false);

  static int64_t FwLive(int rank, uint64_t second) {
    uint64_t bits = (second * 65536 + static_cast<uint64_t>(rank)) * 0x9e3779b97f4a7c15;
    bits = (bits ^ (bits >> 32)) * 0xd6e8feb86659fd93;
    return (int64_t{1} << 30) + static_cast<int64_t>(bits >> 43) * 512;
  }
  static uint64_t UnixNs(uint64_t second) { return (kBeginS + second) * 1'000'000'000; }
  ProcessKey KeyOf(int rank) const;

  // Seconds are asked for in any order: a clock may be set back.
  NodeSnapshot At(uint64_t second);

 private:
  const int ranks_;
  const bool steps_;
  uint64_t sequence_ = 0;
  std::vector<std::shared_ptr<const SiteInfo>> sites_;
  std::vector<std::shared_ptr<StepList>> step_lists_;  // by rank
};

}  // namespace tidemark
