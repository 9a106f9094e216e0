// The waterfalls of one process, one a device: which figure each starts from, and what becomes of
// it when the device no longer lists the process.
//
// Owned by the tick thread; one object a process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "daemon/snapshot/node_snapshot.h"
#include "daemon/snapshot/waterfall.h"
#include "daemon/source/nvml/nvml_source.h"

namespace tidemark {

// Devices on which the driver lists the process; `nvml` may be null.
std::vector<int> DevicesHeldBy(pid_t pid, const NvmlSample* nvml);

class ProcessWaterfalls {
 public:
  explicit ProcessWaterfalls(pid_t pid) : pid_(pid) {}

  // Forgets what was learned of the process's contexts: another agent, another life.
  void Reset() { trackers_.clear(); }

  // What the process's own witnesses say at the moment of the device's answer.
  struct Witnesses {
    std::vector<ClassTotal> before;  // right before the device was asked
    std::vector<ClassTotal> totals;  // after it has answered
    std::vector<OwnAccountBytes> accounts;
    int64_t observer_device_bytes = 0;
    uint64_t unix_ns = 0;
  };
  void Update(const NvmlSample* nvml, const Witnesses& witnesses,
              const std::deque<EventView>& events);

  // Of a process that ended before any device was asked: what its calls took is known all the same.
  void DescribeEnded(const Witnesses& witnesses, const std::deque<EventView>& events);

  const std::vector<Waterfall>& all() const { return waterfalls_; }

 private:
  DeviceFigure FigureOf(int device, const NvmlSample* nvml) const;

  const pid_t pid_;
  std::map<int, WaterfallTracker> trackers_;  // by device
  std::vector<Waterfall> waterfalls_;
};

}  // namespace tidemark
