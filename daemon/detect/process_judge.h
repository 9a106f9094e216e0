// The judgement of one process: fed once a tick with what the ledgers know, answers with one
// Verdict for every series it has seen.
//
//   ProcessJudge judge;                      // one per process key; drop it with the process
//   ...each tick:
//   const std::vector<Verdict>& v = judge.Judge(tick);
//   snapshot->processes[i].verdicts = v;     // copy; the reference is valid until the next call
//
// Online: a verdict depends only on what was passed so far. The same ticks give the same verdicts.
// Thread: any, one at a time (the daemon's tick thread). Untrusted: every number in the input may
// come from a hostile process; negative, huge, repeated or backward values never crash or stall the
// judge, they are counted in rejected_points() and left out.
//
// Cost: O(new step points) + O(totals) a call. The site table is only looked at on a rota (a part
// of it each tick) and, for a series that is suspect, as a whole: see kSitesPerTick.
// Memory: under 16 KiB a series + 120 bytes a site, however long the job runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/detect/verdict.h"
#include "daemon/snapshot/memory_class.h"

namespace tidemark::detect {

struct SeriesId {
  MemoryClass memory_class = MemoryClass::kDevice;
  int32_t device = -1;  // -1 for host classes
  auto operator<=>(const SeriesId&) const = default;
};

struct SeriesPoint {
  SeriesId id;
  int64_t floor_bytes = 0;  // smallest of the step; of a total: the value now
  int64_t peak_bytes = 0;   // largest of the step; 0 = not known
};

// One finished step, from the agent's step ring (kFramework -> kFwLive, kDriverDevice -> kDevice,
// kPinned -> kPinned, kHostFramework -> kFwHost).
struct StepPoint {
  uint64_t step = 0;   // strictly rising from call to call
  int64_t end_ns = 0;  // CLOCK_MONOTONIC
  std::vector<SeriesPoint> series;
};

inline constexpr size_t kCohorts = 16;

// One row of the site table, as the daemon holds it now. Cohort i holds the live bytes that were
// born in steps [i << cohort_shift, (i + 1) << cohort_shift).
struct SitePoint {
  uint64_t site_id = 0;  // may repeat with another series
  SeriesId id;           // the class and device that the site's bytes count in
  int64_t live_bytes = 0;
  int64_t live_count = 0;
  uint8_t cohort_shift = 0;
  std::array<int64_t, kCohorts> cohort_bytes{};
};

// The site table, read row by row on the judge's own rota, so that nobody copies 1000 rows a tick.
// Row i stays row i for the life of the process; new rows are appended. (Another order costs
// accuracy, never safety: a row whose site changed starts anew.)
class SiteTable {
 public:
  virtual ~SiteTable() = default;
  virtual size_t size() const = 0;
  virtual SitePoint At(size_t row) const = 0;  // row < size()
};

// A limit that growth will meet. `used_bytes` is the figure the limit is compared with (device
// used by all, cgroup current, ...), which may hold more than this process.
struct LimitPoint {
  std::string name;          // "device 0", "MIG 0:1", "cgroup limit", "RLIMIT_MEMLOCK"
  int32_t device = -1;       // -1: counts host classes
  bool pinned_only = false;  // memlock: only kPinnedOther and kLocked count
  int64_t capacity_bytes = 0;
  int64_t used_bytes = 0;
};

// What is known beside the series; each absent when unknown. They choose between causes.
struct ProcessFacts {
  std::optional<int64_t> heap_live_bytes;      // malloc's in-use bytes
  std::optional<int64_t> rss_bytes;            // of this process alone
  std::optional<int64_t> private_dirty_bytes;  // smaps_rollup; rises while rss does not: un-sharing
  bool forked_workers_share = false;           // has children that share its pages copy-on-write
  std::optional<int64_t> fw_reserved_bytes;    // summed over devices
  std::optional<int64_t> fw_allocated_bytes;
  uint32_t devices_with_context = 0;  // more than one on a one-GPU rank: foreign contexts
  uint64_t communicator_events = 0;   // totals since start of the process
  uint64_t module_events = 0;
  uint64_t graph_events = 0;
  uint64_t limit_events = 0;          // cuCtxSetLimit
  uint64_t allocation_failures = 0;   // failed calls and framework out-of-memory reports
  bool opaque_preallocation = false;  // JAX, vLLM: one pool taken at start
};

struct ProcessTick {
  int64_t now_ns = 0;  // CLOCK_MONOTONIC, rising
  std::optional<int32_t> rank;
  std::span<const StepPoint> new_steps;  // finished since the last tick, oldest first
  std::span<const SeriesPoint> totals;   // series sampled at the tick (NVML, procfs, classes
                                         // without a step floor). A series that appears in
                                         // new_steps too is judged from the steps only.
  const SiteTable* sites = nullptr;      // only read during the call
  bool sites_complete = true;            // false: tables overflowed, or sampling was off
  std::span<const LimitPoint> limits;
  uint64_t current_step = 0;   // steps completed; 0 = the process has none (yet)
  bool in_load_phase = false;  // before the first backward pass: nothing is judged
  ProcessFacts facts;
};

struct JudgeOptions {
  uint32_t warm_up_steps = 5;        // points ignored at the start of a series
  double min_slope_bytes = 0;        // per step; growth below is never flagged
  double site_share_to_blame = 0.5;  // below: name the layer, not a site
};

class ProcessJudge {
 public:
  static constexpr size_t kSitesPerTick = 16;

  explicit ProcessJudge(JudgeOptions options = {});
  ~ProcessJudge();
  ProcessJudge(ProcessJudge&&) noexcept;
  ProcessJudge& operator=(ProcessJudge&&) noexcept;

  // One verdict a series, in order of first appearance; see above.
  const std::vector<Verdict>& Judge(const ProcessTick& tick);

  const std::vector<Verdict>& verdicts() const;
  uint64_t rejected_points() const;  // input that could not be believed
  size_t MemoryBytes() const;        // of all series and sites, for the observer's own account

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark::detect
