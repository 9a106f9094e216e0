// libnvidia-ml.so.1, met at run time. Functions that an older driver lacks are null.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "cupti_agent/abi/nvml_abi.h"

namespace tidemark {

class NvmlLibrary {
 public:
  // Loads the library and initialises NVML. Fails when there is no driver.
  static Result<std::unique_ptr<NvmlLibrary>> Load(const std::string& path);
  ~NvmlLibrary();  // closes every device file that NVML holds
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  std::string ErrorText(abi::nvmlReturn_t code) const;

  abi::NvmlSystemGetDriverVersionFn driver_version = nullptr;
  abi::NvmlDeviceGetCountFn device_count = nullptr;
  abi::NvmlDeviceGetHandleByIndexFn device_by_index = nullptr;
  abi::NvmlDeviceGetUuidFn uuid = nullptr;
  abi::NvmlDeviceGetNameFn name = nullptr;
  abi::NvmlDeviceGetMemoryInfoFn memory_info = nullptr;
  abi::NvmlDeviceGetMemoryInfoV2Fn memory_info_v2 = nullptr;
  abi::NvmlDeviceGetComputeRunningProcessesFn processes = nullptr;  // _v3 or _v2
  abi::NvmlDeviceGetMigModeFn mig_mode = nullptr;

 private:
  explicit NvmlLibrary(void* handle) : handle_(handle) {}
  void Resolve();

  void* handle_ = nullptr;
  bool initialised_ = false;
  abi::NvmlInitFn init_ = nullptr;
  abi::NvmlShutdownFn shutdown_ = nullptr;
  abi::NvmlErrorStringFn error_string_ = nullptr;
};

}  // namespace tidemark
