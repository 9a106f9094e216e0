// The last minutes of every process, by class and device: what a post-mortem shows of the time
// before a death. Bounded: a point a second and process, kKept points, kMostProcesses processes.
//
// Owned and used by the post-mortems' thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "daemon/snapshot/node_snapshot.h"
#include "daemon/store/history_block.h"

namespace tidemark {

class RecentBytes {
 public:
  static constexpr size_t kKept = 300;  // points of a process: five minutes
  static constexpr size_t kMostProcesses = 256;

  struct Point {
    uint64_t unix_ns = 0;
    uint64_t step = 0;
    std::vector<std::pair<SeriesKey, int64_t>> bytes;
  };
  using Course = std::deque<Point>;  // oldest first

  void Absorb(const NodeSnapshot& snapshot);

  // Empty where nothing is known of the process.
  const Course& Of(const ProcessKey& key) const;

 private:
  std::map<ProcessKey, Course> courses_;
};

// Bytes of a point; 0 where it has none of the class.
int64_t BytesAt(const RecentBytes::Point& point, const SeriesKey& key);

}  // namespace tidemark
