// libcupti and the few driver functions the agent calls, resolved at run time.
//
// The libcupti that is mapped already is the one to use: the job brought it, and a second copy
// would be another tool's rival. Only when there is none is the toolkit's loaded.
#pragma once

#include <cstdint>

#include "cupti_agent/abi/cupti_abi.h"

namespace tidemark::agent {

struct CuptiLibrary {
  abi::CuptiGetVersionFn GetVersion;
  abi::CuptiGetResultStringFn GetResultString;
  abi::CuptiGetDeviceIdFn GetDeviceId;
  abi::CuptiSubscribeFn Subscribe;
  abi::CuptiUnsubscribeFn Unsubscribe;
  abi::CuptiEnableCallbackFn EnableCallback;
  abi::CuptiActivityEnableFn ActivityEnable;
  abi::CuptiActivityDisableFn ActivityDisable;
  abi::CuptiActivityRegisterCallbacksFn ActivityRegisterCallbacks;
  abi::CuptiActivityGetNextRecordFn ActivityGetNextRecord;
  abi::CuptiActivityGetNumDroppedRecordsFn ActivityGetNumDroppedRecords;
  abi::CuptiActivityFlushAllFn ActivityFlushAll;
  uint32_t version = 0;  // of GetVersion

  // nullptr on success, else why not (static text). `cuda_home` may be null.
  const char* Load(const char* cuda_home);
};

// Functions of the libcuda.so.1 that is injecting us. Any may be null in an old driver.
struct CudaDriver {
  abi::CUresult (*CtxGetDevice)(abi::CUdevice* device);
  abi::CUresult (*MemGetAddressRange)(abi::CUdeviceptr* base, size_t* bytes,
                                      abi::CUdeviceptr address);
  abi::CUresult (*DevicePrimaryCtxGetState)(abi::CUdevice device, unsigned* flags, int* active);

  void Load();
};

}  // namespace tidemark::agent
