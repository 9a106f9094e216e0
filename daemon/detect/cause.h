// Why memory grows, or why it only looks as if it did: the one list of causes. Everything that
// names a cause (verdicts, alerts, pages, `tidemark leaks`, runbook links) takes its words here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tidemark::detect {

enum class Cause : uint8_t {
  kNone,  // nothing to explain: steady
  // Leaks: growth that nothing bounds.
  kTensorsKept,
  kPhaseBoundRetention,
  kEventSteppedRetention,
  kRetainedAfterException,
  kOutsideFramework,
  kCommunicator,
  kModules,
  kGraphs,
  kRawCuda,
  kPinnedGrowth,
  kAnonLeak,
  kRawMmap,
  kSharedMemoryLeftovers,
  kDeadOwnerOrphans,
  kIpcImport,
  kObserverGrowth,
  kHandleLeak,
  kUnclassifiedGrowth,
  // Notices: worth a look, not a leak because something bounds or explains the growth.
  kFragmentation,
  kFrameworkCache,
  kStrandedStreamCache,
  kAllocatorRetention,
  kCopyOnWrite,
  kRoundingWaste,
  kWorkspaces,
  kForeignContexts,
  kForeignGrowth,
  kRankOutlier,
  kPinFailure,
  kPhaseAccumulation,
  kPerShapeRetention,
  kBudgetExceeded,
  kOutOfMemoryAhead,
  // Not a leak, and nothing to do.
  kWarmUp,
  kOneTimeStep,
  kSawTooth,
  kWorkloadGrowth,
  kPageCache,
  kLazyFree,
  kPreallocation,
  kConstantSkew,
  kSameBytesOnEveryRank,
  kFiniteRamp,
};

enum class CauseKind : uint8_t {
  kHealthy,  // explained; raises nothing
  kNotice,   // raises a notice, never a leak alert
  kLeak,     // raises the leak alert once confirmed
};

struct CauseInfo {
  Cause cause;
  CauseKind kind;
  std::string_view name;     // stable, in JSON, metrics and labels: "tensors_kept"
  std::string_view title;    // "tensors kept"
  std::string_view because;  // kLeak: what is wrong; else completes "not a leak because ..."
  std::string_view action;   // what to do next, one sentence
  std::string_view runbook;  // page under docs/runbooks/, "tensors-kept.md"; empty for kNone
};

const CauseInfo& InfoOf(Cause cause);
std::string_view ToString(Cause cause);  // the stable name
std::optional<Cause> CauseFromString(std::string_view name);
bool IsLeak(Cause cause);

// "leak: tensors kept: ..." or "not a leak because ...".
std::string Explain(Cause cause);

}  // namespace tidemark::detect
