// The region: what one observed process holds, kept up to date by its agent in a sealed memfd and
// read by the daemon.
//
//   +--------+----------+--------+-------+------+--------+-------+--------+------+-----+---------+
//   | Header | features | totals | peaks | ...  | sites  | dirty | frames | steps| ... | live    |
//   +--------+----------+--------+-------+------+--------+-------+--------+------+-----+---------+
//     fixed    every section: offset, bytes a row, capacity, rows used; listed in Header::sections
//
// Writer: the agent, under its own locks, from any thread of the job. Reader: the daemon, with
// pread only (reading a hole through a mapping would allocate pages on the job's account), and it
// trusts nothing: it copies out once, checks, and uses only the copy.
//
// Consistency. A row that begins with `seq` is written as: seq odd, fields, seq even. The reader
// copies the row twice; where both copies carry the same even seq, the first copy is whole: the
// bytes of a row are copied in ascending order, so everything after `seq` was read between the two
// looks at it. A row that never settles in a few tries is counted as `torn` and its last good copy
// kept.
//
// Compatibility. A reader takes any older ABI version: it goes by the section list, reads
// min(row bytes, its own row bytes) of each row and zero-fills the rest; fields are only ever
// appended. A newer version is refused with a counted reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tidemark::wire {

inline constexpr uint64_t kRegionMagic = 0x4b52414d45444954;  // "TIDEMARK", little endian
inline constexpr uint32_t kRegionAbi = 1;
inline constexpr uint64_t kDefaultRegionBytes = 64ull << 20;
inline constexpr uint64_t kMaxRegionBytes = 1ull << 30;

enum class Section : uint32_t {
  kFeatures = 1,   // FeatureRow, one per Feature
  kTotals,         // TotalsRow, one per (layer, kind, device) seen
  kPeakGroups,     // PeakGroupRow
  kAllocators,     // AllocatorRow, one per device ordinal: the framework's own word
  kEntryPoints,    // EntryPointRow, indexed by EntryPoint
  kSites,          // SiteRow
  kSiteDirty,      // uint64_t a kSitesPerDirtyBlock sites: Header::change_seq of the last change
  kFrames,         // Frame
  kModules,        // ModuleRow
  kStrings,        // bytes: uint16_t length, then that many bytes of UTF-8
  kSteps,          // StepRow, a ring: step s at s % capacity
  kPhases,         // PhaseRow
  kEvents,         // EventRow, a ring: event e at e % capacity
  kLiveDriver,     // LiveRow
  kLiveFramework,  // LiveRow
  kLiveHost,       // LiveRow
};
inline constexpr uint32_t kMaxSections = 24;

// Who counted. The same bytes appear once per layer, never twice within one.
enum class Layer : uint8_t {
  kDriver = 0,         // CUPTI driver-API callbacks
  kRecords = 1,        // CUPTI activity records, a second count of what both can see
  kFramework = 2,      // the framework's CUDA allocator: blocks
  kHostFramework = 3,  // the framework's CPU tensors
};

enum class Kind : uint8_t {
  kDevice = 0,
  kPool = 1,
  kVmm = 2,
  kManaged = 3,
  kArray = 4,
  kGraph = 5,
  kIpc = 6,
  kPinned = 7,
  kRegistered = 8,
  kFwBlock = 9,
  kCpuTensor = 10,
};
inline constexpr uint8_t kKindCount = 11;

// Moments at which the composition by site is kept exactly. Kept lazily: each moment has an epoch
// in the header; a site saves its bytes as of the moment when it first changes afterwards.
//   site.moment_epoch[m] == group/header epoch  ->  moment_bytes[m] is the value at the moment
//   otherwise                                   ->  the site has not changed: use live_bytes
// kPeak's epoch is that of the site's peak group; kLoad's and kStepEnd's are in the header.
enum class Moment : uint8_t { kPeak = 0, kLoad = 1, kStepEnd = 2 };
inline constexpr uint32_t kMomentCount = 3;

enum class Feature : uint8_t {
  kCuptiCallbacks = 0,  // the CUPTI lease: on = held, yielded, unavailable
  kCuptiRecords,
  kFrameworkAllocator,  // reportMemoryUsageToProfiler
  kCpuTensors,          // ProfiledCPUMemoryReporter
  kOutOfMemory,         // reportOutOfMemoryToProfiler
  kStepScopes,          // USER_SCOPE callback
  kBackward,            // Engine::execute
  kPythonFrames,
  kNativeFrames,
  kNvtx,
  kAgent,  // the agent as a whole; off = switched off
};
inline constexpr uint32_t kFeatureCount = 11;

enum class FeatureState : uint8_t { kUnknown = 0, kOn, kOff, kYielded, kUnavailable };

struct FeatureRow {
  uint32_t seq;
  uint8_t feature;
  uint8_t state;
  uint8_t reserved[2];
  uint64_t since_ns;  // CLOCK_MONOTONIC
  char reason[112];   // zero-terminated; for kYielded the name of whoever took it
};
static_assert(sizeof(FeatureRow) == 128);

// Every byte that left the exact path, by cause.
enum class Loss : uint8_t {
  kLiveTableFull = 0,  // allocations that found no room: bytes go to TotalsRow::untracked_bytes
  kSiteTableFull,      // stacks booked under their row's site 0
  kFramePoolFull,
  kStringPoolFull,
  kModuleTableFull,
  kTotalsTableFull,
  kPeakGroupsFull,
  kLockTimeout,         // the bounded lock was not had in time
  kReentry,             // a tap interrupted itself (a signal handler that allocates)
  kRecordsDropped,      // CUPTI's own count of dropped activity records
  kRecordsUndecodable,  // a record kind or size this agent does not know
  kPhasesFull,
  kUnknownFree,       // frees of addresses allocated before injection; counted, not subtracted
  kAddressCollision,  // an allocation returned an address still booked as live
  kStackTruncated,
  kHookRefused,  // an import slot that could not be made writable
};
inline constexpr uint32_t kLossCount = 16;

struct SectionEntry {
  uint32_t id;  // Section
  uint32_t row_bytes;
  uint64_t offset;  // from the start of the region
  uint64_t capacity;
  uint64_t used;  // rows; grows only (rings: total rows ever written)
};
static_assert(sizeof(SectionEntry) == 32);

inline constexpr uint32_t kEnvironmentBytes = 2048;

struct Header {
  uint64_t magic;
  uint32_t abi;
  uint32_t header_bytes;
  uint64_t region_bytes;
  uint64_t agent_id;  // random: tells two injections into one pid apart
  int32_t pid;        // as the process sees itself; the daemon believes SO_PEERCRED instead
  int32_t uid;
  uint64_t init_monotonic_ns;
  uint64_t init_realtime_ns;
  uint32_t section_count;
  uint32_t python_version;  // 0x030B for 3.11; 0 = no interpreter
  uint32_t cupti_version;   // cuptiGetVersion(), 0 = none
  uint32_t state;           // AgentState
  uint64_t change_seq;      // grows with every change of a site
  uint64_t current_step;    // steps completed
  uint64_t backward_passes;
  uint64_t optimizer_scopes;
  uint32_t moment_epoch[kMomentCount];  // kPeak's is unused: see PeakGroupRow
  uint32_t load_ended;                  // 1 after the first backward pass began
  uint64_t sampling_interval_bytes;     // mean bytes between two sampled stacks; 1 = all
  uint64_t observer_host_bytes;         // touched bytes of this region and the agent's buffers
  uint64_t observer_device_bytes;
  uint64_t losses[kLossCount];
  uint64_t loss_bytes[kLossCount];
  SectionEntry sections[kMaxSections];
  uint32_t environment_bytes;  // used bytes of environment
  uint32_t records_flushes;    // completed flushes of activity records; 0 also in older agents
  char environment[kEnvironmentBytes];  // "NAME=VALUE\0" of the allow-list, read at injection
};
static_assert(sizeof(Header) == 3224);
static_assert(std::is_trivially_copyable_v<Header>);

enum class AgentState : uint32_t { kStarting = 0, kRunning = 1, kDetached = 2, kExited = 3 };

struct TotalsRow {
  uint32_t seq;
  uint8_t layer;
  uint8_t kind;
  int16_t device;  // ordinal in the process's own numbering; -1 = host
  int64_t live_bytes;
  int64_t peak_bytes;
  uint64_t allocated_bytes;  // ever, successful
  uint64_t freed_bytes;
  uint64_t allocations;
  uint64_t frees;
  uint64_t failed_calls;
  uint64_t untracked_bytes;  // live is within [live_bytes, live_bytes + untracked_bytes]
  uint64_t unknown_frees;
};
static_assert(sizeof(TotalsRow) == 80);

// Bytes whose common peak is meaningful, and which a step's floor is taken over.
enum class PeakSide : uint8_t {
  kFramework = 0,
  kDriverDevice = 1,
  kPinned = 2,
  kHostFramework = 3
};

struct PeakGroupRow {
  uint32_t seq;
  uint8_t side;
  uint8_t reserved;
  int16_t device;
  int64_t live_bytes;
  int64_t peak_bytes;
  uint64_t peak_step;
  uint64_t peak_ns;
  uint32_t peak_epoch;  // grows with every new peak
  uint32_t reserved2;
  int64_t step_floor_bytes;  // of the step under way
  int64_t step_peak_bytes;
};
static_assert(sizeof(PeakGroupRow) == 64);
inline constexpr uint32_t kMaxPeakGroups = 8;

struct AllocatorRow {
  uint32_t seq;
  int16_t device;
  uint16_t reserved;
  uint64_t allocated_bytes;  // the allocator's own totals at its last report
  uint64_t reserved_bytes;
  uint64_t peak_allocated_bytes;
  uint64_t peak_reserved_bytes;
  uint64_t out_of_memory_reports;
};
static_assert(sizeof(AllocatorRow) == 48);

struct EntryPointRow {
  uint32_t seq;
  uint32_t entry_point;  // EntryPoint, wire/entry_point.h
  uint64_t calls;
  uint64_t failed_calls;
  uint64_t requested_bytes;  // of all calls, failed ones too: what an entry probe sees
};
static_assert(sizeof(EntryPointRow) == 32);

inline constexpr uint32_t kCohorts = 16;
inline constexpr uint32_t kSitesPerDirtyBlock = 16;

enum SiteFlags : uint8_t {
  kSitePython = 1,     // has Python frames
  kSiteNative = 2,     // has native frames
  kSiteTruncated = 4,  // deeper than kMaxFrames
  kSiteSampled = 8,    // bytes are unbiased estimates
};
inline constexpr uint32_t kMaxFrames = 96;

// One call path that allocates, into one totals row. The first rows of the table stand for "no
// stack": one for each totals row (frame_count 0).
struct SiteRow {
  uint32_t seq;
  uint32_t first_frame;  // index into kFrames; innermost frame first
  uint16_t frame_count;
  uint8_t flags;  // SiteFlags
  uint8_t totals_row;
  uint8_t peak_group;
  uint8_t cohort_shift;  // a cohort is 1 << cohort_shift steps wide
  uint8_t reserved[2];
  int64_t live_bytes;
  int64_t live_count;
  uint64_t allocated_bytes;
  uint64_t freed_bytes;
  uint64_t allocated_count;
  uint64_t min_block_bytes;  // of all blocks ever seen here; equal to max: "36 x 256 MiB"
  uint64_t max_block_bytes;
  uint32_t moment_epoch[kMomentCount];
  uint32_t reserved2;
  int64_t moment_bytes[kMomentCount];
  int64_t moment_count[kMomentCount];
  uint64_t first_step;
  uint64_t last_step;
  int64_t cohort_bytes[kCohorts];  // live bytes by birth step: cohort (step >> shift)
};
static_assert(sizeof(SiteRow) == 280);

enum class FrameKind : uint8_t { kNative = 1, kPython = 2 };

struct Frame {
  uint8_t kind;  // FrameKind
  uint8_t reserved[3];
  uint32_t line;  // Python: line number, 0 = unknown. Native: unused
  uint32_t a;     // Python: string offset of the file. Native: index into kModules
  uint32_t b;  // Python: string offset of the function. Native: offset in the module's file image
};
static_assert(sizeof(Frame) == 16);

struct ModuleRow {
  uint32_t path;  // string offset
  uint8_t build_id_bytes;
  uint8_t reserved[3];
  uint64_t base;  // load bias
  uint8_t build_id[24];
};
static_assert(sizeof(ModuleRow) == 40);

struct StepGroup {
  int64_t floor_bytes;
  int64_t peak_bytes;
  int64_t end_bytes;
};

struct StepRow {
  uint32_t seq;
  uint32_t phase;   // index into kPhases
  uint64_t step;    // 1 = the first completed step
  uint64_t end_ns;  // CLOCK_MONOTONIC
  uint32_t backward_passes;
  uint32_t optimizer_scopes;
  int64_t fw_allocated_bytes;  // the allocator's own totals, summed over devices
  int64_t fw_reserved_bytes;
  int64_t anon_bytes;  // RssAnon; -1 = not read
  int64_t shmem_bytes;
  StepGroup groups[kMaxPeakGroups];  // in the order of kPeakGroups
};
static_assert(sizeof(StepRow) == 256);

struct PhaseGroup {
  int64_t before_bytes;
  int64_t peak_bytes;
  int64_t end_bytes;  // running until the phase ends
};

struct PhaseRow {
  uint32_t seq;
  uint32_t name;  // string offset: "load", "train", "evaluate", ...
  uint64_t first_step;
  uint64_t last_step;
  uint64_t start_ns;
  uint64_t end_ns;  // 0 = under way
  PhaseGroup anon;
  PhaseGroup groups[kMaxPeakGroups];
};
static_assert(sizeof(PhaseRow) == 256);

enum class EventType : uint16_t {
  kAllocationFailed = 1,  // code = CUresult, bytes asked
  kOutOfMemory,           // reported by the framework's allocator
  kPoolTrim,
  kContextGone,  // bytes = freed implicitly
  kLeaseChange,
  kLargeGrowth,
  kLimitRaised,   // cuCtxSetLimit: code = limit, bytes = value
  kModuleLoaded,  // bytes = image size when known
  kCommunicator,  // a collective library mapped its buffers
  kGraph,
};

struct EventRow {
  uint32_t seq;
  uint16_t type;
  uint16_t entry_point;
  uint64_t time_ns;
  uint64_t step;
  int32_t code;
  int32_t device;
  uint64_t bytes;
  uint64_t address;
  uint32_t site;  // UINT32_MAX = none
  uint32_t reserved;
  char text[40];
};
static_assert(sizeof(EventRow) == 96);

// Where the agent's live table stands; only read on demand (holders, post-mortem). Empty rows have
// address 0, erased ones address 1.
struct LiveRow {
  uint64_t address;  // or handle
  uint64_t bytes;
  uint64_t estimated_bytes;  // what this block stands for in its site
  uint32_t site;
  uint32_t step;
};
static_assert(sizeof(LiveRow) == 32);

}  // namespace tidemark::wire
