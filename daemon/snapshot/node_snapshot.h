// NodeSnapshot: all that the daemon knows at one moment, frozen. Sources feed ledgers; once a
// second the tick thread builds one of these and publishes it; store, detectors, exporters and RPCs
// read nothing else.
//
// Immutable after publication and shared by pointer between threads. What did not change since the
// last tick is shared with the last snapshot (sites, frames), so a tick costs what changed.
//
// Bytes are bytes, times are nanoseconds: *_monotonic_ns of CLOCK_MONOTONIC, *_unix_ns of the
// epoch.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/detect/verdict.h"
#include "daemon/snapshot/memory_class.h"
#include "wire/region.h"

namespace tidemark {

// A process for ever: a reused pid is another process.
struct ProcessKey {
  std::string boot_id;
  pid_t pid = 0;                  // in the daemon's pid namespace
  uint64_t start_time_ticks = 0;  // field 22 of /proc/PID/stat

  auto operator<=>(const ProcessKey&) const = default;
};

struct Identity {
  std::string training_job;  // the same on every node of the job; empty = not part of one
  std::string job_source;    // what told it: "TIDEMARK_JOB", "slurm", "torchelastic", ...
  std::string launcher;      // "torchrun", "deepspeed", "slurm", "ompi", ...; empty = none seen
  int rank = -1;             // -1 = none
  int local_rank = -1;
  int world_size = -1;
  int local_world_size = -1;
  int attempt = 0;  // restart count of the launcher
  uid_t uid = 0;
  std::string command;             // comm, at most 15 characters; never the command line
  std::string container;           // id from the cgroup path
  std::string workload_namespace;  // Kubernetes
  std::string workload_pod;
  std::string workload_container;
  pid_t helper_of = 0;  // the rank's pid, for DataLoader workers and other helpers
  std::string run;      // TIDEMARK_RUN: the `tidemark run` that started it; empty = none
};

struct FrameView {
  wire::FrameKind kind = wire::FrameKind::kNative;
  std::string function;  // demangled; "module+0x123" when there is no symbol
  std::string file;      // Python: path as the interpreter has it. Native: module path
  uint32_t line = 0;     // 0 = unknown
};

// The part of a site that never changes. Frames are innermost first.
struct SiteInfo {
  uint64_t id = 0;  // hash of the frames' names: the same on every rank and node
  std::vector<FrameView> frames;
  size_t blamed_frame = 0;  // innermost outside site-packages and the standard library
  bool truncated = false;
  std::string own_account = {};  // "communicator (libnccl.so.2)": a library's; empty = the job's
};

struct BytesAndCount {
  int64_t bytes = 0;
  int64_t count = 0;
};

struct SiteView {
  std::shared_ptr<const SiteInfo> info;
  MemoryClass memory_class = MemoryClass::kDevice;
  int device = -1;
  Witness witness = Witness::kCupti;
  bool estimated = false;  // sampled: bytes are unbiased estimates
  BytesAndCount live;
  std::array<BytesAndCount, wire::kMomentCount> at;  // by wire::Moment
  uint64_t allocated_bytes = 0;
  uint64_t freed_bytes = 0;
  uint64_t allocated_count = 0;
  uint64_t min_block_bytes = 0;  // equal to max: every block had this size
  uint64_t max_block_bytes = 0;
  uint64_t first_step = 0;
  uint64_t last_step = 0;
  // Live bytes by the step at which the block was born: cohort c holds steps
  // [c << cohort_shift, (c + 1) << cohort_shift).
  uint32_t cohort_shift = 0;
  std::array<int64_t, wire::kCohorts> cohort_bytes = {};
};
using SiteList = std::vector<std::shared_ptr<const SiteView>>;

// Bytes that a library holds on its own account (SiteInfo::own_account).
struct OwnAccountBytes {
  MemoryClass memory_class = MemoryClass::kDevice;
  int device = -1;
  int64_t bytes = 0;
  std::string name;
};

// What one witness holds of one class on one device.
struct ClassTotal {
  MemoryClass memory_class = MemoryClass::kDevice;
  int device = -1;  // ordinal on the node; -1 = host
  Witness witness = Witness::kCupti;
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;
  uint64_t allocated_bytes = 0;
  uint64_t freed_bytes = 0;
  uint64_t allocations = 0;
  uint64_t frees = 0;
  uint64_t failed_calls = 0;
  uint64_t untracked_bytes = 0;  // live lies within [live, live + untracked]
  uint64_t unknown_frees = 0;
  bool before_attach = false;  // allocated before the witness was there: its own line, never a leak
};

struct PeakView {
  wire::PeakSide side = wire::PeakSide::kFramework;
  int device = -1;
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;
  uint64_t peak_step = 0;
  uint64_t peak_monotonic_ns = 0;
};

struct StepGroupView {
  wire::PeakSide side = wire::PeakSide::kFramework;
  int device = -1;
  int64_t floor_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t end_bytes = 0;
};

struct StepView {
  uint64_t step = 0;
  uint64_t end_monotonic_ns = 0;
  std::string phase;
  int64_t fw_allocated_bytes = -1;  // -1 = not reported
  int64_t fw_reserved_bytes = -1;
  int64_t anon_bytes = -1;
  int64_t shmem_bytes = -1;
  std::vector<StepGroupView> groups;
};
// Oldest first; only the latest steps are kept.
using StepList = std::vector<std::shared_ptr<const StepView>>;

// alloc_delta = end - before; peaked_delta = max(0, peak - end).
struct PhaseGroupView {
  MemoryClass memory_class = MemoryClass::kFwLive;  // kAnon stands for the host
  int device = -1;
  int64_t before_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t end_bytes = 0;
};

struct PhaseView {
  std::string name;
  uint64_t first_step = 0;
  uint64_t last_step = 0;
  uint64_t start_monotonic_ns = 0;
  uint64_t end_monotonic_ns = 0;  // 0 = under way
  std::vector<PhaseGroupView> groups;
};

struct EventView {
  std::string type;  // "allocation_failed", "out_of_memory", ...
  std::string entry_point;
  uint64_t unix_ns = 0;
  uint64_t step = 0;
  int code = 0;
  int device = -1;
  uint64_t bytes = 0;
  uint64_t site_id = 0;  // 0 = none
  std::string text;
};

// A tap, a probe family or a source, and whether it works here.
struct FeatureView {
  std::string name;    // "cupti_callbacks", "bpf_pinned", "nvml", ...
  std::string state;   // "on", "off", "yielded", "unavailable"
  std::string reason;  // why not, and what to do; empty when on
};

struct LossView {
  std::string cause;
  uint64_t count = 0;
  uint64_t bytes = 0;
};

struct EntryPointView {
  std::string entry_point;
  Witness witness = Witness::kCupti;
  uint64_t calls = 0;
  uint64_t failed_calls = 0;
  uint64_t requested_bytes = 0;
};

// What the agent counted of an entry point's calls and the probes did not: negative, the other way
// round. Only of the time in which both counted; no time between two looks is in it.
struct WitnessDifferenceView {
  std::string entry_point;
  uint64_t compared_calls = 0;  // made while both counted
  int64_t calls = 0;
  int64_t bytes = 0;  // requested
  int64_t calls_last_minute = 0;
  int64_t bytes_last_minute = 0;
};

// One bar of the waterfall. The lines of a waterfall add up to its figure exactly.
struct WaterfallLine {
  MemoryClass memory_class = MemoryClass::kDevice;
  int64_t bytes = 0;
  std::string note;  // for kUnattributed: what coincided with its rises
};

// device figure = context + fw_live + fw_cache + other CUDA + observer + unattributed
struct Waterfall {
  int device = -1;
  bool figure_known = false;  // NVML gave a figure of this process
  bool device_wide = false;   // only the device's own figure could be had
  std::string figure_source;  // "nvml", or why there is none
  int64_t figure_bytes = 0;
  std::vector<WaterfallLine> lines;
};

struct HostMemory {
  bool known = false;
  int64_t rss_bytes = 0;
  int64_t anon_bytes = 0;
  int64_t file_bytes = 0;
  int64_t shmem_bytes = 0;
  int64_t swap_bytes = 0;
  int64_t locked_bytes = 0;
  int64_t pinned_vm_bytes = 0;  // VmPin
  int64_t peak_rss_bytes = 0;
  // From the memory cgroup; -1 = none or unlimited.
  int64_t cgroup_current_bytes = -1;
  int64_t cgroup_limit_bytes = -1;
};

enum class Liveness : uint8_t { kAlive, kExited, kKilled };

struct ProcessSnapshot {
  ProcessKey key;
  Identity identity;
  Liveness liveness = Liveness::kAlive;
  std::string exit_reason;  // "exited", "killed by the OOM killer", ...; empty while alive
  uint64_t first_seen_unix_ns = 0;
  uint64_t last_update_unix_ns = 0;
  bool observed = false;
  std::string not_observed_reason;  // set where observed is false
  std::vector<FeatureView> features;
  std::vector<ClassTotal> totals;
  std::vector<PeakView> peaks;
  std::shared_ptr<const SiteList> sites = std::make_shared<SiteList>();
  std::shared_ptr<const StepList> steps = std::make_shared<StepList>();
  std::vector<PhaseView> phases;
  std::vector<EventView> events;
  std::vector<EntryPointView> entry_points;
  std::vector<WitnessDifferenceView> witness_differences;
  std::vector<LossView> losses;
  std::vector<Waterfall> waterfalls;
  HostMemory host;
  std::vector<detect::Verdict> verdicts;
  uint64_t current_step = 0;
  uint64_t backward_passes = 0;
  uint64_t sampling_interval_bytes = 0;
  int64_t observer_host_bytes = 0;
};

struct DeviceView {
  int index = -1;
  std::string uuid;
  std::string name;
  int64_t total_bytes = 0;
  int64_t used_bytes = 0;
  int64_t reserved_bytes = 0;  // by the driver
  bool mig = false;
};

struct NodeMemory {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;
  int64_t free_bytes = 0;
  int64_t page_cache_bytes = 0;
  int64_t kernel_bytes = 0;
  int64_t shmem_bytes = 0;
};

struct NodeSnapshot {
  uint64_t sequence = 0;
  uint64_t unix_ns = 0;
  uint64_t monotonic_ns = 0;
  std::string node;  // host name
  std::string boot_id;
  std::vector<DeviceView> devices;
  NodeMemory memory;
  std::vector<FeatureView> sources;  // agent socket, nvml, procfs, each bpf family
  std::vector<ProcessSnapshot> processes;
  std::vector<LossView> losses;  // refused agents and other node-wide losses, by cause
  // The daemon's own cost.
  uint64_t tick_ns = 0;
  int64_t daemon_rss_bytes = 0;
  double daemon_cpu_seconds = 0;
};

}  // namespace tidemark
