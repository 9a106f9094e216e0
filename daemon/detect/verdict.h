// What the judgement says about one series (process x class x device), in plain data. The daemon
// freezes verdicts into snapshots; store, exporters and clients only read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/detect/cause.h"
#include "daemon/snapshot/memory_class.h"

namespace tidemark::detect {

enum class VerdictState : uint8_t {
  kWarmingUp,  // too little seen since the start to tell
  kSteady,     // nothing grows that could be told (see Verdict::detection_floor)
  kSuspect,    // has the shape of a leak; not long enough, or not yet corroborated
  kConfirmed,
  kRetracted,  // was suspect or confirmed; the growth ended or was explained
};
std::string_view ToString(VerdictState state);  // "warming_up", ...
std::optional<VerdictState> VerdictStateFromString(std::string_view name);

// What slopes and positions count in. kSamples is of files, never of the daemon.
enum class AlignedTo : uint8_t { kSteps, kSeconds, kSamples };
std::string_view UnitName(AlignedTo aligned);  // "step", "second", "sample"

// Bytes per step (or second) with a 95 % interval. low <= per_unit <= high.
struct Slope {
  double per_unit = 0;
  double low = 0;
  double high = 0;
};

// "At this rate: out of memory at step 4,310, in 02:40."
struct OutOfMemoryForecast {
  std::string limit_name;              // "device 0", "cgroup limit", "RLIMIT_MEMLOCK"
  int64_t limit_bytes = 0;             // capacity
  int64_t headroom_bytes = 0;          // capacity - used now - what the usual peak needs on top
  double units_left = 0;               // steps (or seconds) until headroom is gone, at the slope
  double units_left_low = 0;           // at the slope's upper end: the earliest
  double units_left_high = 0;          // at its lower end; infinity when that is <= 0
  std::optional<uint64_t> at_step;     // absolute; absent when aligned to seconds
  std::optional<double> seconds_left;  // absent while the pace of steps is unknown
};

// The allocation site that explains (most of) the growth. It allocates; who retains is another
// question, which `tidemark sites --holders` helps with.
struct SiteBlame {
  uint64_t site_id = 0;
  double share_of_slope = 0;       // 0..1, of the verdict's slope
  double bytes_per_unit = 0;       // what the site retains
  int64_t retained_bytes = 0;      // of the generations that grew
  uint32_t generations_alive = 0;  // birth cohorts with live bytes that should have gone
  uint32_t generations_seen = 0;
};

struct Verdict {
  VerdictState state = VerdictState::kWarmingUp;
  Cause cause = Cause::kNone;
  MemoryClass memory_class = MemoryClass::kDevice;
  int32_t device = -1;  // ordinal as the input named it; -1 = host
  AlignedTo aligned_to = AlignedTo::kSteps;
  std::vector<int32_t> ranks;  // who is affected; a process verdict names its own rank if known

  Slope slope;                   // over the growth so far; zeros when steady
  double detection_floor = 0;    // smallest slope that could be told now, bytes per unit;
                                 // infinity while warming up
  double units_per_second = 0;   // pace of steps; 1 when aligned to seconds; 0 = unknown
  int64_t grown_bytes = 0;       // since onset
  int64_t releasable_bytes = 0;  // what an empty_cache, trim or reclaim could give back

  uint64_t onset = 0;         // step (or second since the first sample) where growth began
  uint64_t since = 0;         // where it was first flagged (suspect), same unit
  uint64_t confirmed_at = 0;  // same unit; 0 = never
  int64_t since_ns = 0;       // clock of ProcessTick::now_ns at `since`; 0 = never

  std::optional<SiteBlame> site;      // absent: name the layer (memory_class and cause), not a site
  std::vector<SiteBlame> more_sites;  // the next ones, at most 4
  std::optional<OutOfMemoryForecast> forecast;
  std::vector<std::string> evidence;  // readable lines, the strongest first
};

// Whether the verdict should raise the leak alert / another notice.
bool RaisesLeakAlert(const Verdict& verdict);
bool RaisesNotice(const Verdict& verdict);

// One line for people: "confirmed leak: device 0 fw_live grows 8.00 MiB per step (7.9 to 8.1) ...".
std::string Summarize(const Verdict& verdict);

// "1.50 GiB", "-12 MiB", "512 B".
std::string FormatBytes(double bytes);

}  // namespace tidemark::detect
