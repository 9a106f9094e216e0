#include "daemon/detect/cause.h"

namespace tidemark::detect {
namespace {

constexpr CauseKind kH = CauseKind::kHealthy;
constexpr CauseKind kN = CauseKind::kNotice;
constexpr CauseKind kL = CauseKind::kLeak;

// In the order of the enum.
constexpr CauseInfo kCauses[] = {
    {Cause::kNone, kH, "none", "steady", "nothing grows that could be told", "nothing to do", ""},
    {Cause::kTensorsKept, kL, "tensors_kept", "tensors kept",
     "tensors of past steps stay alive: something in the job still refers to them",
     "open `tidemark sites`, go to the blamed line, and find the holder with "
     "`tidemark sites --holders`",
     "tensors-kept.md"},
    {Cause::kPhaseBoundRetention, kL, "phase_bound_retention", "phase-bound retention",
     "one phase (evaluation, logging) leaves memory behind every time it runs",
     "look at the hooks and lists that only this phase fills; clear them when it ends",
     "phase-bound-retention.md"},
    {Cause::kEventSteppedRetention, kL, "event_stepped_retention", "retention at each event",
     "a recurring event (checkpoint, re-initialisation) leaves a step of memory behind each time",
     "find what runs at that period; free or reuse what it gathers", "event-stepped-retention.md"},
    {Cause::kRetainedAfterException, kL, "retained_after_exception", "retained after an exception",
     "what was live at a failed allocation is still live: a traceback keeps its frames",
     "drop the exception and its traceback (`del e`, leave the except block) before retrying",
     "retained-after-exception.md"},
    {Cause::kOutsideFramework, kL, "outside_framework", "growth outside the framework",
     "the driver's figure grows while the framework's own bytes are flat",
     "look at `tidemark where` for what coincides: streams, handles, contexts, libraries",
     "outside-framework.md"},
    {Cause::kCommunicator, kL, "communicator", "communicators created again and again",
     "every new communicator keeps buffers that no allocator reports",
     "create process groups once, and destroy those that are replaced", "communicator.md"},
    {Cause::kModules, kL, "modules", "code modules never unloaded",
     "kernels are compiled and loaded for ever new shapes",
     "bound the shapes (pad or bucket), or limit the cache of compiled kernels", "modules.md"},
    {Cause::kGraphs, kL, "graphs", "graphs captured again and again",
     "each captured graph keeps its own pool", "capture a fixed set of shapes, once", "graphs.md"},
    {Cause::kRawCuda, kL, "raw_cuda", "raw CUDA allocations",
     "allocations made outside the framework's allocator are not freed",
     "open `tidemark sites` for the native stack that allocates", "raw-cuda.md"},
    {Cause::kPinnedGrowth, kL, "pinned_growth", "pinned host memory grows",
     "page-locked buffers are allocated or registered and not given back",
     "reuse pinned buffers; pair each register with an unregister", "pinned-growth.md"},
    {Cause::kAnonLeak, kL, "anon_leak", "anonymous host memory grows",
     "host memory is allocated and kept: heap in use grows with it, or nothing says otherwise",
     "open `tidemark sites` for the host call sites; `tidemark deep heap` for the malloc callers",
     "anon-leak.md"},
    {Cause::kRawMmap, kL, "raw_mmap", "mappings outside the heap grow",
     "anonymous mappings grow steadily while the heap's live bytes are flat",
     "find the library that maps by the mmap call sites; heap profilers cannot see it",
     "raw-mmap.md"},
    {Cause::kSharedMemoryLeftovers, kL, "shared_memory_leftovers", "shared-memory leftovers",
     "segments in shared memory outlive their makers; only unlinking frees them",
     "list /dev/shm, remove segments whose makers are gone; make the job unlink at exit",
     "shared-memory-leftovers.md"},
    {Cause::kDeadOwnerOrphans, kL, "dead_owner_orphans", "orphans of dead owners",
     "memory stays pinned or exported although its owner is gone",
     "end the process that still holds the registration or the imported handle",
     "dead-owner-orphans.md"},
    {Cause::kIpcImport, kL, "ipc_import", "held by an importer's handle",
     "another process still maps this memory by an IPC handle",
     "close the handle in the importer; `tidemark ps` shows both sides", "ipc-import.md"},
    {Cause::kObserverGrowth, kL, "observer_growth", "the observer itself grows",
     "Tidemark's own memory grows",
     "detach (`tidemark detach --pid P`) and report it with `doctor`", "observer-growth.md"},
    {Cause::kHandleLeak, kL, "handle_leak", "handles are not closed",
     "a count of open handles grows without end; each may hold memory",
     "list the descriptors of the process, and close what it opens per step", "handle-leak.md"},
    {Cause::kUnclassifiedGrowth, kL, "unclassified_growth", "growth of unknown cause",
     "it grows steadily and nothing known bounds or explains it",
     "watch the process with the agent or eBPF to learn which class grows",
     "unclassified-growth.md"},

    {Cause::kFragmentation, kN, "fragmentation", "fragmentation",
     "live bytes are flat while reserved memory grew: free blocks that no request fits",
     "try expandable segments, or batches of equal shape; `where` shows the releasable bytes",
     "fragmentation.md"},
    {Cause::kFrameworkCache, kN, "framework_cache", "framework cache",
     "the allocator keeps freed blocks for reuse and would give them back",
     "nothing, or empty the cache at a phase change", "framework-cache.md"},
    {Cause::kStrandedStreamCache, kN, "stranded_stream_cache", "cache stranded on another stream",
     "freed blocks are cached for a stream that no longer asks for them",
     "use one side stream again and again, or empty the cache after it",
     "stranded-stream-cache.md"},
    {Cause::kAllocatorRetention, kN, "allocator_retention", "allocator retention",
     "the heap's live bytes are flat and the growth slows down: malloc keeps freed pages",
     "trim (malloc_trim), or set fewer arenas (MALLOC_ARENA_MAX)", "allocator-retention.md"},
    {Cause::kCopyOnWrite, kN, "copy_on_write", "copy-on-write un-sharing",
     "forked workers touch pages that they shared; the growth ends when all are copied",
     "keep large data in arrays, not in Python objects, or budget for a full copy per worker",
     "copy-on-write.md"},
    {Cause::kRoundingWaste, kN, "rounding_waste", "rounding waste",
     "pinned requests are rounded up to powers of two", "ask for sizes just below a power of two",
     "rounding-waste.md"},
    {Cause::kWorkspaces, kN, "workspaces", "library workspaces",
     "libraries take their workspaces once per handle and stream",
     "nothing, or limit their workspace by its environment variable", "workspaces.md"},
    {Cause::kForeignContexts, kN, "foreign_contexts", "foreign contexts on this device",
     "other ranks hold a context here: each costs hundreds of MiB",
     "set the device before the first CUDA call in every rank", "foreign-contexts.md"},
    {Cause::kForeignGrowth, kN, "foreign_growth", "another process on the device grows",
     "the device's figure grows, this process's does not",
     "look at `tidemark ps` for who else is on the device", "foreign-growth.md"},
    {Cause::kRankOutlier, kN, "rank_outlier", "one rank stands out",
     "one rank holds much more than its peers, by a constant amount",
     "compare the rank's sites with another's: `tidemark diff`", "rank-outlier.md"},
    {Cause::kPinFailure, kN, "pin_failure", "pinning failed",
     "a call to pin memory failed, at a limit or for one huge region",
     "raise RLIMIT_MEMLOCK for the launcher, or pin in smaller pieces", "pin-failure.md"},
    {Cause::kPhaseAccumulation, kN, "phase_accumulation", "accumulates within a phase",
     "it grows within a phase and is given back when the phase ends",
     "watch the phase's peak against the capacity; move results to the host as they come",
     "phase-accumulation.md"},
    {Cause::kPerShapeRetention, kN, "per_shape_retention", "memory per distinct shape",
     "each new shape costs once, and new ones come ever more rarely",
     "bound the shapes; the growth ends with the last new one", "per-shape-retention.md"},
    {Cause::kBudgetExceeded, kN, "budget_exceeded", "over its budget",
     "the rank holds more than its configured budget or estimate",
     "compare with `tidemark estimate` by site", "budget-exceeded.md"},
    {Cause::kOutOfMemoryAhead, kN, "out_of_memory_ahead", "out of memory ahead",
     "the usual peak comes close to the limit",
     "lower the peak (batch, checkpointing) or raise the limit", "out-of-memory-ahead.md"},

    {Cause::kWarmUp, kH, "warm_up", "warm-up", "the growth slows down and ends after the start",
     "nothing to do", "warm-up.md"},
    {Cause::kOneTimeStep, kH, "one_time_step", "one-time step",
     "it rose once and has been flat since", "nothing to do", "one-time-step.md"},
    {Cause::kSawTooth, kH, "saw_tooth", "saw-tooth", "what rises is given back again and again",
     "nothing to do; the floor is what counts", "saw-tooth.md"},
    {Cause::kWorkloadGrowth, kH, "workload_growth", "the work grows",
     "the bytes follow the size of the work (longer sequences, larger batches)",
     "check that the largest work fits: `leaks` forecasts its peak", "workload-growth.md"},
    {Cause::kPageCache, kH, "page_cache", "page cache",
     "file pages are kept only while nobody else needs the memory", "nothing to do",
     "page-cache.md"},
    {Cause::kLazyFree, kH, "lazy_free", "lazily freed pages",
     "the pages are freed already; the kernel takes them when it needs them", "nothing to do",
     "lazy-free.md"},
    {Cause::kPreallocation, kH, "preallocation", "preallocated pool",
     "the framework took its pool at the start; what happens inside is its own",
     "use the framework's counters to look inside the pool", "preallocation.md"},
    {Cause::kConstantSkew, kH, "constant_skew", "constant skew between ranks",
     "ranks differ by a constant amount since warm-up (pipeline stages, rank 0's duties)",
     "nothing, unless the largest rank comes close to its limit", "constant-skew.md"},
    {Cause::kSameBytesOnEveryRank, kH, "same_bytes_on_every_rank", "the same bytes on every rank",
     "every rank holds the same bytes; one run cannot show whether they are replicated",
     "run once with another world size and `tidemark diff` the two", "same-bytes-on-every-rank.md"},
    {Cause::kFiniteRamp, kH, "finite_ramp", "finite ramp", "the growth ended by itself",
     "nothing to do", "finite-ramp.md"},
};
static_assert(std::size(kCauses) == static_cast<size_t>(Cause::kFiniteRamp) + 1);

}  // namespace

const CauseInfo& InfoOf(Cause cause) { return kCauses[static_cast<size_t>(cause)]; }

std::string_view ToString(Cause cause) { return InfoOf(cause).name; }

std::optional<Cause> CauseFromString(std::string_view name) {
  for (const CauseInfo& info : kCauses) {
    if (info.name == name) return info.cause;
  }
  return std::nullopt;
}

bool IsLeak(Cause cause) { return InfoOf(cause).kind == CauseKind::kLeak; }

std::string Explain(Cause cause) {
  const CauseInfo& info = InfoOf(cause);
  std::string because(info.because);
  if (cause == Cause::kNone) return because;
  if (info.kind == CauseKind::kLeak) return std::string(info.title) + ": " + because;
  return "not a leak because " + because;
}

}  // namespace tidemark::detect
