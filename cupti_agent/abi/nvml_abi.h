// The part of NVML's binary interface that Tidemark uses: devices, their memory, the processes on
// them and MIG. Our own declarations, as in cuda_abi.h; libnvidia-ml.so.1 is only ever met at run
// time, and any function may be missing from an older driver.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark::abi {

enum nvmlReturn_t : int {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NO_PERMISSION = 4,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_TIMEOUT = 10,
  NVML_ERROR_LIBRARY_NOT_FOUND = 12,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_GPU_IS_LOST = 15,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
  NVML_ERROR_UNKNOWN = 999,
};

using nvmlDevice_t = struct nvmlDevice_st*;

struct nvmlMemory_t {
  unsigned long long total;  // NOLINT: the ABI's types
  unsigned long long free;
  unsigned long long used;
};
static_assert(sizeof(nvmlMemory_t) == 24);

// `used` excludes `reserved` here; nvmlMemory_t counts it as used.
struct nvmlMemory_v2_t {
  unsigned int version;  // kNvmlMemoryV2
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};
static_assert(sizeof(nvmlMemory_v2_t) == 40);
inline constexpr unsigned int kNvmlMemoryV2 = sizeof(nvmlMemory_v2_t) | (2U << 24);

// Written by nvmlDeviceGetComputeRunningProcesses_v2 and _v3.
struct nvmlProcessInfo_t {
  unsigned int pid;                  // of the driver's pid namespace
  unsigned long long usedGpuMemory;  // bytes, or kNvmlValueNotAvailable
  unsigned int gpuInstanceId;        // kNvmlNoInstance without MIG
  unsigned int computeInstanceId;
};
static_assert(sizeof(nvmlProcessInfo_t) == 24);

// Written by nvmlDeviceGetComputeRunningProcesses (unversioned, before CUDA 11).
struct nvmlProcessInfo_v1_t {
  unsigned int pid;
  unsigned long long usedGpuMemory;
};
static_assert(sizeof(nvmlProcessInfo_v1_t) == 16);

struct nvmlPciInfo_t {
  char busIdLegacy[16];
  unsigned int domain;
  unsigned int bus;
  unsigned int device;
  unsigned int pciDeviceId;
  unsigned int pciSubSystemId;
  char busId[32];
};
static_assert(sizeof(nvmlPciInfo_t) == 68);

inline constexpr unsigned long long kNvmlValueNotAvailable = ~0ULL;
inline constexpr unsigned int kNvmlNoInstance = 0xffffffff;
inline constexpr unsigned int kNvmlDeviceUuidBufferBytes = 96;
inline constexpr unsigned int kNvmlDeviceNameBufferBytes = 96;
inline constexpr unsigned int kNvmlDriverVersionBufferBytes = 80;
inline constexpr unsigned int kNvmlDeviceMigDisable = 0;
inline constexpr unsigned int kNvmlDeviceMigEnable = 1;

// Exported names are in the comments: several carry a version that the source name hides.
using NvmlInitFn = nvmlReturn_t (*)();                           // nvmlInit_v2
using NvmlShutdownFn = nvmlReturn_t (*)();                       // nvmlShutdown
using NvmlErrorStringFn = const char* (*)(nvmlReturn_t result);  // nvmlErrorString
using NvmlSystemGetDriverVersionFn = nvmlReturn_t (*)(char* version, unsigned int length);
using NvmlDeviceGetCountFn = nvmlReturn_t (*)(unsigned int* count);  // ..._v2
using NvmlDeviceGetHandleByIndexFn = nvmlReturn_t (*)(unsigned int index,
                                                      nvmlDevice_t* device);  // ..._v2
using NvmlDeviceGetUuidFn = nvmlReturn_t (*)(nvmlDevice_t device, char* uuid,
                                             unsigned int length);  // nvmlDeviceGetUUID
using NvmlDeviceGetNameFn = nvmlReturn_t (*)(nvmlDevice_t device, char* name, unsigned int length);
using NvmlDeviceGetIndexFn = nvmlReturn_t (*)(nvmlDevice_t device, unsigned int* index);
using NvmlDeviceGetMinorNumberFn = nvmlReturn_t (*)(nvmlDevice_t device, unsigned int* minor);
using NvmlDeviceGetPciInfoFn = nvmlReturn_t (*)(nvmlDevice_t device, nvmlPciInfo_t* pci);  // ..._v3
using NvmlDeviceGetMemoryInfoFn = nvmlReturn_t (*)(nvmlDevice_t device, nvmlMemory_t* memory);
using NvmlDeviceGetMemoryInfoV2Fn = nvmlReturn_t (*)(nvmlDevice_t device, nvmlMemory_v2_t* memory);
// *count is capacity in, number of processes out; NVML_ERROR_INSUFFICIENT_SIZE asks for more room.
using NvmlDeviceGetComputeRunningProcessesFn = nvmlReturn_t (*)(nvmlDevice_t device,
                                                                unsigned int* count,
                                                                nvmlProcessInfo_t* infos);  // _v3
using NvmlDeviceGetMigModeFn = nvmlReturn_t (*)(nvmlDevice_t device, unsigned int* current,
                                                unsigned int* pending);
using NvmlDeviceGetMaxMigDeviceCountFn = nvmlReturn_t (*)(nvmlDevice_t device, unsigned int* count);
using NvmlDeviceGetMigDeviceHandleByIndexFn = nvmlReturn_t (*)(nvmlDevice_t device,
                                                               unsigned int index,
                                                               nvmlDevice_t* mig_device);
using NvmlDeviceGetGpuInstanceIdFn = nvmlReturn_t (*)(nvmlDevice_t device, unsigned int* id);
using NvmlDeviceGetComputeInstanceIdFn = nvmlReturn_t (*)(nvmlDevice_t device, unsigned int* id);
using NvmlDeviceGetDeviceHandleFromMigDeviceHandleFn = nvmlReturn_t (*)(nvmlDevice_t mig_device,
                                                                        nvmlDevice_t* device);

}  // namespace tidemark::abi
