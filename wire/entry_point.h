// The driver entry points that hold or give back memory, numbered once for every witness: CUPTI
// callbacks in the agent and probes in the kernel count calls and bytes under the same numbers.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tidemark::wire {

enum class EntryPoint : uint8_t {
  kMemAlloc = 0,
  kMemAllocPitch,
  kMemFree,
  kMemAllocManaged,
  kMemAllocHost,
  kMemHostAlloc,
  kMemFreeHost,
  kMemHostRegister,
  kMemHostUnregister,
  kMemAllocAsync,
  kMemAllocFromPoolAsync,
  kMemFreeAsync,
  kMemPoolCreate,
  kMemPoolDestroy,
  kMemPoolTrimTo,
  kMemCreate,
  kMemRelease,
  kMemMap,
  kMemUnmap,
  kArrayCreate,
  kArray3DCreate,
  kArrayDestroy,
  kMipmappedArrayCreate,
  kMipmappedArrayDestroy,
  kIpcOpenMemHandle,
  kIpcCloseMemHandle,
  kGraphAddMemAllocNode,
  kGraphAddMemFreeNode,
  kDeviceGraphMemTrim,
  kCtxDestroy,
  kDevicePrimaryCtxRelease,
  kDevicePrimaryCtxReset,
  kCtxSetLimit,
};
inline constexpr uint32_t kEntryPointCount = 33;

// Names without version suffixes, as people know them.
inline constexpr std::array<std::string_view, kEntryPointCount> kEntryPointNames = {
    "cuMemAlloc",
    "cuMemAllocPitch",
    "cuMemFree",
    "cuMemAllocManaged",
    "cuMemAllocHost",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolTrimTo",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuArrayCreate",
    "cuArray3DCreate",
    "cuArrayDestroy",
    "cuMipmappedArrayCreate",
    "cuMipmappedArrayDestroy",
    "cuIpcOpenMemHandle",
    "cuIpcCloseMemHandle",
    "cuGraphAddMemAllocNode",
    "cuGraphAddMemFreeNode",
    "cuDeviceGraphMemTrim",
    "cuCtxDestroy",
    "cuDevicePrimaryCtxRelease",
    "cuDevicePrimaryCtxReset",
    "cuCtxSetLimit",
};

constexpr std::string_view ToString(EntryPoint e) {
  return kEntryPointNames[static_cast<size_t>(e)];
}

}  // namespace tidemark::wire
