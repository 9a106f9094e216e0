// cuGetProcAddress_v2: the code address of the exported symbol itself, as measured for every memory
// call, so that a probe on the export catches whoever came this way.
#include <dlfcn.h>

#include <string>

#pragma GCC visibility push(default)
#include "tests/sim/cuda_api.h"
#pragma GCC visibility pop

namespace {

// The newest variant first. A caller of an older CUDA must not get a signature it does not know.
struct Variant {
  const char* suffix;
  int since;
};
constexpr Variant kVariants[] = {{"_v4", 13000}, {"_v2", 3020}, {"", 0}};

void* OwnSymbol(const std::string& name) {
  static void* const self = [] {
    Dl_info info = {};
    dladdr(reinterpret_cast<void*>(&cuInit), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  return dlsym(self, name.c_str());
}

}  // namespace

extern "C" __attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(
    const char* symbol, void** function, int cuda_version, uint64_t flags,
    CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string base = symbol;
  if (base == "cuGraphInstantiate") base = "cuGraphInstantiateWithFlags";
  const bool per_thread = (flags & kGetProcAddressPerThreadDefaultStream) != 0;
  *function = nullptr;
  for (const Variant& variant : kVariants) {
    if (cuda_version < variant.since || *function != nullptr) continue;
    if (per_thread) *function = OwnSymbol(base + variant.suffix + "_ptsz");
    if (*function == nullptr) *function = OwnSymbol(base + variant.suffix);
  }
  const bool found = *function != nullptr;
  if (status != nullptr) {
    *status = found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
