// Where a process's bytes on one device went: from the device's figure of the process down to what
// nobody can name. The lines add up to the figure exactly, whatever the sources say.
//
//   figure (NVML) = context + fw_live + fw_cache + device + pool + vmm + array + graph
//                   + observer + unattributed
//
// `device`, `pool` and `vmm` are without what the framework's allocator has taken from them.
// `context` is the smallest (figure - tracked) seen in the first seconds; `unattributed` is the
// rest, may be negative, and its rises carry the name of the event that coincided.
//
// Owned by the tick thread; one object a process and device.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/snapshot/node_snapshot.h"

namespace tidemark {

struct DeviceFigure {
  std::optional<int64_t> bytes;  // of the process, or of the device where `device_wide`
  bool device_wide = false;
  std::string source;  // "nvml", or why there is no figure
};

class WaterfallTracker {
 public:
  explicit WaterfallTracker(int device) : device_(device) {}

  // Bytes on `device` that totals account for, in the way the device's figure counts them.
  static int64_t TrackedBytes(const std::vector<ClassTotal>& totals, int device);

  // `totals` are of the moment of the figure; `quiet` says that they did not move while the device
  // was asked, so that figure and totals can be compared to the byte. `events` are the process's
  // latest, oldest first.
  Waterfall Update(const DeviceFigure& figure, const std::vector<ClassTotal>& totals,
                   int64_t observer_device_bytes, bool quiet, uint64_t now_unix_ns,
                   const std::deque<EventView>& events);

 private:
  void LearnContext(int64_t rest, bool quiet, uint64_t now_unix_ns);
  void NameChange(int64_t unattributed, const std::vector<ClassTotal>& totals, uint64_t now_unix_ns,
                  const std::deque<EventView>& events);
  std::string Note() const;

  const int device_;
  uint64_t first_unix_ns_ = 0;  // of the first figure
  std::optional<int64_t> last_rest_;
  std::optional<int64_t> context_;
  bool paired_ = false;  // two quiet looks in a row were had
  bool context_final_ = false;
  int64_t named_unattributed_ = 0;  // up to which changes have been named
  uint64_t named_until_unix_ns_ = 0;
  uint64_t allocations_ = 0;
  std::vector<std::pair<std::string, int64_t>> rises_;  // what coincided -> bytes, in order
};

}  // namespace tidemark
