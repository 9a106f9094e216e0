// The part of the CUDA driver's binary interface that Tidemark touches: handles, result codes, the
// structures that memory calls take, and the argument blocks that CUPTI hands to a callback.
//
// These are our own declarations, so that everything builds without a CUDA toolkit; abi_check.cc
// compares them with the real headers wherever those are found. Names follow NVIDIA's, inside a
// namespace, so that both can stand in one translation unit. Nothing here is defined or linked:
// libcuda.so.1 is only ever met at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark::abi {

using CUdevice = int;
using CUdeviceptr = unsigned long long;  // NOLINT: the ABI's type
using CUmemGenericAllocationHandle = unsigned long long;

// Opaque handles. Incomplete on purpose: nobody here may look inside.
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUarray = struct CUarray_st*;
using CUmipmappedArray = struct CUmipmappedArray_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;

enum CUresult : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_MAP_FAILED = 205,
  CUDA_ERROR_UNMAP_FAILED = 206,
  CUDA_ERROR_ALREADY_MAPPED = 208,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_UNKNOWN = 999,
};

enum CUmemLocationType : int {
  CU_MEM_LOCATION_TYPE_INVALID = 0,
  CU_MEM_LOCATION_TYPE_DEVICE = 1,
  CU_MEM_LOCATION_TYPE_HOST = 2,
  CU_MEM_LOCATION_TYPE_HOST_NUMA = 3,
  CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT = 4,
};

enum CUmemAllocationType : int {
  CU_MEM_ALLOCATION_TYPE_INVALID = 0,
  CU_MEM_ALLOCATION_TYPE_PINNED = 1,
};

enum CUmemAllocationHandleType : int {
  CU_MEM_HANDLE_TYPE_NONE = 0,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
  CU_MEM_HANDLE_TYPE_FABRIC = 8,
};

enum CUmemAllocationGranularity_flags : int {
  CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
  CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1,
};

enum CUlimit : int {
  CU_LIMIT_STACK_SIZE = 0,
  CU_LIMIT_PRINTF_FIFO_SIZE = 1,
  CU_LIMIT_MALLOC_HEAP_SIZE = 2,
};

enum CUdriverProcAddressQueryResult : int {
  CU_GET_PROC_ADDRESS_SUCCESS = 0,
  CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
  CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
};

// Flag of cuGetProcAddress_v2: give the per-thread-default-stream variant (`_ptsz`, `_ptds`).
inline constexpr uint64_t kGetProcAddressPerThreadDefaultStream = 1 << 1;

enum CUmemPool_attribute : int {
  CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
  CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
  CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = 6,
  CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
  CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8,
};

enum CUarray_format : int {
  CU_AD_FORMAT_UNSIGNED_INT8 = 0x01,
  CU_AD_FORMAT_UNSIGNED_INT16 = 0x02,
  CU_AD_FORMAT_UNSIGNED_INT32 = 0x03,
  CU_AD_FORMAT_SIGNED_INT8 = 0x08,
  CU_AD_FORMAT_SIGNED_INT16 = 0x09,
  CU_AD_FORMAT_SIGNED_INT32 = 0x0a,
  CU_AD_FORMAT_HALF = 0x10,
  CU_AD_FORMAT_FLOAT = 0x20,
};

// Bytes of one channel of an array element; 0 for a format that is not one of the plain ones above
// (planar and block-compressed formats have no bytes per channel).
constexpr size_t ArrayChannelBytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
  }
  return 0;
}

struct CUmemLocation {
  CUmemLocationType type;
  int id;  // device ordinal or NUMA node, by `type`
};

struct CUmemAllocationProp {
  CUmemAllocationType type;
  CUmemAllocationHandleType requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRDMACapable;
    unsigned short usage;  // NOLINT: the ABI's type
    unsigned char reserved[4];
  } allocFlags;
};

struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;
};

struct CUmemPoolProps {
  CUmemAllocationType allocType;
  CUmemAllocationHandleType handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;        // since CUDA 12.2, reserved before
  unsigned short usage;  // NOLINT: the ABI's type
  unsigned char reserved[54];
};

struct CUDA_ARRAY_DESCRIPTOR {
  size_t Width;
  size_t Height;
  CUarray_format Format;
  unsigned int NumChannels;
};

struct CUDA_ARRAY3D_DESCRIPTOR {
  size_t Width;
  size_t Height;
  size_t Depth;
  CUarray_format Format;
  unsigned int NumChannels;
  unsigned int Flags;
};

struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps poolProps;
  const CUmemAccessDesc* accessDescs;
  size_t accessDescCount;
  size_t bytesize;
  CUdeviceptr dptr;  // written by the driver
};

struct CUipcMemHandle {
  char reserved[64];
};

struct CUuuid {
  char bytes[16];
};

// Argument blocks of the memory calls, as CUpti_CallbackData::functionParams points to them. A
// block of a `_ptsz` variant equals that of the plain call.
struct cuInit_params {
  unsigned int Flags;
};
struct cuMemAlloc_v2_params {
  CUdeviceptr* dptr;
  size_t bytesize;
};
struct cuMemAllocPitch_v2_params {
  CUdeviceptr* dptr;
  size_t* pPitch;
  size_t WidthInBytes;
  size_t Height;
  unsigned int ElementSizeBytes;
};
struct cuMemFree_v2_params {
  CUdeviceptr dptr;
};
struct cuMemAllocManaged_params {
  CUdeviceptr* dptr;
  size_t bytesize;
  unsigned int flags;
};
struct cuMemAllocHost_v2_params {
  void** pp;
  size_t bytesize;
};
struct cuMemHostAlloc_params {
  void** pp;
  size_t bytesize;
  unsigned int Flags;
};
struct cuMemFreeHost_params {
  void* p;
};
struct cuMemHostRegister_v2_params {
  void* p;
  size_t bytesize;
  unsigned int Flags;
};
struct cuMemHostUnregister_params {
  void* p;
};
struct cuMemAllocAsync_params {
  CUdeviceptr* dptr;
  size_t bytesize;
  CUstream hStream;
};
struct cuMemAllocFromPoolAsync_params {
  CUdeviceptr* dptr;
  size_t bytesize;
  CUmemoryPool pool;
  CUstream hStream;
};
struct cuMemFreeAsync_params {
  CUdeviceptr dptr;
  CUstream hStream;
};
struct cuMemPoolCreate_params {
  CUmemoryPool* pool;
  const CUmemPoolProps* poolProps;
};
struct cuMemPoolDestroy_params {
  CUmemoryPool pool;
};
struct cuMemPoolTrimTo_params {
  CUmemoryPool pool;
  size_t minBytesToKeep;
};
struct cuMemCreate_params {
  CUmemGenericAllocationHandle* handle;
  size_t size;
  const CUmemAllocationProp* prop;
  unsigned long long flags;  // NOLINT: the ABI's type
};
struct cuMemRelease_params {
  CUmemGenericAllocationHandle handle;
};
struct cuMemRetainAllocationHandle_params {
  CUmemGenericAllocationHandle* handle;
  void* addr;
};
struct cuMemImportFromShareableHandle_params {
  CUmemGenericAllocationHandle* handle;
  void* osHandle;
  CUmemAllocationHandleType shHandleType;
};
struct cuMemMap_params {
  CUdeviceptr ptr;
  size_t size;
  size_t offset;
  CUmemGenericAllocationHandle handle;
  unsigned long long flags;  // NOLINT: the ABI's type
};
struct cuMemUnmap_params {
  CUdeviceptr ptr;
  size_t size;
};
struct cuArrayCreate_v2_params {
  CUarray* pHandle;
  const CUDA_ARRAY_DESCRIPTOR* pAllocateArray;
};
struct cuArray3DCreate_v2_params {
  CUarray* pHandle;
  const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray;
};
struct cuArrayDestroy_params {
  CUarray hArray;
};
struct cuMipmappedArrayCreate_params {
  CUmipmappedArray* pHandle;
  const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc;
  unsigned int numMipmapLevels;
};
struct cuMipmappedArrayDestroy_params {
  CUmipmappedArray hMipmappedArray;
};
struct cuIpcOpenMemHandle_v2_params {
  CUdeviceptr* pdptr;
  CUipcMemHandle handle;
  unsigned int Flags;
};
struct cuIpcCloseMemHandle_params {
  CUdeviceptr dptr;
};
struct cuGraphAddMemAllocNode_params {
  CUgraphNode* phGraphNode;
  CUgraph hGraph;
  const CUgraphNode* dependencies;
  size_t numDependencies;
  CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams;
};
struct cuGraphAddMemFreeNode_params {
  CUgraphNode* phGraphNode;
  CUgraph hGraph;
  const CUgraphNode* dependencies;
  size_t numDependencies;
  CUdeviceptr dptr;
};
struct cuDeviceGraphMemTrim_params {
  CUdevice device;
};
struct cuCtxDestroy_v2_params {
  CUcontext ctx;
};
struct cuDevicePrimaryCtxRetain_params {
  CUcontext* pctx;
  CUdevice dev;
};
struct cuDevicePrimaryCtxRelease_v2_params {
  CUdevice dev;
};
struct cuDevicePrimaryCtxReset_v2_params {
  CUdevice dev;
};
struct cuCtxSetLimit_params {
  CUlimit limit;
  size_t value;
};

// Functions that Tidemark itself calls in libcuda.so.1, found by dlsym; none of them allocates.
using CuCtxGetCurrentFn = CUresult (*)(CUcontext* context);
using CuCtxGetDeviceFn = CUresult (*)(CUdevice* device);
using CuMemGetInfoFn = CUresult (*)(size_t* free_bytes, size_t* total_bytes);
using CuDeviceGetCountFn = CUresult (*)(int* count);
using CuDeviceGetUuidFn = CUresult (*)(CUuuid* uuid, CUdevice device);
using CuDriverGetVersionFn = CUresult (*)(int* version);
using CuGetProcAddressFn = CUresult (*)(const char* symbol, void** function, int cuda_version,
                                        uint64_t flags, CUdriverProcAddressQueryResult* status);
using CuMemPoolGetAttributeFn = CUresult (*)(CUmemoryPool pool, CUmemPool_attribute attribute,
                                             void* value);
using CuDeviceGetDefaultMemPoolFn = CUresult (*)(CUmemoryPool* pool, CUdevice device);

}  // namespace tidemark::abi
