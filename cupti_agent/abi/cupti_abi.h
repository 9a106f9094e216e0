// The part of CUPTI's binary interface that Tidemark uses: callbacks on the memory calls of the
// driver API and the memory activity records, with their layouts from CUDA 11.0 on.
//
// Our own declarations, as in cuda_abi.h; abi_check.cc compares them with the real headers. CUPTI
// is only ever met at run time, and which record layout it writes follows from cuptiGetVersion:
// never read a field that the version in front of you does not write.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cupti_agent/abi/cuda_abi.h"

namespace tidemark::abi {

enum CUptiResult : int {
  CUPTI_SUCCESS = 0,
  CUPTI_ERROR_INVALID_PARAMETER = 1,
  CUPTI_ERROR_INVALID_DEVICE = 2,
  CUPTI_ERROR_INVALID_CONTEXT = 3,
  CUPTI_ERROR_INVALID_OPERATION = 7,
  CUPTI_ERROR_OUT_OF_MEMORY = 8,
  CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
  CUPTI_ERROR_NOT_READY = 13,
  CUPTI_ERROR_NOT_COMPATIBLE = 14,
  CUPTI_ERROR_NOT_INITIALIZED = 15,
  CUPTI_ERROR_INVALID_KIND = 21,
  CUPTI_ERROR_DISABLED = 23,
  CUPTI_ERROR_NOT_SUPPORTED = 27,
  CUPTI_ERROR_INSUFFICIENT_PRIVILEGES = 35,
  CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED = 36,
  CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39,
  CUPTI_ERROR_UNKNOWN = 999,
};

enum CUpti_CallbackDomain : int {
  CUPTI_CB_DOMAIN_INVALID = 0,
  CUPTI_CB_DOMAIN_DRIVER_API = 1,
  CUPTI_CB_DOMAIN_RUNTIME_API = 2,
  CUPTI_CB_DOMAIN_RESOURCE = 3,
  CUPTI_CB_DOMAIN_SYNCHRONIZE = 4,
  CUPTI_CB_DOMAIN_NVTX = 5,
  CUPTI_CB_DOMAIN_STATE = 6,
};

enum CUpti_CallbackIdResource : int {
  CUPTI_CBID_RESOURCE_CONTEXT_CREATED = 1,
  CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING = 2,
  CUPTI_CBID_RESOURCE_MODULE_LOADED = 6,
};

enum CUpti_ApiCallbackSite : int { CUPTI_API_ENTER = 0, CUPTI_API_EXIT = 1 };

enum CUpti_ActivityKind : int {
  CUPTI_ACTIVITY_KIND_INVALID = 0,
  CUPTI_ACTIVITY_KIND_DRIVER = 4,
  CUPTI_ACTIVITY_KIND_RUNTIME = 5,
  CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL = 10,
  CUPTI_ACTIVITY_KIND_MEMORY = 45,
  CUPTI_ACTIVITY_KIND_MEMORY2 = 49,
  CUPTI_ACTIVITY_KIND_MEMORY_POOL = 50,
};

enum CUpti_ActivityMemoryKind : int {
  CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN = 0,
  CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE = 1,
  CUPTI_ACTIVITY_MEMORY_KIND_PINNED = 2,
  CUPTI_ACTIVITY_MEMORY_KIND_DEVICE = 3,
  CUPTI_ACTIVITY_MEMORY_KIND_ARRAY = 4,
  CUPTI_ACTIVITY_MEMORY_KIND_MANAGED = 5,
  CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC = 6,
  CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC = 7,
};

enum CUpti_ActivityMemoryOperationType : int {
  CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_INVALID = 0,
  CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION = 1,
  CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE = 2,
};

enum CUpti_ActivityMemoryPoolType : int {
  CUPTI_ACTIVITY_MEMORY_POOL_TYPE_INVALID = 0,
  CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL = 1,
  CUPTI_ACTIVITY_MEMORY_POOL_TYPE_IMPORTED = 2,
};

enum CUpti_ActivityMemoryPoolOperationType : int {
  CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_INVALID = 0,
  CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED = 1,
  CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED = 2,
  CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED = 3,
};

// Flag of cuptiActivityFlushAll: deliver buffers that are not full as well.
inline constexpr uint32_t kActivityFlagFlushForced = 1;
inline constexpr uint32_t kInvalidContextId = 0xffffffff;
inline constexpr uint32_t kInvalidStreamId = 0xffffffff;

using CUpti_CallbackId = uint32_t;
using CUpti_SubscriberHandle = struct CUpti_Subscriber_st*;

struct CUpti_CallbackData {
  CUpti_ApiCallbackSite callbackSite;
  const char* functionName;
  const void* functionParams;  // the argument block of the call: cuda_abi.h, *_params
  void* functionReturnValue;   // CUresult*, valid at exit only
  const char* symbolName;
  CUcontext context;  // null when the thread has none
  uint32_t contextUid;
  uint64_t* correlationData;  // 8 bytes of the subscriber's own, kept from enter to exit
  uint32_t correlationId;
};

struct CUpti_ResourceData {
  CUcontext context;
  union {
    CUstream stream;
  } resourceHandle;
  void* resourceDescriptor;
};

struct CUpti_SubscriberParams {
  size_t structSize;
  const char* subscriberName;
  char* oldSubscriberName;
  size_t oldSubscriberSize;
};

struct alignas(8) CUpti_Activity {
  CUpti_ActivityKind kind;
};

// What CUPTI_ACTIVITY_KIND_MEMORY2 writes, in its three layouts. A longer one begins with the
// shorter one, so the common part may be read through the first. `address` is a handle for arrays.
struct alignas(8) CUpti_ActivityMemory2 {
  CUpti_ActivityKind kind;
  CUpti_ActivityMemoryOperationType memoryOperationType;
  CUpti_ActivityMemoryKind memoryKind;
  uint32_t correlationId;
  uint64_t address;
  uint64_t bytes;
  uint64_t timestamp;  // ns, CUPTI's clock
  uint64_t PC;
  uint32_t processId;
  uint32_t deviceId;
  uint32_t contextId;
  uint32_t streamId;
  const char* name;
  uint32_t isAsync;
  uint32_t pad1;
  struct {
    CUpti_ActivityMemoryPoolType memoryPoolType;
    uint32_t pad2;
    uint64_t address;
    uint64_t releaseThreshold;
    union {
      uint64_t size;       // local pools
      uint64_t processId;  // imported pools
    } pool;
  } memoryPoolConfig;
};
static_assert(sizeof(CUpti_ActivityMemory2) == 112);

struct alignas(8) CUpti_ActivityMemory3 {
  CUpti_ActivityKind kind;
  CUpti_ActivityMemoryOperationType memoryOperationType;
  CUpti_ActivityMemoryKind memoryKind;
  uint32_t correlationId;
  uint64_t address;
  uint64_t bytes;
  uint64_t timestamp;
  uint64_t PC;
  uint32_t processId;
  uint32_t deviceId;
  uint32_t contextId;
  uint32_t streamId;
  const char* name;
  uint32_t isAsync;
  uint32_t pad1;
  struct {
    CUpti_ActivityMemoryPoolType memoryPoolType;
    uint32_t pad2;
    uint64_t address;
    uint64_t releaseThreshold;
    union {
      uint64_t size;
      uint64_t processId;
    } pool;
    uint64_t utilizedSize;  // local pools
  } memoryPoolConfig;
};
static_assert(sizeof(CUpti_ActivityMemory3) == 120);

struct alignas(8) CUpti_ActivityMemory4 {
  CUpti_ActivityKind kind;
  CUpti_ActivityMemoryOperationType memoryOperationType;
  CUpti_ActivityMemoryKind memoryKind;
  uint32_t correlationId;
  uint64_t address;
  uint64_t bytes;
  uint64_t timestamp;
  uint64_t PC;
  uint32_t processId;
  uint32_t deviceId;
  uint32_t contextId;
  uint32_t streamId;
  const char* name;
  uint32_t isAsync;
  uint32_t pad1;
  struct {
    CUpti_ActivityMemoryPoolType memoryPoolType;
    uint32_t pad2;
    uint64_t address;
    uint64_t releaseThreshold;
    union {
      uint64_t size;
      uint64_t processId;
    } pool;
    uint64_t utilizedSize;
  } memoryPoolConfig;
  const char* source;  // empty unless cuptiActivityEnableAllocationSource
};
static_assert(sizeof(CUpti_ActivityMemory4) == 128);

// What CUPTI_ACTIVITY_KIND_MEMORY_POOL writes, in its three layouts.
struct alignas(8) CUpti_ActivityMemoryPool {
  CUpti_ActivityKind kind;
  CUpti_ActivityMemoryPoolOperationType memoryPoolOperationType;
  CUpti_ActivityMemoryPoolType memoryPoolType;
  uint32_t correlationId;
  uint32_t processId;
  uint32_t deviceId;
  size_t minBytesToKeep;  // trims
  uint64_t address;
  uint64_t size;
  uint64_t releaseThreshold;
  uint64_t timestamp;
};
static_assert(sizeof(CUpti_ActivityMemoryPool) == 64);

struct alignas(8) CUpti_ActivityMemoryPool2 {
  CUpti_ActivityKind kind;
  CUpti_ActivityMemoryPoolOperationType memoryPoolOperationType;
  CUpti_ActivityMemoryPoolType memoryPoolType;
  uint32_t correlationId;
  uint32_t processId;
  uint32_t deviceId;
  size_t minBytesToKeep;
  uint64_t address;
  uint64_t size;
  uint64_t releaseThreshold;
  uint64_t timestamp;
  uint64_t utilizedSize;
};
static_assert(sizeof(CUpti_ActivityMemoryPool2) == 72);

struct alignas(8) CUpti_ActivityMemoryPool3 {
  CUpti_ActivityKind kind;
  CUpti_ActivityMemoryPoolOperationType memoryPoolOperationType;
  CUpti_ActivityMemoryPoolType memoryPoolType;
  uint32_t correlationId;
  uint32_t processId;
  uint32_t deviceId;
  size_t minBytesToKeep;
  uint64_t address;
  uint64_t size;
  uint64_t releaseThreshold;
  uint64_t timestamp;
  uint64_t utilizedSize;
  uint8_t isManagedPool;
  uint8_t pad2[7];
};
static_assert(sizeof(CUpti_ActivityMemoryPool3) == 80);

// cuptiGetVersion counts 13 for CUDA 11.0, 17 for 11.6, 24 for 12.6, and from 13.0 on is
// major * 10000 + minor * 100 + patch.
inline constexpr uint32_t kCuptiVersionMemory2 = 13;
inline constexpr uint32_t kCuptiVersionMemory3 = 17;
inline constexpr uint32_t kCuptiVersionMemory4 = 24;
inline constexpr uint32_t kCuptiVersionMemoryPool = 15;
inline constexpr uint32_t kCuptiVersionMemoryPool2 = 17;
inline constexpr uint32_t kCuptiVersionMemoryPool3 = 130000;

// Bytes of the MEMORY2 record that this version of CUPTI writes; 0 when it knows no such record.
constexpr size_t Memory2RecordBytes(uint32_t cupti_version) {
  if (cupti_version >= kCuptiVersionMemory4) return sizeof(CUpti_ActivityMemory4);
  if (cupti_version >= kCuptiVersionMemory3) return sizeof(CUpti_ActivityMemory3);
  if (cupti_version >= kCuptiVersionMemory2) return sizeof(CUpti_ActivityMemory2);
  return 0;
}

// Bytes of the MEMORY_POOL record that this version of CUPTI writes; 0 when it knows none.
constexpr size_t MemoryPoolRecordBytes(uint32_t cupti_version) {
  if (cupti_version >= kCuptiVersionMemoryPool3) return sizeof(CUpti_ActivityMemoryPool3);
  if (cupti_version >= kCuptiVersionMemoryPool2) return sizeof(CUpti_ActivityMemoryPool2);
  if (cupti_version >= kCuptiVersionMemoryPool) return sizeof(CUpti_ActivityMemoryPool);
  return 0;
}

// Driver-API callback ids of the calls that allocate, free or change the size of something. One
// list, so that the enumeration, the names and the check against the real header cannot part.
// cuMemHostAlloc_v2 exists as an id only: it is how drivers since 3.2 report cuMemHostAlloc.
#define TIDEMARK_MEMORY_CBIDS(X)         \
  X(cuMemAlloc_v2, 243)                  \
  X(cuMemAllocPitch_v2, 244)             \
  X(cuMemFree_v2, 245)                   \
  X(cuMemAllocManaged, 371)              \
  X(cuMemAllocHost_v2, 294)              \
  X(cuMemHostAlloc, 39)                  \
  X(cuMemHostAlloc_v2, 271)              \
  X(cuMemFreeHost, 38)                   \
  X(cuMemHostRegister, 301)              \
  X(cuMemHostRegister_v2, 379)           \
  X(cuMemHostUnregister, 302)            \
  X(cuMemAllocAsync, 598)                \
  X(cuMemAllocAsync_ptsz, 599)           \
  X(cuMemAllocFromPoolAsync, 611)        \
  X(cuMemAllocFromPoolAsync_ptsz, 612)   \
  X(cuMemFreeAsync, 600)                 \
  X(cuMemFreeAsync_ptsz, 601)            \
  X(cuMemPoolCreate, 607)                \
  X(cuMemPoolDestroy, 608)               \
  X(cuMemPoolTrimTo, 602)                \
  X(cuMemCreate, 549)                    \
  X(cuMemRelease, 550)                   \
  X(cuMemMap, 551)                       \
  X(cuMemUnmap, 552)                     \
  X(cuMemImportFromShareableHandle, 555) \
  X(cuMemRetainAllocationHandle, 565)    \
  X(cuArrayCreate_v2, 272)               \
  X(cuArray3DCreate_v2, 274)             \
  X(cuArrayDestroy, 89)                  \
  X(cuMipmappedArrayCreate, 347)         \
  X(cuMipmappedArrayDestroy, 349)        \
  X(cuIpcOpenMemHandle, 329)             \
  X(cuIpcOpenMemHandle_v2, 567)          \
  X(cuIpcCloseMemHandle, 330)            \
  X(cuGraphAddMemAllocNode, 638)         \
  X(cuGraphAddMemFreeNode, 639)          \
  X(cuDeviceGraphMemTrim, 640)           \
  X(cuCtxDestroy, 11)                    \
  X(cuCtxDestroy_v2, 322)                \
  X(cuDevicePrimaryCtxRetain, 386)       \
  X(cuDevicePrimaryCtxRelease, 387)      \
  X(cuDevicePrimaryCtxRelease_v2, 544)   \
  X(cuDevicePrimaryCtxReset, 389)        \
  X(cuDevicePrimaryCtxReset_v2, 545)     \
  X(cuCtxSetLimit, 136)

enum CUpti_driver_api_trace_cbid : uint32_t {
#define TIDEMARK_CBID_ENUM(name, value) CUPTI_DRIVER_TRACE_CBID_##name = value,
  TIDEMARK_MEMORY_CBIDS(TIDEMARK_CBID_ENUM)
#undef TIDEMARK_CBID_ENUM
};

// The driver function behind a callback id ("cuMemAlloc_v2"), or null for one that is not listed.
constexpr const char* MemoryCbidName(CUpti_CallbackId cbid) {
  switch (cbid) {
#define TIDEMARK_CBID_NAME(name, value) \
  case value:                           \
    return #name;
    TIDEMARK_MEMORY_CBIDS(TIDEMARK_CBID_NAME)
#undef TIDEMARK_CBID_NAME
  }
  return nullptr;
}

using CUpti_CallbackFunc = void (*)(void* user_data, CUpti_CallbackDomain domain,
                                    CUpti_CallbackId cbid, const void* callback_data);
using CUpti_BuffersCallbackRequestFunc = void (*)(uint8_t** buffer, size_t* bytes,
                                                  size_t* max_records);
using CUpti_BuffersCallbackCompleteFunc = void (*)(CUcontext context, uint32_t stream_id,
                                                   uint8_t* buffer, size_t bytes,
                                                   size_t valid_bytes);

using CuptiGetVersionFn = CUptiResult (*)(uint32_t* version);
using CuptiGetTimestampFn = CUptiResult (*)(uint64_t* timestamp_ns);
using CuptiGetResultStringFn = CUptiResult (*)(CUptiResult result, const char** text);
using CuptiGetDeviceIdFn = CUptiResult (*)(CUcontext context, uint32_t* device);
using CuptiSubscribeFn = CUptiResult (*)(CUpti_SubscriberHandle* subscriber,
                                         CUpti_CallbackFunc callback, void* user_data);
using CuptiSubscribeV2Fn = CUptiResult (*)(CUpti_SubscriberHandle* subscriber,
                                           CUpti_CallbackFunc callback, void* user_data,
                                           CUpti_SubscriberParams* params);
using CuptiUnsubscribeFn = CUptiResult (*)(CUpti_SubscriberHandle subscriber);
using CuptiEnableCallbackFn = CUptiResult (*)(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                              CUpti_CallbackDomain domain, CUpti_CallbackId cbid);
using CuptiEnableDomainFn = CUptiResult (*)(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                            CUpti_CallbackDomain domain);
using CuptiActivityEnableFn = CUptiResult (*)(CUpti_ActivityKind kind);
using CuptiActivityDisableFn = CUptiResult (*)(CUpti_ActivityKind kind);
using CuptiActivityRegisterCallbacksFn = CUptiResult (*)(
    CUpti_BuffersCallbackRequestFunc requested, CUpti_BuffersCallbackCompleteFunc completed);
using CuptiActivityGetNextRecordFn = CUptiResult (*)(uint8_t* buffer, size_t valid_bytes,
                                                     CUpti_Activity** record);
using CuptiActivityGetNumDroppedRecordsFn = CUptiResult (*)(CUcontext context, uint32_t stream_id,
                                                            size_t* dropped);
using CuptiActivityFlushAllFn = CUptiResult (*)(uint32_t flags);
using CuptiActivityFlushPeriodFn = CUptiResult (*)(uint32_t milliseconds);
using CuptiFinalizeFn = CUptiResult (*)();

}  // namespace tidemark::abi
