// Where a process's bytes on one device went: from the device's figure of the process down to what
// nobody can name. The lines add up to the figure exactly, whatever the sources say.
//
//   figure (NVML) = context + fw_live + fw_cache + device + pool + vmm + array + graph
//                   + observer + unattributed
//
// `device`, `pool` and `vmm` are without what the framework's allocator has taken from them; their
// notes name the libraries that hold some of the rest on their own account, and `vmm` says how much
// of it is the framework's expandable segments.
// `context` is the smallest (figure - tracked) seen in the first seconds, looking only when nothing
// was allocated or freed meanwhile; its note names what had been loaded or set up before that look
// and is in it. What comes on top of it is `unattributed`, which may be negative, and whose rises
// carry the name of the event that coincided.
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

  // Calls so far that changed what is tracked on `device`: equal numbers, equal bytes throughout.
  static uint64_t TrackedCalls(const std::vector<ClassTotal>& totals, int device);

  struct Look {
    std::vector<ClassTotal> totals;         // of the moment of the figure
    std::vector<OwnAccountBytes> accounts;  // what libraries hold of them
    int64_t observer_device_bytes = 0;
    bool quiet = false;  // no call came while the device was asked: comparable to the byte
    uint64_t unix_ns = 0;
  };
  // `events` are the process's latest, oldest first.
  Waterfall Update(const DeviceFigure& figure, const Look& look,
                   const std::deque<EventView>& events);

 private:
  std::vector<WaterfallLine> KnownLines(const Look& look) const;
  void LearnContext(int64_t rest, const Look& look, const std::deque<EventView>& events);
  void NameChange(int64_t unattributed, const Look& look, const std::deque<EventView>& events);
  std::string RisesNote() const;

  const int device_;
  uint64_t first_unix_ns_ = 0;         // of the first figure
  std::optional<int64_t> first_rest_;  // of the first quiet look, when the context may be half made
  std::optional<int64_t> context_;
  std::string context_note_;
  bool seen_quiet_ = false;
  bool learned_ = false;  // from a quiet look at a finished context
  bool context_final_ = false;
  int64_t named_unattributed_ = 0;  // up to which changes have been named
  uint64_t named_until_unix_ns_ = 0;
  uint64_t calls_ = 0;
  std::vector<std::pair<std::string, int64_t>> rises_;  // what coincided -> bytes, in order
};

}  // namespace tidemark
