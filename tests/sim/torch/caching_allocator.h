// PyTorch's caching allocator for CUDA in its essentials: sizes, segments, splitting, merging,
// expandable segments, totals, and the report of every block to the profiler under the device's
// lock.
#pragma once

#include <cstddef>
#include <cstdint>

namespace c10::cuda::CUDACachingAllocator {

struct Stats {
  size_t allocated = 0;  // bytes of live blocks, as rounded
  size_t reserved = 0;   // bytes of segments
  size_t max_allocated = 0;
  size_t max_reserved = 0;
  uint64_t num_alloc = 0;
  uint64_t num_free = 0;
  uint64_t num_ooms = 0;
};

// Throws c10::OutOfMemoryError. `nbytes` may be 0: null.
void* raw_alloc(size_t nbytes, int device);
void raw_delete(void* ptr);
void emptyCache();
Stats getDeviceStats(int device);
size_t block_size(void* ptr);  // as rounded

}  // namespace c10::cuda::CUDACachingAllocator

namespace at::cuda {

// Pinned memory: rounded up to a power of two, kept for reuse when freed. Null when the driver has
// none left.
void* CachingHostAllocator_allocate(size_t nbytes);
void CachingHostAllocator_free(void* ptr);
void CachingHostAllocator_emptyCache();
size_t CachingHostAllocator_reserved();

}  // namespace at::cuda
