#include "tests/sim/torch/cudart.h"

#include <dlfcn.h>

#include <mutex>

using namespace tidemark::abi;  // NOLINT: the runtime is written in the driver's words

namespace {

constexpr int kVersion = 13000;

template <typename F>
F* Resolve(const char* name) {
  static const auto get = [] {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return driver == nullptr
               ? nullptr
               : reinterpret_cast<CuGetProcAddressFn>(dlsym(driver, "cuGetProcAddress_v2"));
  }();
  void* function = nullptr;
  if (get != nullptr) get(name, &function, kVersion, 0, nullptr);
  return reinterpret_cast<F*>(function);
}

// Each call site resolves once.
#define DRIVER(name, ...)                                                \
  ([] {                                                                  \
    static auto* const function = Resolve<CUresult(__VA_ARGS__)>(#name); \
    return function;                                                     \
  }())

constexpr int kMaxDevices = 16;
std::mutex mutex;
CUcontext contexts[kMaxDevices];
thread_local int current_device = 0;
thread_local CUcontext current_context = nullptr;

// The runtime makes the primary context of the thread's device at the first call that needs it.
int Use() {
  if (current_context != nullptr) return 0;
  static const CUresult init = [] {
    auto* function = DRIVER(cuInit, unsigned);
    return function == nullptr ? CUDA_ERROR_NO_DEVICE : function(0);
  }();
  if (init != CUDA_SUCCESS) return init;
  {
    std::lock_guard lock(mutex);
    CUcontext& context = contexts[current_device];
    if (context == nullptr) {
      const CUresult result =
          DRIVER(cuDevicePrimaryCtxRetain, CUcontext*, CUdevice)(&context, current_device);
      if (result != CUDA_SUCCESS) {
        context = nullptr;
        return result;
      }
    }
    current_context = context;
  }
  return DRIVER(cuCtxSetCurrent, CUcontext)(current_context);
}

}  // namespace

#define USE()                             \
  do {                                    \
    if (const int e = Use(); e) return e; \
  } while (false)

extern "C" {

int cudaSetDevice(int device) {
  if (device < 0 || device >= kMaxDevices) return CUDA_ERROR_INVALID_DEVICE;
  if (device != current_device) current_context = nullptr;
  current_device = device;
  return Use();
}

int cudaGetDevice(int* device) {
  *device = current_device;
  return 0;
}

int cudaDeviceSynchronize() {
  USE();
  return DRIVER(cuCtxSynchronize, void)();
}

int cudaDeviceReset() {
  USE();
  const int result = DRIVER(cuDevicePrimaryCtxReset, CUdevice)(current_device);
  std::lock_guard lock(mutex);
  contexts[current_device] = nullptr;
  current_context = nullptr;
  return result;
}

int cudaDeviceSetLimit(int limit, size_t value) {
  USE();
  return DRIVER(cuCtxSetLimit, CUlimit, size_t)(static_cast<CUlimit>(limit), value);
}

int cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  USE();
  return DRIVER(cuMemGetInfo, size_t*, size_t*)(free_bytes, total_bytes);
}

int cudaMalloc(void** address, size_t bytes) {
  USE();
  return DRIVER(cuMemAlloc, CUdeviceptr*, size_t)(reinterpret_cast<CUdeviceptr*>(address), bytes);
}

int cudaFree(void* address) {
  USE();
  return DRIVER(cuMemFree, CUdeviceptr)(reinterpret_cast<CUdeviceptr>(address));
}

int cudaMallocAsync(void** address, size_t bytes, void* stream) {
  USE();
  return DRIVER(cuMemAllocAsync, CUdeviceptr*, size_t, CUstream)(
      reinterpret_cast<CUdeviceptr*>(address), bytes, static_cast<CUstream>(stream));
}

int cudaFreeAsync(void* address, void* stream) {
  USE();
  return DRIVER(cuMemFreeAsync, CUdeviceptr, CUstream)(reinterpret_cast<CUdeviceptr>(address),
                                                       static_cast<CUstream>(stream));
}

int cudaHostAlloc(void** address, size_t bytes, unsigned flags) {
  USE();
  return DRIVER(cuMemHostAlloc, void**, size_t, unsigned)(address, bytes, flags);
}

int cudaFreeHost(void* address) {
  USE();
  return DRIVER(cuMemFreeHost, void*)(address);
}

int cudaHostRegister(void* address, size_t bytes, unsigned flags) {
  USE();
  return DRIVER(cuMemHostRegister, void*, size_t, unsigned)(address, bytes, flags);
}

int cudaHostUnregister(void* address) {
  USE();
  return DRIVER(cuMemHostUnregister, void*)(address);
}

int cudaMallocManaged(void** address, size_t bytes, unsigned flags) {
  USE();
  return DRIVER(cuMemAllocManaged, CUdeviceptr*, size_t, unsigned)(
      reinterpret_cast<CUdeviceptr*>(address), bytes, flags);
}

int cudaLaunchKernel(const void* function) {
  USE();
  return DRIVER(cuLaunchKernel, const void*, unsigned, unsigned, unsigned, unsigned, unsigned,
                unsigned, unsigned, CUstream, void**,
                void**)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
}

void* cudaSimDriverEntryPoint(const char* symbol) {
  if (Use() != 0) return nullptr;
  return reinterpret_cast<void*>(Resolve<CUresult()>(symbol));
}
}
