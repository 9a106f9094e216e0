// Every metric the daemon exports, as data: the exporter takes names, types and help from here, and
// docs/metrics.md is printed from here, so the two cannot drift apart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/serve/server.h"

namespace tidemark::serve {

enum class Metric : uint8_t {
  // The node.
  kBuildInfo,
  kNodeInfo,
  kSnapshotTime,
  kTickDuration,
  kDaemonMemory,
  kDaemonCpu,
  kFeatureState,
  kProcessCoverage,
  kLosses,
  kProcessLosses,
  kLostBytes,
  kWitnessMissingCalls,
  kWitnessMissingBytes,
  kRequests,
  kRefusedRequests,
  kSeriesOmitted,
  kDeviceInfo,
  kDeviceCapacity,
  kDeviceUsed,
  kDeviceReserved,
  kNodeMemory,
  // A rank, level basic.
  kRankInfo,
  kWorldSize,
  kVerdict,
  kGrowth,
  kOutOfMemory,
  kReleasable,
  kProcessDevice,
  kSteps,
  kStepFloor,
  kSiteLive,
  kMemory,
  kMemoryPeak,
  kCgroupMemory,
  kUntracked,
  // A rank, level full.
  kWitnessLive,
  kAllocatedBytes,
  kFreedBytes,
  kAllocations,
  kFailedCalls,
  kEntryPointCalls,
  kEntryPointBytes,
  kGrowthLow,
  kGrowthHigh,
  kGrown,
  kPhaseDelta,
};
inline constexpr size_t kMetricCount = static_cast<size_t>(Metric::kPhaseDelta) + 1;

enum class MetricType : uint8_t { kGauge, kCounter };

struct MetricSpec {
  Metric metric;
  std::string_view name;
  MetricType type;
  std::string_view unit;    // "bytes", "seconds", "" = a plain number
  bool of_rank;             // carries the labels of a rank beside its own
  std::string_view labels;  // its own, comma-separated
  MetricsLevel level;
  std::string_view bound;  // of series: "a rank and device x class", ...
  std::string_view help;   // one sentence, also the HELP line
};

const std::array<MetricSpec, kMetricCount>& MetricCatalog();
const MetricSpec& SpecOf(Metric metric);

// The labels of a rank, in the order in which they are written.
inline constexpr std::array<std::string_view, 6> kRankLabels = {
    "training_job",       "rank",         "local_rank",
    "workload_namespace", "workload_pod", "workload_container"};

// Bounds the exporter keeps; docs/metrics.md states them.
inline constexpr size_t kMaxBasicSeriesOfRank = 40;
inline constexpr size_t kMaxFullSeriesOfRank = 1000;
inline constexpr size_t kBasicSites = 3;
inline constexpr size_t kFullSites = 20;
inline constexpr size_t kMaxVerdictsOfRank = 2;       // level basic
inline constexpr size_t kMaxReasonBytes = 120;        // a reason as a label
inline constexpr size_t kMaxWhereBytes = 80;          // a site as a label
inline constexpr size_t kMaxSeriesOfNodeFamily = 64;  // of reasons and causes; the rest is summed

// docs/metrics.md.
std::string MetricsPage();

}  // namespace tidemark::serve
