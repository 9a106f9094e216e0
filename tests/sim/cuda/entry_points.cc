// The exported driver calls: each hands its arguments to CUPTI as the real driver does and calls
// the state behind. Compiled so that every entry begins with `push %rbp`, like the real ones: that
// is what a uprobe there costs (bpf/ rests on it).
#pragma GCC visibility push(default)
#include "tests/sim/cuda_api.h"
#pragma GCC visibility pop

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/sim/cuda/tracing.h"

#define SIM_EXPORT extern "C" __attribute__((visibility("default"), noinline))

tidemark::sim::ToolsInterface tidemark_sim_tools;

using tidemark::sim::Driver;
using tidemark::sim::Records;
using tidemark::sim::Traced;

namespace {

struct NoParams {};

// Ids of calls that are traced although they move no memory.
constexpr uint32_t kCbidCtxSynchronize = 17;
constexpr uint32_t kCbidModuleLoadData = 19;
constexpr uint32_t kCbidStreamSynchronize = 126;
constexpr uint32_t kCbidCtxCreateV2 = 235;
constexpr uint32_t kCbidCtxSetCurrent = 303;
constexpr uint32_t kCbidLaunchKernel = 307;
constexpr uint32_t kCbidGraphInstantiate = 643;
constexpr uint32_t kCbidGraphLaunch = 514;
constexpr uint32_t kCbidCtxCreateV4 = 757;

#define CBID(name) CUPTI_DRIVER_TRACE_CBID_##name, #name

CUresult Ready() {
  Driver& driver = Driver::Get();
  return driver.forked() || !driver.initialized() ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

void TellResource(CUpti_CallbackIdResource id, CUcontext context) {
  if (const auto on_resource = tidemark_sim_tools.on_resource.load()) on_resource(id, context);
}

}  // namespace

namespace tidemark::sim {
namespace {
// CUPTI asks about contexts through these.
[[maybe_unused]] const bool kToolsReady = [] {
  tidemark_sim_tools.context_uid = [](CUcontext context) {
    return context == nullptr ? 0U : context->uid;
  };
  tidemark_sim_tools.context_device = [](CUcontext context) {
    return context == nullptr || context->uid == 0 ? -1 : context->device;
  };
  return true;
}();
}  // namespace
}  // namespace tidemark::sim

// --- start, devices -----------------------------------------------------------------------------

SIM_EXPORT CUresult cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return Driver::Get().Init();
}

SIM_EXPORT CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 13000;
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGetErrorName(CUresult error, const char** text) {
  switch (error) {
#define NAME(code) \
  case code:       \
    *text = #code; \
    return CUDA_SUCCESS
    NAME(CUDA_SUCCESS);
    NAME(CUDA_ERROR_INVALID_VALUE);
    NAME(CUDA_ERROR_OUT_OF_MEMORY);
    NAME(CUDA_ERROR_NOT_INITIALIZED);
    NAME(CUDA_ERROR_DEINITIALIZED);
    NAME(CUDA_ERROR_NO_DEVICE);
    NAME(CUDA_ERROR_INVALID_DEVICE);
    NAME(CUDA_ERROR_INVALID_CONTEXT);
    NAME(CUDA_ERROR_MAP_FAILED);
    NAME(CUDA_ERROR_UNMAP_FAILED);
    NAME(CUDA_ERROR_ALREADY_MAPPED);
    NAME(CUDA_ERROR_INVALID_HANDLE);
    NAME(CUDA_ERROR_NOT_FOUND);
    NAME(CUDA_ERROR_ILLEGAL_ADDRESS);
    NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    NAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    NAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    NAME(CUDA_ERROR_NOT_SUPPORTED);
    NAME(CUDA_ERROR_UNKNOWN);
#undef NAME
  }
  *text = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
  return cuGetErrorName(error, text);
}

SIM_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (ordinal < 0 || ordinal >= tidemark::sim::DeviceCount()) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetCount(int* count) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  *count = tidemark::sim::DeviceCount();
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  snprintf(name, static_cast<size_t>(length), "Simulated H200");
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  if (device < 0 || device >= tidemark::sim::DeviceCount()) return CUDA_ERROR_INVALID_DEVICE;
  // The bytes behind the text that NVML gives.
  const std::string text = tidemark::sim::DeviceUuid(device).substr(4);
  size_t n = 0;
  for (size_t i = 0; i < text.size() && n < sizeof(uuid->bytes); ++i) {
    if (text[i] == '-') continue;
    uuid->bytes[n++] = static_cast<char>(strtoul(text.substr(i, 2).c_str(), nullptr, 16));
    ++i;
  }
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  if (device < 0 || device >= tidemark::sim::DeviceCount()) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = tidemark::sim::DeviceBytes();
  return CUDA_SUCCESS;
}

// --- contexts -----------------------------------------------------------------------------------

SIM_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return Traced(CBID(cuDevicePrimaryCtxRetain), cuDevicePrimaryCtxRetain_params{context, device},
                [&](Records*) {
                  int was_active = 1;
                  Driver::Get().PrimaryState(device, &was_active);
                  const CUresult result = Driver::Get().PrimaryRetain(context, device);
                  if (result == CUDA_SUCCESS && was_active == 0) {
                    TellResource(CUPTI_CBID_RESOURCE_CONTEXT_CREATED, *context);
                  }
                  return result;
                });
}

SIM_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return Traced(CBID(cuDevicePrimaryCtxRelease_v2), cuDevicePrimaryCtxRelease_v2_params{device},
                [&](Records* records) { return Driver::Get().PrimaryRelease(device, records); });
}

SIM_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return Traced(CBID(cuDevicePrimaryCtxRelease), cuDevicePrimaryCtxRelease_v2_params{device},
                [&](Records* records) { return Driver::Get().PrimaryRelease(device, records); });
}

SIM_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return Traced(CBID(cuDevicePrimaryCtxReset_v2), cuDevicePrimaryCtxReset_v2_params{device},
                [&](Records* records) { return Driver::Get().PrimaryReset(device, records); });
}

SIM_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return Traced(CBID(cuDevicePrimaryCtxReset), cuDevicePrimaryCtxReset_v2_params{device},
                [&](Records* records) { return Driver::Get().PrimaryReset(device, records); });
}

SIM_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  *flags = 0;
  return Driver::Get().PrimaryState(device, active);
}

SIM_EXPORT CUresult cuCtxCreate_v2(CUcontext* context, unsigned, CUdevice device) {
  return Traced(kCbidCtxCreateV2, "cuCtxCreate_v2", NoParams{},
                [&](Records*) { return Driver::Get().CreateContext(context, device); });
}

SIM_EXPORT CUresult cuCtxCreate_v4(CUcontext* context, void*, unsigned, CUdevice device) {
  return Traced(kCbidCtxCreateV4, "cuCtxCreate_v4", NoParams{},
                [&](Records*) { return Driver::Get().CreateContext(context, device); });
}

SIM_EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  return Traced(CBID(cuCtxDestroy_v2), cuCtxDestroy_v2_params{context}, [&](Records* records) {
    TellResource(CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, context);
    return Driver::Get().DestroyContext(context, records);
  });
}

SIM_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().Push(context);
}

SIM_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().Pop(context);
}

SIM_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  return Traced(kCbidCtxSetCurrent, "cuCtxSetCurrent", NoParams{},
                [&](Records*) { return Driver::Get().SetCurrent(context); });
}

SIM_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  *context = Driver::Current();
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  const CUcontext context = Driver::Current();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device;
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxSynchronize() {
  return Traced(kCbidCtxSynchronize, "cuCtxSynchronize", NoParams{},
                [&](Records* records) { return Driver::Get().Synchronize(records); });
}

SIM_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return Traced(CBID(cuCtxSetLimit), cuCtxSetLimit_params{limit, value},
                [&](Records*) { return Driver::Get().SetLimit(limit, value); });
}

SIM_EXPORT CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().GetLimit(value, limit);
}

// --- streams, kernels, modules ------------------------------------------------------------------

SIM_EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().StreamCreate(stream);
}

SIM_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().StreamDestroy(stream);
}

SIM_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  return Traced(kCbidStreamSynchronize, "cuStreamSynchronize", NoParams{},
                [&](Records* records) { return Driver::Get().SynchronizeStream(stream, records); });
}

SIM_EXPORT CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, CUstream, void**, void**) {
  return Traced(kCbidLaunchKernel, "cuLaunchKernel", NoParams{},
                [](Records*) { return CUDA_SUCCESS; });
}

SIM_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void*) {
  return Traced(kCbidModuleLoadData, "cuModuleLoadData", NoParams{}, [&](Records*) {
    const CUresult result = Driver::Get().ModuleLoad(module);
    if (result == CUDA_SUCCESS) {
      TellResource(CUPTI_CBID_RESOURCE_MODULE_LOADED, Driver::Current());
    }
    return result;
  });
}

SIM_EXPORT CUresult cuModuleUnload(CUmodule module) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().ModuleUnload(module);
}

// --- linear, managed and pinned memory ----------------------------------------------------------

SIM_EXPORT CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().MemInfo(free_bytes, total_bytes);
}

SIM_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().AddressRange(base, bytes, address);
}

SIM_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return Traced(CBID(cuMemAlloc_v2), cuMemAlloc_v2_params{address, bytes},
                [&](Records* records) { return Driver::Get().MemAlloc(address, bytes, records); });
}

SIM_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width,
                                       size_t height, unsigned element_bytes) {
  return Traced(CBID(cuMemAllocPitch_v2),
                cuMemAllocPitch_v2_params{address, pitch, width, height, element_bytes},
                [&](Records* records) {
                  return Driver::Get().MemAllocPitch(address, pitch, width, height, element_bytes,
                                                     records);
                });
}

SIM_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  return Traced(CBID(cuMemFree_v2), cuMemFree_v2_params{address},
                [&](Records* records) { return Driver::Get().MemFree(address, records); });
}

SIM_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  return Traced(CBID(cuMemAllocManaged), cuMemAllocManaged_params{address, bytes, flags},
                [&](Records* records) {
                  return Driver::Get().MemAllocManaged(address, bytes, flags, records);
                });
}

SIM_EXPORT CUresult cuMemAllocHost_v2(void** address, size_t bytes) {
  return Traced(CBID(cuMemAllocHost_v2), cuMemAllocHost_v2_params{address, bytes},
                [&](Records* records) { return Driver::Get().HostAlloc(address, bytes, records); });
}

SIM_EXPORT CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
  return Traced(CBID(cuMemHostAlloc), cuMemHostAlloc_params{address, bytes, flags},
                [&](Records* records) { return Driver::Get().HostAlloc(address, bytes, records); });
}

SIM_EXPORT CUresult cuMemFreeHost(void* address) {
  return Traced(CBID(cuMemFreeHost), cuMemFreeHost_params{address},
                [&](Records* records) { return Driver::Get().HostFree(address, records); });
}

SIM_EXPORT CUresult cuMemHostRegister_v2(void* address, size_t bytes, unsigned flags) {
  return Traced(
      CBID(cuMemHostRegister_v2), cuMemHostRegister_v2_params{address, bytes, flags},
      [&](Records* records) { return Driver::Get().HostRegister(address, bytes, records); });
}

SIM_EXPORT CUresult cuMemHostRegister(void* address, size_t bytes, unsigned flags) {
  return Traced(
      CBID(cuMemHostRegister), cuMemHostRegister_v2_params{address, bytes, flags},
      [&](Records* records) { return Driver::Get().HostRegister(address, bytes, records); });
}

SIM_EXPORT CUresult cuMemHostUnregister(void* address) {
  return Traced(CBID(cuMemHostUnregister), cuMemHostUnregister_params{address},
                [&](Records* records) { return Driver::Get().HostUnregister(address, records); });
}

// --- stream-ordered memory ----------------------------------------------------------------------

SIM_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return Traced(CBID(cuMemAllocAsync), cuMemAllocAsync_params{address, bytes, stream},
                [&](Records* records) {
                  return Driver::Get().AllocAsync(address, bytes, nullptr, stream, records);
                });
}

SIM_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return Traced(CBID(cuMemAllocAsync_ptsz), cuMemAllocAsync_params{address, bytes, stream},
                [&](Records* records) {
                  return Driver::Get().AllocAsync(address, bytes, nullptr, stream, records);
                });
}

SIM_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                            CUstream stream) {
  return Traced(CBID(cuMemAllocFromPoolAsync),
                cuMemAllocFromPoolAsync_params{address, bytes, pool, stream},
                [&](Records* records) {
                  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
                  return Driver::Get().AllocAsync(address, bytes, pool, stream, records);
                });
}

SIM_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, size_t bytes,
                                                 CUmemoryPool pool, CUstream stream) {
  return Traced(CBID(cuMemAllocFromPoolAsync_ptsz),
                cuMemAllocFromPoolAsync_params{address, bytes, pool, stream},
                [&](Records* records) {
                  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
                  return Driver::Get().AllocAsync(address, bytes, pool, stream, records);
                });
}

SIM_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return Traced(
      CBID(cuMemFreeAsync), cuMemFreeAsync_params{address, stream},
      [&](Records* records) { return Driver::Get().FreeAsync(address, stream, records); });
}

SIM_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  return Traced(
      CBID(cuMemFreeAsync_ptsz), cuMemFreeAsync_params{address, stream},
      [&](Records* records) { return Driver::Get().FreeAsync(address, stream, records); });
}

SIM_EXPORT CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return Traced(CBID(cuMemPoolCreate), cuMemPoolCreate_params{pool, properties},
                [&](Records*) { return Driver::Get().PoolCreate(pool, properties); });
}

SIM_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return Traced(CBID(cuMemPoolDestroy), cuMemPoolDestroy_params{pool},
                [&](Records* records) { return Driver::Get().PoolDestroy(pool, records); });
}

SIM_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t min_bytes_to_keep) {
  return Traced(
      CBID(cuMemPoolTrimTo), cuMemPoolTrimTo_params{pool, min_bytes_to_keep},
      [&](Records* records) { return Driver::Get().PoolTrim(pool, min_bytes_to_keep, records); });
}

SIM_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                          void* value) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().PoolGet(pool, attribute, value);
}

SIM_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                          void* value) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().PoolSet(pool, attribute, value);
}

SIM_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().DefaultPool(pool, device);
}

SIM_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().CurrentPool(pool, device);
}

SIM_EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().SetPool(device, pool);
}

// --- virtual memory -----------------------------------------------------------------------------

SIM_EXPORT CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                                  CUmemAllocationGranularity_flags) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  *bytes = 2 * tidemark::sim::kMiB;
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                                        unsigned long long) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().Reserve(address, bytes);
}

SIM_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().Unreserve(address, bytes);
}

SIM_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                                const CUmemAllocationProp* properties, unsigned long long flags) {
  return Traced(CBID(cuMemCreate), cuMemCreate_params{handle, bytes, properties, flags},
                [&](Records*) { return Driver::Get().Create(handle, bytes, properties); });
}

SIM_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return Traced(CBID(cuMemRelease), cuMemRelease_params{handle},
                [&](Records*) { return Driver::Get().Release(handle); });
}

SIM_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle,
                                                void* address) {
  return Traced(CBID(cuMemRetainAllocationHandle),
                cuMemRetainAllocationHandle_params{handle, address},
                [&](Records*) { return Driver::Get().Retain(handle, address); });
}

SIM_EXPORT CUresult cuMemExportToShareableHandle(void* shareable,
                                                 CUmemGenericAllocationHandle handle,
                                                 CUmemAllocationHandleType type,
                                                 unsigned long long) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  return Driver::Get().Export(static_cast<int*>(shareable), handle);
}

SIM_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                   void* shareable,
                                                   CUmemAllocationHandleType type) {
  return Traced(CBID(cuMemImportFromShareableHandle),
                cuMemImportFromShareableHandle_params{handle, shareable, type}, [&](Records*) {
                  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
                    return CUDA_ERROR_NOT_SUPPORTED;
                  }
                  const auto fd = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
                  return Driver::Get().Import(handle, fd);
                });
}

SIM_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                             CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return Traced(CBID(cuMemMap), cuMemMap_params{address, bytes, offset, handle, flags},
                [&](Records*) { return Driver::Get().Map(address, bytes, offset, handle); });
}

SIM_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return Traced(CBID(cuMemUnmap), cuMemUnmap_params{address, bytes},
                [&](Records*) { return Driver::Get().Unmap(address, bytes); });
}

SIM_EXPORT CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return Ready();
}

// --- arrays -------------------------------------------------------------------------------------

SIM_EXPORT CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  return Traced(CBID(cuArrayCreate_v2), cuArrayCreate_v2_params{array, descriptor},
                [&](Records* records) {
                  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
                  return Driver::Get().ArrayCreate(array,
                                                   {descriptor->Width, descriptor->Height, 0,
                                                    descriptor->Format, descriptor->NumChannels, 0},
                                                   records);
                });
}

SIM_EXPORT CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  return Traced(CBID(cuArray3DCreate_v2), cuArray3DCreate_v2_params{array, descriptor},
                [&](Records* records) {
                  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
                  return Driver::Get().ArrayCreate(array, *descriptor, records);
                });
}

SIM_EXPORT CUresult cuArrayDestroy(CUarray array) {
  return Traced(CBID(cuArrayDestroy), cuArrayDestroy_params{array},
                [&](Records* records) { return Driver::Get().ArrayDestroy(array, records); });
}

SIM_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray* array,
                                           const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                           unsigned levels) {
  return Traced(CBID(cuMipmappedArrayCreate),
                cuMipmappedArrayCreate_params{array, descriptor, levels}, [&](Records* records) {
                  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
                  return Driver::Get().MipmapCreate(array, *descriptor, levels, records);
                });
}

SIM_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return Traced(CBID(cuMipmappedArrayDestroy), cuMipmappedArrayDestroy_params{array},
                [&](Records* records) { return Driver::Get().MipmapDestroy(array, records); });
}

// --- other processes' memory --------------------------------------------------------------------

SIM_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().IpcGet(handle, address);
}

SIM_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle,
                                          unsigned flags) {
  return Traced(CBID(cuIpcOpenMemHandle_v2), cuIpcOpenMemHandle_v2_params{address, handle, flags},
                [&](Records*) { return Driver::Get().IpcOpen(address, handle); });
}

SIM_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle,
                                       unsigned flags) {
  return Traced(CBID(cuIpcOpenMemHandle), cuIpcOpenMemHandle_v2_params{address, handle, flags},
                [&](Records*) { return Driver::Get().IpcOpen(address, handle); });
}

SIM_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return Traced(CBID(cuIpcCloseMemHandle), cuIpcCloseMemHandle_params{address},
                [&](Records*) { return Driver::Get().IpcClose(address); });
}

// --- graphs -------------------------------------------------------------------------------------

SIM_EXPORT CUresult cuGraphCreate(CUgraph* graph, unsigned) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().GraphCreate(graph);
}

SIM_EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().GraphDestroy(graph);
}

SIM_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph,
                                           const CUgraphNode* dependencies, size_t count,
                                           CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  return Traced(CBID(cuGraphAddMemAllocNode),
                cuGraphAddMemAllocNode_params{node, graph, dependencies, count, params},
                [&](Records*) { return Driver::Get().GraphAddAlloc(node, graph, params); });
}

SIM_EXPORT CUresult cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph,
                                          const CUgraphNode* dependencies, size_t count,
                                          CUdeviceptr address) {
  return Traced(CBID(cuGraphAddMemFreeNode),
                cuGraphAddMemFreeNode_params{node, graph, dependencies, count, address},
                [&](Records*) { return Driver::Get().GraphAddFree(node, graph, address); });
}

SIM_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                                unsigned long long) {
  return Traced(kCbidGraphInstantiate, "cuGraphInstantiateWithFlags", NoParams{},
                [&](Records*) { return Driver::Get().GraphInstantiate(exec, graph); });
}

SIM_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream) {
  return Traced(kCbidGraphLaunch, "cuGraphLaunch", NoParams{},
                [&](Records* records) { return Driver::Get().GraphLaunch(exec, records); });
}

SIM_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  return Driver::Get().GraphExecDestroy(exec);
}

SIM_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device) {
  return Traced(CBID(cuDeviceGraphMemTrim), cuDeviceGraphMemTrim_params{device},
                [&](Records* records) { return Driver::Get().GraphTrim(device, records); });
}
