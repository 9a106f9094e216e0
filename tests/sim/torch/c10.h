// The part of PyTorch's c10 that a memory tool meets, under its real mangled names: the CPU
// allocator with its reporter, and the two functions through which every allocator reports to the
// profiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>

namespace c10 {

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };

struct Device {  // two bytes, passed in one register
  DeviceType type_;
  int8_t index_;
};
static_assert(sizeof(Device) == 2);

void reportMemoryUsageToProfiler(void* ptr, int64_t alloc_size, size_t total_allocated,
                                 size_t total_reserved, Device device);
void reportOutOfMemoryToProfiler(int64_t alloc_size, size_t total_allocated, size_t total_reserved,
                                 Device device);

class ProfiledCPUMemoryReporter {
 public:
  void New(void* ptr, size_t nbytes);
  void OutOfMemory(size_t nbytes);
  void Delete(void* ptr);
  size_t allocated() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<void*, size_t> size_table_;
  size_t allocated_ = 0;
};

ProfiledCPUMemoryReporter& profiledCPUMemoryReporter();

struct DefaultCPUAllocator {
  static void* allocate(size_t nbytes);
  static void ReportAndDelete(void* ptr);
};

class OutOfMemoryError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace c10
