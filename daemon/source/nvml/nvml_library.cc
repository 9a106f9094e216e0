#include "daemon/source/nvml/nvml_library.h"

#include <dlfcn.h>

namespace tidemark {
namespace {

template <typename Function>
void Find(void* handle, std::initializer_list<const char*> names, Function* function) {
  for (const char* name : names) {
    *function = reinterpret_cast<Function>(::dlsym(handle, name));
    if (*function != nullptr) return;
  }
}

}  // namespace

Result<std::unique_ptr<NvmlLibrary>> NvmlLibrary::Load(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return Error{"load " + path, why != nullptr ? why : "unknown",
                 "without an NVIDIA driver there are no device figures"};
  }
  std::unique_ptr<NvmlLibrary> library(new NvmlLibrary(handle));
  library->Resolve();
  if (library->init_ == nullptr || library->shutdown_ == nullptr ||
      library->device_count == nullptr || library->device_by_index == nullptr) {
    return Error{"use " + path, "it lacks NVML's basic functions", "update the NVIDIA driver"};
  }
  const abi::nvmlReturn_t code = library->init_();
  if (code != abi::NVML_SUCCESS) {
    return Error{"initialise NVML", library->ErrorText(code),
                 "nvidia-smi fails in the same way: see to the driver first"};
  }
  library->initialised_ = true;
  return library;
}

NvmlLibrary::~NvmlLibrary() {
  if (initialised_) shutdown_();
  ::dlclose(handle_);
}

void NvmlLibrary::Resolve() {
  Find(handle_, {"nvmlInit_v2", "nvmlInit"}, &init_);
  Find(handle_, {"nvmlShutdown"}, &shutdown_);
  Find(handle_, {"nvmlErrorString"}, &error_string_);
  Find(handle_, {"nvmlSystemGetDriverVersion"}, &driver_version);
  Find(handle_, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}, &device_count);
  Find(handle_, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"}, &device_by_index);
  Find(handle_, {"nvmlDeviceGetUUID"}, &uuid);
  Find(handle_, {"nvmlDeviceGetName"}, &name);
  Find(handle_, {"nvmlDeviceGetMemoryInfo"}, &memory_info);
  Find(handle_, {"nvmlDeviceGetMemoryInfo_v2"}, &memory_info_v2);
  // The unversioned function writes a shorter row: not taken.
  Find(handle_,
       {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"},
       &processes);
  Find(handle_, {"nvmlDeviceGetMigMode"}, &mig_mode);
}

std::string NvmlLibrary::ErrorText(abi::nvmlReturn_t code) const {
  const char* text = error_string_ != nullptr ? error_string_(code) : nullptr;
  return text != nullptr ? text : "NVML error " + std::to_string(static_cast<int>(code));
}

}  // namespace tidemark
