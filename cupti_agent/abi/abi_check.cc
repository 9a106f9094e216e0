// Compares our declarations with NVIDIA's headers at compile time. Built only where such headers
// are found (CMakeLists.txt says which); the object holds nothing.
//
// A newer toolkit may add enumerators and records, but must not move what is checked here; when it
// does, the build stops at the line that names the difference.
#include <cuda.h>
#include <cupti.h>  // brings the argument blocks of generated_cuda_meta.h

#include "cupti_agent/abi/cupti_abi.h"
#if __has_include(<nvml.h>)
#include <nvml.h>

#include "cupti_agent/abi/nvml_abi.h"
#endif

namespace {

namespace ours = tidemark::abi;

#define SAME_SIZE(type) static_assert(sizeof(ours::type) == sizeof(::type))
#define SAME_FIELD(type, field)                                           \
  static_assert(offsetof(ours::type, field) == offsetof(::type, field) && \
                sizeof(ours::type::field) == sizeof(::type::field))
#define SAME_VALUE(name) static_assert(static_cast<long>(ours::name) == static_cast<long>(::name))

SAME_SIZE(CUdevice);
SAME_SIZE(CUdeviceptr);
SAME_SIZE(CUmemGenericAllocationHandle);
SAME_SIZE(CUcontext);
SAME_SIZE(CUresult);
SAME_SIZE(CUipcMemHandle);
SAME_SIZE(CUuuid);

SAME_VALUE(CUDA_SUCCESS);
SAME_VALUE(CUDA_ERROR_INVALID_VALUE);
SAME_VALUE(CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(CUDA_ERROR_NOT_INITIALIZED);
SAME_VALUE(CUDA_ERROR_DEINITIALIZED);
SAME_VALUE(CUDA_ERROR_NO_DEVICE);
SAME_VALUE(CUDA_ERROR_INVALID_DEVICE);
SAME_VALUE(CUDA_ERROR_INVALID_CONTEXT);
SAME_VALUE(CUDA_ERROR_MAP_FAILED);
SAME_VALUE(CUDA_ERROR_UNMAP_FAILED);
SAME_VALUE(CUDA_ERROR_ALREADY_MAPPED);
SAME_VALUE(CUDA_ERROR_INVALID_HANDLE);
SAME_VALUE(CUDA_ERROR_NOT_FOUND);
SAME_VALUE(CUDA_ERROR_ILLEGAL_ADDRESS);
SAME_VALUE(CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME_VALUE(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME_VALUE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME_VALUE(CUDA_ERROR_NOT_SUPPORTED);
SAME_VALUE(CUDA_ERROR_UNKNOWN);

SAME_VALUE(CU_MEM_LOCATION_TYPE_INVALID);
SAME_VALUE(CU_MEM_LOCATION_TYPE_DEVICE);
SAME_VALUE(CU_MEM_LOCATION_TYPE_HOST);
SAME_VALUE(CU_MEM_LOCATION_TYPE_HOST_NUMA);
SAME_VALUE(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
SAME_VALUE(CU_MEM_ALLOCATION_TYPE_PINNED);
SAME_VALUE(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME_VALUE(CU_MEM_HANDLE_TYPE_FABRIC);
SAME_VALUE(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
SAME_VALUE(CU_LIMIT_STACK_SIZE);
SAME_VALUE(CU_LIMIT_PRINTF_FIFO_SIZE);
SAME_VALUE(CU_LIMIT_MALLOC_HEAP_SIZE);
SAME_VALUE(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
SAME_VALUE(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
static_assert(ours::kGetProcAddressPerThreadDefaultStream ==
              CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
SAME_VALUE(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
SAME_VALUE(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
SAME_VALUE(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
SAME_VALUE(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
SAME_VALUE(CU_MEMPOOL_ATTR_USED_MEM_HIGH);
SAME_VALUE(CU_AD_FORMAT_UNSIGNED_INT8);
SAME_VALUE(CU_AD_FORMAT_UNSIGNED_INT16);
SAME_VALUE(CU_AD_FORMAT_UNSIGNED_INT32);
SAME_VALUE(CU_AD_FORMAT_SIGNED_INT8);
SAME_VALUE(CU_AD_FORMAT_SIGNED_INT16);
SAME_VALUE(CU_AD_FORMAT_SIGNED_INT32);
SAME_VALUE(CU_AD_FORMAT_HALF);
SAME_VALUE(CU_AD_FORMAT_FLOAT);

SAME_SIZE(CUmemLocation);
SAME_FIELD(CUmemLocation, type);
SAME_FIELD(CUmemLocation, id);
SAME_SIZE(CUmemAllocationProp);
SAME_FIELD(CUmemAllocationProp, type);
SAME_FIELD(CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(CUmemAllocationProp, location);
SAME_FIELD(CUmemAllocationProp, win32HandleMetaData);
SAME_FIELD(CUmemAllocationProp, allocFlags);
SAME_SIZE(CUmemAccessDesc);
SAME_FIELD(CUmemAccessDesc, flags);
SAME_SIZE(CUmemPoolProps);
SAME_FIELD(CUmemPoolProps, allocType);
SAME_FIELD(CUmemPoolProps, handleTypes);
SAME_FIELD(CUmemPoolProps, location);
SAME_FIELD(CUmemPoolProps, win32SecurityAttributes);
SAME_SIZE(CUDA_ARRAY_DESCRIPTOR);
SAME_FIELD(CUDA_ARRAY_DESCRIPTOR, Width);
SAME_FIELD(CUDA_ARRAY_DESCRIPTOR, Height);
SAME_FIELD(CUDA_ARRAY_DESCRIPTOR, Format);
SAME_FIELD(CUDA_ARRAY_DESCRIPTOR, NumChannels);
SAME_SIZE(CUDA_ARRAY3D_DESCRIPTOR);
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, Width);
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, Height);
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, Depth);
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, Format);
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, NumChannels);
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, Flags);
SAME_SIZE(CUDA_MEM_ALLOC_NODE_PARAMS);
SAME_FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, poolProps);
SAME_FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize);
SAME_FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, dptr);

SAME_SIZE(cuInit_params);
SAME_SIZE(cuMemAlloc_v2_params);
SAME_FIELD(cuMemAlloc_v2_params, dptr);
SAME_FIELD(cuMemAlloc_v2_params, bytesize);
SAME_SIZE(cuMemAllocPitch_v2_params);
SAME_FIELD(cuMemAllocPitch_v2_params, dptr);
SAME_FIELD(cuMemAllocPitch_v2_params, pPitch);
SAME_FIELD(cuMemAllocPitch_v2_params, WidthInBytes);
SAME_FIELD(cuMemAllocPitch_v2_params, Height);
SAME_FIELD(cuMemAllocPitch_v2_params, ElementSizeBytes);
SAME_SIZE(cuMemFree_v2_params);
SAME_SIZE(cuMemAllocManaged_params);
SAME_FIELD(cuMemAllocManaged_params, dptr);
SAME_FIELD(cuMemAllocManaged_params, bytesize);
SAME_FIELD(cuMemAllocManaged_params, flags);
SAME_SIZE(cuMemAllocHost_v2_params);
SAME_FIELD(cuMemAllocHost_v2_params, pp);
SAME_FIELD(cuMemAllocHost_v2_params, bytesize);
SAME_SIZE(cuMemHostAlloc_params);
SAME_FIELD(cuMemHostAlloc_params, pp);
SAME_FIELD(cuMemHostAlloc_params, bytesize);
SAME_FIELD(cuMemHostAlloc_params, Flags);
SAME_SIZE(cuMemFreeHost_params);
SAME_SIZE(cuMemHostRegister_v2_params);
SAME_FIELD(cuMemHostRegister_v2_params, p);
SAME_FIELD(cuMemHostRegister_v2_params, bytesize);
SAME_FIELD(cuMemHostRegister_v2_params, Flags);
static_assert(sizeof(ours::cuMemHostRegister_v2_params) == sizeof(::cuMemHostRegister_params));
SAME_SIZE(cuMemHostUnregister_params);
SAME_SIZE(cuMemAllocAsync_params);
SAME_FIELD(cuMemAllocAsync_params, dptr);
SAME_FIELD(cuMemAllocAsync_params, bytesize);
SAME_FIELD(cuMemAllocAsync_params, hStream);
static_assert(sizeof(ours::cuMemAllocAsync_params) == sizeof(::cuMemAllocAsync_ptsz_params));
SAME_SIZE(cuMemAllocFromPoolAsync_params);
SAME_FIELD(cuMemAllocFromPoolAsync_params, dptr);
SAME_FIELD(cuMemAllocFromPoolAsync_params, bytesize);
SAME_FIELD(cuMemAllocFromPoolAsync_params, pool);
SAME_FIELD(cuMemAllocFromPoolAsync_params, hStream);
static_assert(sizeof(ours::cuMemAllocFromPoolAsync_params) ==
              sizeof(::cuMemAllocFromPoolAsync_ptsz_params));
SAME_SIZE(cuMemFreeAsync_params);
SAME_FIELD(cuMemFreeAsync_params, dptr);
SAME_FIELD(cuMemFreeAsync_params, hStream);
static_assert(sizeof(ours::cuMemFreeAsync_params) == sizeof(::cuMemFreeAsync_ptsz_params));
SAME_SIZE(cuMemPoolCreate_params);
SAME_FIELD(cuMemPoolCreate_params, pool);
SAME_FIELD(cuMemPoolCreate_params, poolProps);
SAME_SIZE(cuMemPoolDestroy_params);
SAME_SIZE(cuMemPoolTrimTo_params);
SAME_FIELD(cuMemPoolTrimTo_params, minBytesToKeep);
SAME_SIZE(cuMemCreate_params);
SAME_FIELD(cuMemCreate_params, handle);
SAME_FIELD(cuMemCreate_params, size);
SAME_FIELD(cuMemCreate_params, prop);
SAME_FIELD(cuMemCreate_params, flags);
SAME_SIZE(cuMemRelease_params);
SAME_SIZE(cuMemRetainAllocationHandle_params);
SAME_FIELD(cuMemRetainAllocationHandle_params, handle);
SAME_FIELD(cuMemRetainAllocationHandle_params, addr);
SAME_SIZE(cuMemImportFromShareableHandle_params);
SAME_FIELD(cuMemImportFromShareableHandle_params, handle);
SAME_FIELD(cuMemImportFromShareableHandle_params, osHandle);
SAME_SIZE(cuMemMap_params);
SAME_FIELD(cuMemMap_params, ptr);
SAME_FIELD(cuMemMap_params, size);
SAME_FIELD(cuMemMap_params, offset);
SAME_FIELD(cuMemMap_params, handle);
SAME_SIZE(cuMemUnmap_params);
SAME_FIELD(cuMemUnmap_params, ptr);
SAME_FIELD(cuMemUnmap_params, size);
SAME_SIZE(cuArrayCreate_v2_params);
SAME_FIELD(cuArrayCreate_v2_params, pAllocateArray);
SAME_SIZE(cuArray3DCreate_v2_params);
SAME_FIELD(cuArray3DCreate_v2_params, pAllocateArray);
SAME_SIZE(cuArrayDestroy_params);
SAME_SIZE(cuMipmappedArrayCreate_params);
SAME_FIELD(cuMipmappedArrayCreate_params, pMipmappedArrayDesc);
SAME_FIELD(cuMipmappedArrayCreate_params, numMipmapLevels);
SAME_SIZE(cuMipmappedArrayDestroy_params);
SAME_SIZE(cuIpcOpenMemHandle_v2_params);
SAME_FIELD(cuIpcOpenMemHandle_v2_params, pdptr);
SAME_FIELD(cuIpcOpenMemHandle_v2_params, handle);
SAME_FIELD(cuIpcOpenMemHandle_v2_params, Flags);
SAME_SIZE(cuIpcCloseMemHandle_params);
SAME_SIZE(cuGraphAddMemAllocNode_params);
SAME_FIELD(cuGraphAddMemAllocNode_params, phGraphNode);
SAME_FIELD(cuGraphAddMemAllocNode_params, nodeParams);
SAME_SIZE(cuGraphAddMemFreeNode_params);
SAME_FIELD(cuGraphAddMemFreeNode_params, dptr);
SAME_SIZE(cuDeviceGraphMemTrim_params);
SAME_SIZE(cuCtxDestroy_v2_params);
SAME_SIZE(cuDevicePrimaryCtxRetain_params);
SAME_FIELD(cuDevicePrimaryCtxRetain_params, pctx);
SAME_FIELD(cuDevicePrimaryCtxRetain_params, dev);
SAME_SIZE(cuDevicePrimaryCtxRelease_v2_params);
SAME_SIZE(cuDevicePrimaryCtxReset_v2_params);
SAME_SIZE(cuCtxSetLimit_params);
SAME_FIELD(cuCtxSetLimit_params, limit);
SAME_FIELD(cuCtxSetLimit_params, value);

SAME_VALUE(CUPTI_SUCCESS);
SAME_VALUE(CUPTI_ERROR_INVALID_PARAMETER);
SAME_VALUE(CUPTI_ERROR_INVALID_DEVICE);
SAME_VALUE(CUPTI_ERROR_INVALID_CONTEXT);
SAME_VALUE(CUPTI_ERROR_INVALID_OPERATION);
SAME_VALUE(CUPTI_ERROR_OUT_OF_MEMORY);
SAME_VALUE(CUPTI_ERROR_MAX_LIMIT_REACHED);
SAME_VALUE(CUPTI_ERROR_NOT_READY);
SAME_VALUE(CUPTI_ERROR_NOT_COMPATIBLE);
SAME_VALUE(CUPTI_ERROR_NOT_INITIALIZED);
SAME_VALUE(CUPTI_ERROR_INVALID_KIND);
SAME_VALUE(CUPTI_ERROR_DISABLED);
SAME_VALUE(CUPTI_ERROR_NOT_SUPPORTED);
SAME_VALUE(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
SAME_VALUE(CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED);
SAME_VALUE(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
SAME_VALUE(CUPTI_ERROR_UNKNOWN);
SAME_VALUE(CUPTI_CB_DOMAIN_DRIVER_API);
SAME_VALUE(CUPTI_CB_DOMAIN_RUNTIME_API);
SAME_VALUE(CUPTI_CB_DOMAIN_RESOURCE);
SAME_VALUE(CUPTI_CB_DOMAIN_SYNCHRONIZE);
SAME_VALUE(CUPTI_CB_DOMAIN_NVTX);
SAME_VALUE(CUPTI_CB_DOMAIN_STATE);
SAME_VALUE(CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
SAME_VALUE(CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING);
SAME_VALUE(CUPTI_CBID_RESOURCE_MODULE_LOADED);
SAME_VALUE(CUPTI_API_ENTER);
SAME_VALUE(CUPTI_API_EXIT);
SAME_VALUE(CUPTI_ACTIVITY_KIND_DRIVER);
SAME_VALUE(CUPTI_ACTIVITY_KIND_RUNTIME);
SAME_VALUE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
SAME_VALUE(CUPTI_ACTIVITY_KIND_MEMORY);
SAME_VALUE(CUPTI_ACTIVITY_KIND_MEMORY2);
SAME_VALUE(CUPTI_ACTIVITY_KIND_MEMORY_POOL);
SAME_VALUE(CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN);
SAME_VALUE(CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE);
SAME_VALUE(CUPTI_ACTIVITY_MEMORY_KIND_PINNED);
SAME_VALUE(CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
SAME_VALUE(CUPTI_ACTIVITY_MEMORY_KIND_ARRAY);
SAME_VALUE(CUPTI_ACTIVITY_MEMORY_KIND_MANAGED);
SAME_VALUE(CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC);
SAME_VALUE(CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC);
SAME_VALUE(CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION);
SAME_VALUE(CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE);
SAME_VALUE(CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL);
SAME_VALUE(CUPTI_ACTIVITY_MEMORY_POOL_TYPE_IMPORTED);
SAME_VALUE(CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED);
SAME_VALUE(CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED);
SAME_VALUE(CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED);
static_assert(ours::kActivityFlagFlushForced == CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
static_assert(ours::kInvalidContextId == CUPTI_INVALID_CONTEXT_ID);
static_assert(ours::kInvalidStreamId == CUPTI_INVALID_STREAM_ID);

#define SAME_CBID(name, value) static_assert(::CUPTI_DRIVER_TRACE_CBID_##name == (value));
TIDEMARK_MEMORY_CBIDS(SAME_CBID)

SAME_SIZE(CUpti_CallbackData);
SAME_FIELD(CUpti_CallbackData, callbackSite);
SAME_FIELD(CUpti_CallbackData, functionName);
SAME_FIELD(CUpti_CallbackData, functionParams);
SAME_FIELD(CUpti_CallbackData, functionReturnValue);
SAME_FIELD(CUpti_CallbackData, symbolName);
SAME_FIELD(CUpti_CallbackData, context);
SAME_FIELD(CUpti_CallbackData, contextUid);
SAME_FIELD(CUpti_CallbackData, correlationData);
SAME_FIELD(CUpti_CallbackData, correlationId);
SAME_SIZE(CUpti_ResourceData);
SAME_FIELD(CUpti_ResourceData, resourceDescriptor);
SAME_SIZE(CUpti_Activity);

// Both memory records again with every field: the agent decodes them from foreign bytes.
#define CHECK_MEMORY_RECORD(type)                                          \
  SAME_SIZE(type);                                                         \
  SAME_FIELD(type, kind);                                                  \
  SAME_FIELD(type, memoryOperationType);                                   \
  SAME_FIELD(type, memoryKind);                                            \
  SAME_FIELD(type, correlationId);                                         \
  SAME_FIELD(type, address);                                               \
  SAME_FIELD(type, bytes);                                                 \
  SAME_FIELD(type, timestamp);                                             \
  SAME_FIELD(type, PC);                                                    \
  SAME_FIELD(type, processId);                                             \
  SAME_FIELD(type, deviceId);                                              \
  SAME_FIELD(type, contextId);                                             \
  SAME_FIELD(type, streamId);                                              \
  SAME_FIELD(type, name);                                                  \
  SAME_FIELD(type, isAsync);                                               \
  SAME_FIELD(type, memoryPoolConfig);                                      \
  static_assert(offsetof(ours::type, memoryPoolConfig.address) ==          \
                offsetof(::type, memoryPoolConfig.address));               \
  static_assert(offsetof(ours::type, memoryPoolConfig.releaseThreshold) == \
                offsetof(::type, memoryPoolConfig.releaseThreshold));      \
  static_assert(offsetof(ours::type, memoryPoolConfig.pool) ==             \
                offsetof(::type, memoryPoolConfig.pool))

#define CHECK_POOL_RECORD(type)              \
  SAME_SIZE(type);                           \
  SAME_FIELD(type, kind);                    \
  SAME_FIELD(type, memoryPoolOperationType); \
  SAME_FIELD(type, memoryPoolType);          \
  SAME_FIELD(type, correlationId);           \
  SAME_FIELD(type, processId);               \
  SAME_FIELD(type, deviceId);                \
  SAME_FIELD(type, minBytesToKeep);          \
  SAME_FIELD(type, address);                 \
  SAME_FIELD(type, size);                    \
  SAME_FIELD(type, releaseThreshold);        \
  SAME_FIELD(type, timestamp)

#if CUPTI_API_VERSION >= 13
CHECK_MEMORY_RECORD(CUpti_ActivityMemory2);
CHECK_POOL_RECORD(CUpti_ActivityMemoryPool);
#endif
#if CUPTI_API_VERSION >= 17
CHECK_MEMORY_RECORD(CUpti_ActivityMemory3);
static_assert(offsetof(ours::CUpti_ActivityMemory3, memoryPoolConfig.utilizedSize) ==
              offsetof(::CUpti_ActivityMemory3, memoryPoolConfig.utilizedSize));
CHECK_POOL_RECORD(CUpti_ActivityMemoryPool2);
SAME_FIELD(CUpti_ActivityMemoryPool2, utilizedSize);
#endif
#if CUPTI_API_VERSION >= 24
CHECK_MEMORY_RECORD(CUpti_ActivityMemory4);
SAME_FIELD(CUpti_ActivityMemory4, source);
SAME_SIZE(CUpti_SubscriberParams);
SAME_FIELD(CUpti_SubscriberParams, oldSubscriberSize);
#endif
#if CUPTI_API_VERSION >= 130000
CHECK_POOL_RECORD(CUpti_ActivityMemoryPool3);
SAME_FIELD(CUpti_ActivityMemoryPool3, utilizedSize);
SAME_FIELD(CUpti_ActivityMemoryPool3, isManagedPool);
#endif
static_assert(ours::Memory2RecordBytes(CUPTI_API_VERSION) >= sizeof(::CUpti_ActivityMemory2));

#if __has_include(<nvml.h>)
SAME_VALUE(NVML_ERROR_UNINITIALIZED);
SAME_VALUE(NVML_ERROR_INVALID_ARGUMENT);
SAME_VALUE(NVML_ERROR_NOT_SUPPORTED);
SAME_VALUE(NVML_ERROR_NO_PERMISSION);
SAME_VALUE(NVML_ERROR_NOT_FOUND);
SAME_VALUE(NVML_ERROR_INSUFFICIENT_SIZE);
SAME_VALUE(NVML_ERROR_DRIVER_NOT_LOADED);
SAME_VALUE(NVML_ERROR_TIMEOUT);
SAME_VALUE(NVML_ERROR_LIBRARY_NOT_FOUND);
SAME_VALUE(NVML_ERROR_FUNCTION_NOT_FOUND);
SAME_VALUE(NVML_ERROR_GPU_IS_LOST);
SAME_VALUE(NVML_ERROR_UNKNOWN);
SAME_SIZE(nvmlMemory_t);
SAME_FIELD(nvmlMemory_t, total);
SAME_FIELD(nvmlMemory_t, free);
SAME_FIELD(nvmlMemory_t, used);
SAME_SIZE(nvmlMemory_v2_t);
SAME_FIELD(nvmlMemory_v2_t, total);
SAME_FIELD(nvmlMemory_v2_t, reserved);
SAME_FIELD(nvmlMemory_v2_t, free);
SAME_FIELD(nvmlMemory_v2_t, used);
static_assert(ours::kNvmlMemoryV2 == nvmlMemory_v2);
SAME_SIZE(nvmlProcessInfo_t);
SAME_FIELD(nvmlProcessInfo_t, pid);
SAME_FIELD(nvmlProcessInfo_t, usedGpuMemory);
SAME_FIELD(nvmlProcessInfo_t, gpuInstanceId);
SAME_FIELD(nvmlProcessInfo_t, computeInstanceId);
SAME_SIZE(nvmlPciInfo_t);
SAME_FIELD(nvmlPciInfo_t, busId);
#endif

}  // namespace
