#include "cupti_agent/cupti/cupti_library.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>

namespace tidemark::agent {
namespace {

// Newest first: a process that maps two has loaded the newer one for a reason.
constexpr const char* kSonames[] = {"libcupti.so.13",   "libcupti.so.12", "libcupti.so.11.8",
                                    "libcupti.so.11.7", "libcupti.so.11", "libcupti.so"};

void* OpenIn(const char* directory) {
  constexpr const char* kBelow[] = {"extras/CUPTI/lib64", "lib64", "lib"};
  char path[512];
  for (const char* below : kBelow) {
    const int length = snprintf(path, sizeof(path), "%s/%s/libcupti.so", directory, below);
    if (length < 0 || static_cast<size_t>(length) >= sizeof(path)) continue;
    if (void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

void* Open(const char* cuda_home) {
  for (const char* soname : kSonames) {
    if (void* mapped = dlopen(soname, RTLD_NOW | RTLD_NOLOAD)) return mapped;
  }
  for (const char* soname : kSonames) {
    if (void* library = dlopen(soname, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  if (cuda_home != nullptr && cuda_home[0] == '/') {
    if (void* library = OpenIn(cuda_home)) return library;
  }
  return OpenIn("/usr/local/cuda");
}

template <typename Function>
bool Resolve(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

const char* CuptiLibrary::Load(const char* cuda_home) {
  void* library = Open(cuda_home);
  if (library == nullptr) return "no libcupti found: install the CUDA toolkit or set CUDA_HOME";
  const bool all =
      Resolve(library, "cuptiGetVersion", &GetVersion) &&
      Resolve(library, "cuptiGetResultString", &GetResultString) &&
      Resolve(library, "cuptiGetDeviceId", &GetDeviceId) &&
      Resolve(library, "cuptiSubscribe", &Subscribe) &&
      Resolve(library, "cuptiUnsubscribe", &Unsubscribe) &&
      Resolve(library, "cuptiEnableCallback", &EnableCallback) &&
      Resolve(library, "cuptiActivityEnable", &ActivityEnable) &&
      Resolve(library, "cuptiActivityDisable", &ActivityDisable) &&
      Resolve(library, "cuptiActivityRegisterCallbacks", &ActivityRegisterCallbacks) &&
      Resolve(library, "cuptiActivityGetNextRecord", &ActivityGetNextRecord) &&
      Resolve(library, "cuptiActivityGetNumDroppedRecords", &ActivityGetNumDroppedRecords) &&
      Resolve(library, "cuptiActivityFlushAll", &ActivityFlushAll);
  if (!all) return "libcupti lacks a function: a CUDA older than 11";
  if (GetVersion(&version) != abi::CUPTI_SUCCESS) return "cuptiGetVersion failed";
  return nullptr;
}

void CudaDriver::Load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return;
  Resolve(library, "cuCtxGetDevice", &CtxGetDevice);
  Resolve(library, "cuMemGetAddressRange_v2", &MemGetAddressRange);
  Resolve(library, "cuDevicePrimaryCtxGetState", &DevicePrimaryCtxGetState);
}

}  // namespace tidemark::agent
