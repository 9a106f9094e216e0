// The names that a region's numbers have in snapshots, JSON and metrics.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "wire/region.h"

namespace tidemark {

inline constexpr auto kFeatureNames = std::to_array<std::string_view>(
    {"cupti_callbacks", "cupti_records", "framework_allocator", "cpu_tensors", "out_of_memory",
     "step_scopes", "backward", "python_frames", "native_frames", "nvtx", "agent"});
static_assert(kFeatureNames.size() == wire::kFeatureCount);

inline constexpr auto kFeatureStateNames =
    std::to_array<std::string_view>({"unknown", "on", "off", "yielded", "unavailable"});

inline constexpr auto kLossNames = std::to_array<std::string_view>(
    {"live_table_full", "site_table_full", "frame_pool_full", "string_pool_full",
     "module_table_full", "totals_table_full", "peak_groups_full", "lock_timeout", "reentry",
     "records_dropped", "records_undecodable", "phases_full", "unknown_free", "address_collision",
     "stack_truncated", "hook_refused"});
static_assert(kLossNames.size() == wire::kLossCount);

inline constexpr auto kEventNames = std::to_array<std::string_view>(
    {"unknown", "allocation_failed", "out_of_memory", "pool_trim", "context_gone", "lease_change",
     "large_growth", "limit_raised", "module_loaded", "communicator", "graph"});
static_assert(kEventNames.size() == static_cast<size_t>(wire::EventType::kGraph) + 1);

// The name of an untrusted number; "unknown" when it has none.
template <size_t kCount>
constexpr std::string_view NameOf(const std::array<std::string_view, kCount>& names,
                                  uint64_t number) {
  return number < kCount ? names[number] : "unknown";
}

}  // namespace tidemark
