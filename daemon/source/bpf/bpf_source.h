// The kernel's view of watched processes: CUDA calls seen by probes on libcuda, host memory, and
// process lifecycle.
//
// Two ways to watch the CUDA calls of a process:
//   kWitness  beside an agent that holds CUPTI. Entry probes on the rare calls only; the kernel
//   adds
//             up calls and requested bytes per entry point. No ledger, no stacks, no return probe
//             (one would cut the agent's own unwinding short).
//   kLedger   without such an agent. Entry and return probes on every memory call; a ledger in this
//             process says what is live, from which call site. Allocations count when the call
//             returned success; a free takes its allocation out when the call begins and puts it
//             back when the call fails.
//
// Threads: the object is made, started and destroyed by one thread; every other method may be
// called from any thread and does not block on the kernel. A thread of its own (`tidemark-bpf`)
// attaches, detaches, drains the rings and keeps the ledgers. SetProcess only states what is
// wanted; it is brought about within a second, and Collect says how far it got.
//
// Trust: everything read out of a watched process (arguments, stacks, ELF files, maps) is
// untrusted. It can make its own numbers wrong, nobody else's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/proc_root.h"
#include "base/result.h"
#include "daemon/snapshot/memory_class.h"
#include "wire/entry_point.h"

namespace tidemark {

enum class BpfMode : uint8_t { kOff, kWitness, kLedger };

// What is wanted for one process.
struct BpfWatch {
  BpfMode cuda = BpfMode::kOff;
  bool host = false;  // mappings and page faults by call site
  bool operator==(const BpfWatch&) const = default;
};

// Sizes, all from the daemon's config.
struct BpfConfig {
  bool enabled = true;                              // false: every family says "switched off"
  std::vector<std::string> disabled_families = {};  // names as in BpfFamilyState
  uint32_t ring_bytes = 4u << 20;                   // per family; rounded up to a power of two
  uint32_t max_processes = 1024;                    // watched at a time
  uint32_t max_stacks = 16384;                      // distinct call stacks, per family
  uint32_t max_live_allocations = 4u << 20;         // per process; more are counted as `table_full`
  uint32_t sample_one_fault_of = 64;                // page faults; rounded up to a power of two
  std::string libcuda_prefix = "libcuda.so";        // how the mapped file's name begins
};

// One probe family as a whole. Shown by `doctor` and as a metric.
struct BpfFamilyState {
  std::string name;       // "libcuda", "host", "lifecycle", ...
  bool attached = false;  // loaded and usable; a family with per-process probes counts as attached
                          // when its programs are accepted by the kernel
  std::string reason;     // why not, or in which reduced form; empty when all is well
  std::string hint;       // what to do about it; empty when there is nothing to do
};

// One frame of a call site, innermost first. Strings are untrusted.
struct BpfFrame {
  bool python = false;
  std::string module;    // native: path as the process maps it; empty if unknown (JIT, unmapped)
  std::string build_id;  // native: lower-case hex; empty if the file has none
  uint64_t offset = 0;   // native: ELF virtual address in `module` (what addr2line takes) of the
                         // return address; or the raw address when `module` is empty
  std::string file;      // python
  std::string function;  // python
  int line = 0;          // python; 0 if unknown
};

// A call stack. Immutable and shared: the same pointer for the same stack as long as the process is
// watched, so a consumer can cache what it derives.
struct BpfStack {
  uint64_t id = 0;  // unique within the process
  std::vector<BpfFrame> frames;
  bool partial = false;  // cut by the depth limit or by code without frame pointers
};

struct BpfSite {
  MemoryClass memory_class = MemoryClass::kDevice;
  std::shared_ptr<const BpfStack> stack;  // never null; no frames when the stack is not known
  uint64_t live_bytes = 0;                // host classes: mapped bytes
  uint64_t live_count = 0;
  uint64_t allocated_bytes = 0;  // ever, since attach
  uint64_t allocated_count = 0;
  uint64_t min_block_bytes = 0;  // of all blocks ever seen here; equal to max: "36 x 256 MiB"
  uint64_t max_block_bytes = 0;
  // Host classes only: what was touched from here and not given back, by sampled page faults scaled
  // to the growth of the process's resident bytes of that class: an estimate. The call site that
  // touches memory is often not the one that mapped it, which holds `live_bytes`.
  uint64_t resident_bytes = 0;
};

// Totals of one class in one process, since attach. Exact unless a loss says otherwise. Host
// classes count mapped bytes; kLocked and kLazyFree say what was asked for: locked now, offered
// ever.
struct BpfTotal {
  MemoryClass memory_class = MemoryClass::kDevice;
  int32_t device = -1;  // CUDA ordinal within the process; -1: a probe cannot know
  uint64_t live_bytes = 0;
  uint64_t live_count = 0;
  uint64_t peak_bytes = 0;  // highest live_bytes
  uint64_t allocated_bytes = 0;
  uint64_t allocated_count = 0;
  uint64_t freed_bytes = 0;
  uint64_t freed_count = 0;
};

// Calls of one driver entry point. kWitness: counted at entry, whatever the call returned. kLedger:
// the same, and `failed` of them returned an error.
struct BpfEntryPoint {
  wire::EntryPoint entry_point = wire::EntryPoint::kMemAlloc;
  uint64_t calls = 0;
  uint64_t requested_bytes = 0;  // 0 for frees
  uint64_t failed_calls = 0;
};

// Something that was not observed, by cause.
struct BpfLoss {
  std::string_view cause;  // "ring_full", "table_full", ...; static storage
  uint64_t count = 0;
};

enum class BpfAttachState : uint8_t {
  kOff,       // nothing wanted
  kWaiting,   // no libcuda mapped yet; looked for twice a second
  kAttached,  // probes are on
  kFailed,    // `reason` says why; tried again every 10 s and when the mode changes
  kExited,    // the process is gone; its last numbers stay until SetProcess(pid, kOff)
};

struct BpfProcess {
  pid_t pid = 0;
  uint64_t start_time_ticks = 0;  // field 22 of /proc/PID/stat: with pid, who it is
  BpfWatch watch;                 // as wanted
  BpfMode mode = BpfMode::kOff;   // as attached
  BpfAttachState state = BpfAttachState::kOff;
  std::string reason;           // kFailed, or why reduced
  uint64_t attached_at_ns = 0;  // CLOCK_MONOTONIC; 0 before

  std::vector<BpfTotal> totals;             // kLedger and host
  std::vector<BpfEntryPoint> entry_points;  // kWitness and kLedger; those called at least once
  std::vector<BpfSite> sites;               // kLedger and host; live or ever allocated from
  // Successful frees of what was allocated before the probes were on. Its bytes are not known.
  uint64_t before_attach_frees = 0;
  std::vector<BpfLoss> losses;  // of this process; causes with a count above zero
};

struct BpfSnapshot {
  std::vector<BpfFamilyState> families;
  std::vector<BpfProcess> processes;
  std::vector<BpfLoss> losses;  // that cannot be told by process
};

// What is live in a process by another witness's account, to start a ledger from when CUPTI is
// taken away from the agent.
struct BpfSeed {
  uint64_t address = 0;
  uint64_t bytes = 0;
  MemoryClass memory_class = MemoryClass::kDevice;
};

// A family's `reason` in the first moments.
inline constexpr std::string_view kBeingLoaded = "being loaded";

// Whether the probes count calls of `entry_point` beside an agent too: all but the stream-ordered
// ones, which are too frequent to be counted twice.
constexpr bool CountedBesideAgent(wire::EntryPoint entry_point) {
  return entry_point != wire::EntryPoint::kMemAllocAsync &&
         entry_point != wire::EntryPoint::kMemAllocFromPoolAsync &&
         entry_point != wire::EntryPoint::kMemFreeAsync;
}

struct BpfLifecycleEvent {
  enum class Kind : uint8_t { kExec, kFork, kExit, kOomVictim };
  Kind kind = Kind::kExec;
  pid_t pid = 0;         // of the process (thread group)
  pid_t parent = 0;      // kFork only
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC
};

class BpfSource {
 public:
  BpfSource(BpfConfig config, ProcRoot root);
  ~BpfSource();  // stops
  BpfSource(const BpfSource&) = delete;
  BpfSource& operator=(const BpfSource&) = delete;

  // Starts the thread, which loads every family that the kernel and our capabilities allow within a
  // second or so; until then their state is kBeingLoaded. Fails only when not even a thread can be
  // had; a family that cannot be loaded is a state, not a failure.
  Result<void> Start();
  // Detaches everything and joins the thread; 16 processes take well under two seconds.
  void Stop();

  // What is wanted for `pid` from now on. A pid whose process was replaced by another (other start
  // time) starts anew. A change of mode between kWitness and kLedger keeps the entry point counts.
  // kOff without host forgets the process.
  void SetProcess(pid_t pid, BpfWatch watch);

  // Adds to the ledger of `pid` what another witness knew as live when it stopped counting. Call
  // after the ledger says kAttached and the other witness has stopped: what was freed or allocated
  // since attach is already known and wins, so no byte is lost or doubled.
  void Seed(pid_t pid, std::vector<BpfSeed> live);

  std::vector<BpfFamilyState> States() const;

  // Everything known now, by value.
  BpfSnapshot Collect() const;

  // Lifecycle events since the last call, oldest first. At most 65536 are kept, the rest counted as
  // the loss `lifecycle_backlog`.
  std::vector<BpfLifecycleEvent> TakeEvents();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark
