// Observers of the framework's allocators. They run under the allocator's device lock: short, no
// lock but the ledger's bounded one, never the GIL.
#pragma once

#include "cupti_agent/hooks/import_hooks.h"

namespace tidemark::agent {

// c10::reportMemoryUsageToProfiler(void* block, int64 +-bytes, size_t total_allocated,
//                                  size_t total_reserved, c10::Device)
// The totals are signed up to 1.13 and unsigned from 2.0, which the mangled name shows and the
// registers do not.
inline constexpr char kReportName[] = "_ZN3c1027reportMemoryUsageToProfilerEPv";
void OnBlockReport(const HookCall& call);

// c10::reportOutOfMemoryToProfiler(int64 bytes, size_t total_allocated, size_t total_reserved,
//                                  c10::Device)
inline constexpr char kOutOfMemoryName[] = "_ZN3c1027reportOutOfMemoryToProfilerE";
void OnOutOfMemory(const HookCall& call);

// c10::ProfiledCPUMemoryReporter::New(void* data, size_t bytes), Delete(void* data): after a CPU
// tensor's memory was allocated, before it is freed.
inline constexpr char kCpuNewName[] = "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm";
void OnCpuNew(const HookCall& call);
inline constexpr char kCpuDeleteName[] = "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv";
void OnCpuDelete(const HookCall& call);

}  // namespace tidemark::agent
