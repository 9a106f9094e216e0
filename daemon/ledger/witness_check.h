// Compares what two witnesses counted of the same calls in one process: the injected agent by
// callbacks, the kernel by probes.
//
// Both counts only grow, began at different times and are never read at the same moment. With the
// agent read at a(n), the probes at b(n) and the agent again at a(n+1), what the agent counted at
// b(n) lies in [A(n), A(n+1)], so agent - probes lies in [A(n) - B(n), A(n+1) - B(n)]. As long as
// nobody misses a call that difference is one constant, the calls from before the probes: every
// tick's interval holds it, and so does their intersection. An interval that misses the
// intersection proves that a witness missed something, and the gap says how much at the least; as
// soon as the calls pause for a tick, exactly how much. So the time between two looks never shows
// as a difference, and a real difference is never averaged away.
//
// Owned and used by the tick thread. The agent's counts are untrusted: they can make their own
// comparison wrong, nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "daemon/snapshot/node_snapshot.h"
#include "wire/entry_point.h"

namespace tidemark {

struct WitnessCount {
  uint64_t calls = 0;
  uint64_t requested_bytes = 0;
};
using WitnessCounts = std::array<WitnessCount, wire::kEntryPointCount>;

class WitnessCheck {
 public:
  // Once a tick while both count: the agent's counts first, the probes' counts read after them.
  void Update(uint64_t monotonic_ns, const WitnessCounts& agent, const WitnessCounts& probes);
  // One of the two does not count: what was found stays, and the next comparison begins anew.
  void Pause();

  // Entry points that either witness saw called while both were there.
  std::vector<WitnessDifferenceView> Differences() const;

 private:
  struct Interval {
    int64_t low = 0;
    int64_t high = 0;
  };
  // One number of one entry point.
  struct Number {
    std::optional<Interval> agreed;  // where agent - probes lay as long as they agreed
    std::optional<Interval> now;     // where it lies
    int64_t from_before = 0;         // differences of earlier comparisons, in total
    void Narrow(Interval seen);
    int64_t Difference() const;
  };
  struct Row {
    Number calls;
    Number bytes;
    uint64_t calls_seen = 0;  // by the probes, while both were there
    struct Past {
      uint64_t monotonic_ns;
      int64_t calls;
      int64_t bytes;
    };
    std::deque<Past> past;  // of the last minute, oldest first; only when it changed
  };
  struct Reading {
    WitnessCounts agent;
    WitnessCounts probes;
  };

  std::array<Row, wire::kEntryPointCount> rows_;
  std::optional<Reading> last_;
  uint64_t now_ns_ = 0;
};

}  // namespace tidemark
