#include "tests/sim/torch/c10.h"

#include <cstdlib>

namespace c10 {

// With no profiler on, both do nothing: what matters is that they are called, and through which
// slot.
void reportMemoryUsageToProfiler(void* ptr, int64_t alloc_size, size_t total_allocated,
                                 size_t total_reserved, Device device) {
  asm volatile("" ::"r"(ptr), "r"(alloc_size), "r"(total_allocated), "r"(total_reserved),
               "r"(static_cast<int>(device.index_)));
}

void reportOutOfMemoryToProfiler(int64_t alloc_size, size_t total_allocated, size_t total_reserved,
                                 Device device) {
  asm volatile("" ::"r"(alloc_size), "r"(total_allocated), "r"(total_reserved),
               "r"(static_cast<int>(device.index_)));
}

void ProfiledCPUMemoryReporter::New(void* ptr, size_t nbytes) {
  if (nbytes == 0) return;
  std::lock_guard lock(mutex_);
  size_table_[ptr] = nbytes;
  allocated_ += nbytes;
}

void ProfiledCPUMemoryReporter::OutOfMemory(size_t nbytes) {
  reportOutOfMemoryToProfiler(static_cast<int64_t>(nbytes), allocated(), 0, {DeviceType::CPU, 0});
}

void ProfiledCPUMemoryReporter::Delete(void* ptr) {
  std::lock_guard lock(mutex_);
  const auto it = size_table_.find(ptr);
  if (it == size_table_.end()) return;
  allocated_ -= it->second;
  size_table_.erase(it);
}

size_t ProfiledCPUMemoryReporter::allocated() const {
  std::lock_guard lock(mutex_);
  return allocated_;
}

ProfiledCPUMemoryReporter& profiledCPUMemoryReporter() {
  static auto* const reporter = new ProfiledCPUMemoryReporter;
  return *reporter;
}

// No report to the profiler on the CPU while it is off; New and Delete run always.
void* DefaultCPUAllocator::allocate(size_t nbytes) {
  if (nbytes == 0) return nullptr;
  void* data = nullptr;
  if (posix_memalign(&data, 64, nbytes) != 0) {
    profiledCPUMemoryReporter().OutOfMemory(nbytes);
    throw OutOfMemoryError("DefaultCPUAllocator: can't allocate memory");
  }
  profiledCPUMemoryReporter().New(data, nbytes);
  return data;
}

void DefaultCPUAllocator::ReportAndDelete(void* ptr) {
  if (ptr == nullptr) return;
  profiledCPUMemoryReporter().Delete(ptr);
  free(ptr);
}

}  // namespace c10
