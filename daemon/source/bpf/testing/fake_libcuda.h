// What fake_libcuda.cc offers beside the driver's own calls.
#pragma once

#include <csetjmp>
#include <cstddef>

inline constexpr size_t kFakeMaxBytes = size_t{1} << 40;  // more is out of memory

// Values for cuMemHostAlloc's flags.
inline constexpr unsigned int kFakeDieInside = 0x1000;      // the thread ends in the call
inline constexpr unsigned int kFakeLongjmpInside = 0x2000;  // to fake_libcuda_escape
inline constexpr unsigned int kFakeNestInside = 0x3000;     // calls cuMemAllocHost
inline constexpr unsigned int kFakeSlow = 0x4000;           // takes 0.2 s

extern "C" {
extern jmp_buf fake_libcuda_escape;
int cuMemAllocHost_v2(void** out, size_t bytes);
int cuMemHostAlloc(void** out, size_t bytes, unsigned int flags);
int cuMemFreeHost(void* address);
int cuMemHostRegister_v2(void* address, size_t bytes, unsigned int flags);
int cuMemHostUnregister(void* address);
int fake_throws(int value);
}
