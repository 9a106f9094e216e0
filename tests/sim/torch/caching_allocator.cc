#include "tests/sim/torch/caching_allocator.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "tests/sim/torch/c10.h"
#include "tests/sim/torch/cudart.h"
#include "tests/sim/torch/usdt.h"

__attribute__((section(".probes"))) volatile uint16_t pytorch_malloc_semaphore = 0;
__attribute__((section(".probes"))) volatile uint16_t pytorch_free_semaphore = 0;

namespace c10::cuda::CUDACachingAllocator {
namespace Native {

using namespace tidemark::abi;  // NOLINT

constexpr size_t kMinBlockSize = 512;
constexpr size_t kSmallSize = 1 << 20;     // largest "small" allocation
constexpr size_t kSmallBuffer = 2 << 20;   // segments of small ones
constexpr size_t kLargeBuffer = 20 << 20;  // segments of those up to kMinLargeAlloc
constexpr size_t kMinLargeAlloc = 10 << 20;
constexpr size_t kRoundLarge = 2 << 20;
constexpr size_t kExpandableSpan = 256ULL << 30;
constexpr int kMaxDevices = 16;

struct BlockPool;

struct Block {
  char* ptr;
  size_t size;
  BlockPool* pool;
  bool allocated = false;
  Block* prev = nullptr;  // neighbours in the segment
  Block* next = nullptr;
};

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : a->ptr < b->ptr;
  }
};

// A reserved range that grows granule by granule at its end.
struct ExpandableSegment {
  char* base = nullptr;
  size_t granule = 0;
  std::vector<CUmemGenericAllocationHandle> handles;
  Block* last = nullptr;

  size_t mapped() const { return handles.size() * granule; }
};

struct BlockPool {
  bool small;
  std::set<Block*, BySize> free_blocks;
  ExpandableSegment expandable;
};

bool UseExpandableSegments() {
  static const bool use = [] {
    const char* conf = getenv("PYTORCH_CUDA_ALLOC_CONF");
    return conf != nullptr && strstr(conf, "expandable_segments:True") != nullptr;
  }();
  return use;
}

template <typename F>
F* Driver(const char* name) {
  return reinterpret_cast<F*>(cudaSimDriverEntryPoint(name));
}

class DeviceCachingAllocator {
 public:
  explicit DeviceCachingAllocator(int device) : device_(device) {
    small_.small = true;
    large_.small = false;
    small_.expandable.granule = kSmallBuffer;
    large_.expandable.granule = kLargeBuffer;
  }

  Block* malloc(size_t requested);
  void free(Block* block);
  void emptyCache();

  Stats stats() {
    std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  static size_t round_size(size_t size) {
    return size < kMinBlockSize ? kMinBlockSize : (size + kMinBlockSize - 1) & ~(kMinBlockSize - 1);
  }
  static size_t get_allocation_size(size_t size) {
    if (size <= kSmallSize) return kSmallBuffer;
    if (size < kMinLargeAlloc) return kLargeBuffer;
    return (size + kRoundLarge - 1) / kRoundLarge * kRoundLarge;
  }

  Block* get_free_block(BlockPool& pool, size_t size);
  Block* alloc_block(BlockPool& pool, size_t size);
  Block* expand(BlockPool& pool, size_t size);
  bool map_granule(ExpandableSegment& segment);
  void release_cached_blocks();
  void shrink(ExpandableSegment& segment);
  void try_merge(Block* block, Block* neighbour);
  void report(void* ptr, int64_t bytes);

  const int device_;
  std::recursive_mutex mutex_;
  BlockPool small_;
  BlockPool large_;
  Stats stats_;
};

void DeviceCachingAllocator::report(void* ptr, int64_t bytes) {
  reportMemoryUsageToProfiler(ptr, bytes, stats_.allocated, stats_.reserved,
                              {DeviceType::CUDA, static_cast<int8_t>(device_)});
}

Block* DeviceCachingAllocator::get_free_block(BlockPool& pool, size_t size) {
  Block key{nullptr, size, nullptr};
  const auto it = pool.free_blocks.lower_bound(&key);
  if (it == pool.free_blocks.end()) return nullptr;
  Block* block = *it;
  pool.free_blocks.erase(it);
  return block;
}

Block* DeviceCachingAllocator::alloc_block(BlockPool& pool, size_t size) {
  if (UseExpandableSegments()) return expand(pool, size);
  const size_t bytes = get_allocation_size(size);
  void* ptr = nullptr;
  if (cudaMalloc(&ptr, bytes) != 0) return nullptr;
  stats_.reserved += bytes;
  return new Block{static_cast<char*>(ptr), bytes, &pool};
}

bool DeviceCachingAllocator::map_granule(ExpandableSegment& segment) {
  static auto* const create =
      Driver<CUresult(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                      unsigned long long)>("cuMemCreate");
  static auto* const map = Driver<CUresult(
      CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)>("cuMemMap");
  static auto* const release = Driver<CUresult(CUmemGenericAllocationHandle)>("cuMemRelease");
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
  CUmemGenericAllocationHandle handle = 0;
  if (create(&handle, segment.granule, &properties, 0) != CUDA_SUCCESS) return false;
  const auto at = reinterpret_cast<CUdeviceptr>(segment.base) + segment.mapped();
  if (map(at, segment.granule, 0, handle, 0) != CUDA_SUCCESS) {
    release(handle);
    return false;
  }
  segment.handles.push_back(handle);
  stats_.reserved += segment.granule;
  return true;
}

// A block of at least `size` at the end of the pool's segment, by mapping more.
Block* DeviceCachingAllocator::expand(BlockPool& pool, size_t size) {
  ExpandableSegment& segment = pool.expandable;
  if (segment.base == nullptr) {
    static auto* const reserve =
        Driver<CUresult(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long)>(
            "cuMemAddressReserve");
    CUdeviceptr base = 0;
    if (reserve(&base, kExpandableSpan, 0, 0, 0) != CUDA_SUCCESS) return nullptr;
    segment.base = reinterpret_cast<char*>(base);
  }
  Block* tail = segment.last;
  if (tail != nullptr && tail->allocated) tail = nullptr;
  if (tail != nullptr) pool.free_blocks.erase(tail);
  if (tail == nullptr) {
    tail = new Block{segment.base + segment.mapped(), 0, &pool};
    tail->prev = segment.last;
    if (segment.last != nullptr) segment.last->next = tail;
    segment.last = tail;
  }
  while (tail->size < size) {
    if (!map_granule(segment)) {
      if (tail->size != 0) {
        pool.free_blocks.insert(tail);
      } else {
        segment.last = tail->prev;
        if (tail->prev != nullptr) tail->prev->next = nullptr;
        delete tail;
      }
      return nullptr;
    }
    tail->size += segment.granule;
  }
  return tail;
}

Block* DeviceCachingAllocator::malloc(size_t requested) {
  std::lock_guard lock(mutex_);
  const size_t size = round_size(requested);
  BlockPool& pool = size <= kSmallSize ? small_ : large_;
  Block* block = get_free_block(pool, size);
  if (block == nullptr) block = alloc_block(pool, size);
  if (block == nullptr) {
    release_cached_blocks();
    block = alloc_block(pool, size);
  }
  if (block == nullptr) {
    ++stats_.num_ooms;
    reportOutOfMemoryToProfiler(static_cast<int64_t>(size), stats_.allocated, stats_.reserved,
                                {DeviceType::CUDA, static_cast<int8_t>(device_)});
    throw OutOfMemoryError("CUDA out of memory. Tried to allocate " + std::to_string(size) +
                           " bytes on device " + std::to_string(device_));
  }
  const size_t left = block->size - size;
  if (pool.small ? left >= kMinBlockSize : left > kSmallSize) {
    auto* rest = new Block{block->ptr + size, left, &pool};
    rest->prev = block;
    rest->next = block->next;
    if (rest->next != nullptr) rest->next->prev = rest;
    block->next = rest;
    block->size = size;
    if (pool.expandable.last == block) pool.expandable.last = rest;
    pool.free_blocks.insert(rest);
  }
  block->allocated = true;
  stats_.allocated += block->size;
  stats_.max_allocated = std::max(stats_.max_allocated, stats_.allocated);
  stats_.max_reserved = std::max(stats_.max_reserved, stats_.reserved);
  ++stats_.num_alloc;
  ProbeMalloc(block->ptr, device_, requested, nullptr);
  report(block->ptr, static_cast<int64_t>(block->size));
  return block;
}

// Takes a free neighbour into `block`.
void DeviceCachingAllocator::try_merge(Block* block, Block* neighbour) {
  if (neighbour == nullptr || neighbour->allocated) return;
  block->pool->free_blocks.erase(neighbour);
  if (block->prev == neighbour) {
    block->ptr = neighbour->ptr;
    block->prev = neighbour->prev;
    if (block->prev != nullptr) block->prev->next = block;
  } else {
    block->next = neighbour->next;
    if (block->next != nullptr) block->next->prev = block;
    if (block->pool->expandable.last == neighbour) block->pool->expandable.last = block;
  }
  block->size += neighbour->size;
  delete neighbour;
}

void DeviceCachingAllocator::free(Block* block) {
  std::lock_guard lock(mutex_);
  void* const ptr = block->ptr;
  const auto size = static_cast<int64_t>(block->size);
  stats_.allocated -= block->size;
  ++stats_.num_free;
  block->allocated = false;
  try_merge(block, block->prev);
  try_merge(block, block->next);
  block->pool->free_blocks.insert(block);
  ProbeFree(ptr);
  report(ptr, -size);
}

void DeviceCachingAllocator::shrink(ExpandableSegment& segment) {
  static auto* const unmap = Driver<CUresult(CUdeviceptr, size_t)>("cuMemUnmap");
  static auto* const release = Driver<CUresult(CUmemGenericAllocationHandle)>("cuMemRelease");
  Block* tail = segment.last;
  if (tail == nullptr || tail->allocated) return;
  tail->pool->free_blocks.erase(tail);
  while (tail->size >= segment.granule) {
    const auto at =
        reinterpret_cast<CUdeviceptr>(segment.base) + segment.mapped() - segment.granule;
    unmap(at, segment.granule);
    release(segment.handles.back());
    segment.handles.pop_back();
    stats_.reserved -= segment.granule;
    tail->size -= segment.granule;
  }
  if (tail->size != 0) {
    tail->pool->free_blocks.insert(tail);
    return;
  }
  segment.last = tail->prev;
  if (tail->prev != nullptr) tail->prev->next = nullptr;
  delete tail;
}

void DeviceCachingAllocator::release_cached_blocks() {
  cudaDeviceSynchronize();
  for (BlockPool* pool : {&small_, &large_}) {
    if (UseExpandableSegments()) {
      shrink(pool->expandable);
      continue;
    }
    for (auto it = pool->free_blocks.begin(); it != pool->free_blocks.end();) {
      Block* block = *it;
      if (block->prev != nullptr || block->next != nullptr) {
        ++it;
        continue;
      }
      it = pool->free_blocks.erase(it);
      cudaFree(block->ptr);
      stats_.reserved -= block->size;
      delete block;
    }
  }
}

void DeviceCachingAllocator::emptyCache() {
  std::lock_guard lock(mutex_);
  release_cached_blocks();
}

// One allocator a device, and which block an address is.
class NativeCachingAllocator {
 public:
  static NativeCachingAllocator& get() {
    static auto* const allocator = new NativeCachingAllocator;
    return *allocator;
  }

  void* malloc(int device, size_t size) {
    Block* block = device_allocator(device).malloc(size);
    std::lock_guard lock(mutex_);
    allocated_blocks_[block->ptr] = {block, device};
    return block->ptr;
  }

  void free(void* ptr) {
    Entry entry = {};
    {
      std::lock_guard lock(mutex_);
      const auto it = allocated_blocks_.find(ptr);
      if (it == allocated_blocks_.end()) throw std::invalid_argument("invalid device pointer");
      entry = it->second;
      allocated_blocks_.erase(it);
    }
    device_allocator(entry.device).free(entry.block);
  }

  size_t size(void* ptr) {
    std::lock_guard lock(mutex_);
    const auto it = allocated_blocks_.find(ptr);
    return it == allocated_blocks_.end() ? 0 : it->second.block->size;
  }

  DeviceCachingAllocator& device_allocator(int device) {
    std::lock_guard lock(mutex_);
    auto& allocator = allocators_.at(static_cast<size_t>(device));
    if (allocator == nullptr) allocator = std::make_unique<DeviceCachingAllocator>(device);
    return *allocator;
  }

  void emptyCache() {
    for (auto& allocator : allocators_) {
      if (allocator != nullptr) allocator->emptyCache();
    }
  }

 private:
  struct Entry {
    Block* block;
    int device;
  };
  std::mutex mutex_;
  std::array<std::unique_ptr<DeviceCachingAllocator>, kMaxDevices> allocators_;
  std::unordered_map<void*, Entry> allocated_blocks_;
};

}  // namespace Native

void* raw_alloc(size_t nbytes, int device) {
  if (nbytes == 0) return nullptr;
  int current = 0;
  cudaGetDevice(&current);
  if (current != device) cudaSetDevice(device);
  return Native::NativeCachingAllocator::get().malloc(device, nbytes);
}

void raw_delete(void* ptr) {
  if (ptr != nullptr) Native::NativeCachingAllocator::get().free(ptr);
}

void emptyCache() { Native::NativeCachingAllocator::get().emptyCache(); }

Stats getDeviceStats(int device) {
  return Native::NativeCachingAllocator::get().device_allocator(device).stats();
}

size_t block_size(void* ptr) { return Native::NativeCachingAllocator::get().size(ptr); }

}  // namespace c10::cuda::CUDACachingAllocator

namespace at::cuda {
namespace {

struct HostAllocator {
  std::mutex mutex;
  std::unordered_map<void*, size_t> sizes;
  std::unordered_map<size_t, std::vector<void*>> cached;
  size_t reserved = 0;
};

HostAllocator& Host() {
  static auto* const allocator = new HostAllocator;
  return *allocator;
}

}  // namespace

void* CachingHostAllocator_allocate(size_t nbytes) {
  size_t rounded = 4096;
  while (rounded < nbytes) rounded *= 2;
  HostAllocator& host = Host();
  std::lock_guard lock(host.mutex);
  auto& cached = host.cached[rounded];
  if (!cached.empty()) {
    void* ptr = cached.back();
    cached.pop_back();
    return ptr;
  }
  void* ptr = nullptr;
  if (cudaHostAlloc(&ptr, rounded, 0) != 0) return nullptr;
  host.sizes[ptr] = rounded;
  host.reserved += rounded;
  return ptr;
}

void CachingHostAllocator_free(void* ptr) {
  HostAllocator& host = Host();
  std::lock_guard lock(host.mutex);
  const auto it = host.sizes.find(ptr);
  if (it != host.sizes.end()) host.cached[it->second].push_back(ptr);
}

void CachingHostAllocator_emptyCache() {
  HostAllocator& host = Host();
  std::lock_guard lock(host.mutex);
  for (auto& [size, blocks] : host.cached) {
    for (void* ptr : blocks) {
      cudaFreeHost(ptr);
      host.sizes.erase(ptr);
      host.reserved -= size;
    }
    blocks.clear();
  }
}

size_t CachingHostAllocator_reserved() {
  std::lock_guard lock(Host().mutex);
  return Host().reserved;
}

}  // namespace at::cuda
