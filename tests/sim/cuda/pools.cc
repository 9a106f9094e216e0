// Stream-ordered memory. A pool grows in steps of 32 MiB, keeps what is freed until the next
// synchronisation, and then gives back whole unused steps down to its release threshold. The stream
// order itself is not simulated: a free makes the range reusable at once.
#include <algorithm>

#include "tests/sim/cuda/driver.h"

namespace tidemark::sim {
namespace {

constexpr uint64_t kPoolStep = 32 * kMiB;
constexpr uint64_t kPoolWindow = 160ULL << 30;
constexpr uint32_t kDefaultStreamId = 7;
constexpr uint32_t kPerThreadStreamId = 13;

uint32_t StreamId(CUstream stream) {
  switch (reinterpret_cast<uintptr_t>(stream)) {
    case 0:
    case 1:
      return kDefaultStreamId;
    case 2:
      return kPerThreadStreamId;
  }
  return stream->id;
}

void TellPool(Records* records, CUpti_ActivityMemoryPoolOperationType operation, CUmemoryPool pool,
              uint64_t bytes, uint64_t used, uint64_t keep) {
  if (tidemark_sim_tools.pool_enabled.load(std::memory_order_relaxed) == 0) return;
  records->pool.push_back({operation, static_cast<uint32_t>(pool->device), pool->ranges.base(),
                           bytes, used, pool->release_threshold, keep});
}

void TellTrimmed(Records* records, CUmemoryPool pool, uint64_t keep) {
  if (!pool->created_told) return;
  TellPool(records, CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED, pool, pool->ranges.backed(),
           pool->used, keep);
}

void TellAsync(Records* records, CUpti_ActivityMemoryOperationType operation, CUdeviceptr address,
               uint64_t bytes, CUcontext context, CUmemoryPool pool, CUstream stream) {
  // Frees of what outlived its pool are not recorded: one more gap, as measured.
  if (pool->destroyed || tidemark_sim_tools.memory_enabled.load(std::memory_order_relaxed) == 0) {
    return;
  }
  MemoryEvent event = {};
  event.operation = operation;
  event.kind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  event.address = address;
  event.bytes = bytes;
  event.device = static_cast<uint32_t>(pool->device);
  event.context_uid = context->uid;
  event.stream = StreamId(stream);
  event.is_async = true;
  event.in_pool = true;
  event.pool_address = pool->ranges.base();
  event.pool_bytes = pool->ranges.backed();
  event.pool_used = pool->used;
  event.pool_threshold = pool->release_threshold;
  records->memory.push_back(event);
}

}  // namespace
}  // namespace tidemark::sim

tidemark::abi::CUmemPoolHandle_st::CUmemPoolHandle_st(int device, uint64_t base, uint64_t window)
    : device(device), window(window), ranges(base, window, tidemark::sim::kPoolStep, 512) {}

namespace tidemark::sim {

bool Driver::KnownPool(CUmemoryPool pool) {
  if (const auto it = pools_.find(pool); it != pools_.end()) return !it->second->destroyed;
  for (const auto& dev : devices_) {
    if (dev != nullptr && dev->default_pool.get() == pool) return true;
  }
  return false;
}

CUresult Driver::DefaultPool(CUmemoryPool* pool, CUdevice ordinal) {
  if (!ValidDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard lock(mutex_);
  *pool = device(ordinal).default_pool.get();
  return CUDA_SUCCESS;
}

CUresult Driver::CurrentPool(CUmemoryPool* pool, CUdevice ordinal) {
  if (!ValidDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard lock(mutex_);
  *pool = device(ordinal).current_pool;
  return CUDA_SUCCESS;
}

CUresult Driver::SetPool(CUdevice ordinal, CUmemoryPool pool) {
  if (!ValidDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard lock(mutex_);
  if (!KnownPool(pool) || pool->device != ordinal) return CUDA_ERROR_INVALID_VALUE;
  device(ordinal).current_pool = pool;
  return CUDA_SUCCESS;
}

CUresult Driver::PoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  if (pool == nullptr || properties == nullptr ||
      properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!ValidDevice(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard lock(mutex_);
  device(properties->location.id);
  const uint64_t base = pool_windows_.Take(kPoolWindow);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  auto created = std::make_unique<CUmemPoolHandle_st>(properties->location.id, base, kPoolWindow);
  *pool = created.get();
  pools_[*pool] = std::move(created);
  return CUDA_SUCCESS;
}

// Allocations that are still live keep the pool's memory until they are freed: destroying a pool
// frees none of them.
CUresult Driver::PoolDestroy(CUmemoryPool pool, Records* records) {
  std::lock_guard lock(mutex_);
  const auto it = pools_.find(pool);
  if (it == pools_.end() || pool->destroyed) return CUDA_ERROR_INVALID_VALUE;
  if (pool->created_told) {
    TellPool(records, CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED, pool,
             pool->ranges.backed(), pool->used, 0);
  }
  pool->destroyed = true;
  Device& dev = device(pool->device);
  if (dev.current_pool == pool) dev.current_pool = dev.default_pool.get();
  if (pool->live == 0) TrimPool(pool, 0);
  return CUDA_SUCCESS;
}

// Gives back unused steps; a destroyed pool that holds nothing any more goes away with them.
uint64_t Driver::TrimPool(CUmemoryPool pool, uint64_t keep) {
  const uint64_t dropped = pool->ranges.Trim(keep);
  Credit(pool->device, dropped);
  if (pool->destroyed && pool->live == 0) {
    pool_windows_.Give(pool->ranges.base(), pool->window);
    pools_.erase(pool);
  }
  return dropped;
}

CUresult Driver::PoolTrim(CUmemoryPool pool, size_t keep, Records* records) {
  std::lock_guard lock(mutex_);
  if (!KnownPool(pool)) return CUDA_ERROR_INVALID_VALUE;
  TrimPool(pool, keep);
  TellTrimmed(records, pool, keep);
  return CUDA_SUCCESS;
}

// A context's synchronisation is recorded for each pool in use, a stream's where it gave back
// memory.
void Driver::SynchronizeDevice(int ordinal, bool of_context, Records* records) {
  const auto synchronize = [&](CUmemoryPool pool) {
    const bool stays = !pool->destroyed;  // else trimming may delete it
    const uint64_t keep = pool->release_threshold;
    const uint64_t dropped = TrimPool(pool, keep);
    if (stays && (of_context || dropped != 0)) TellTrimmed(records, pool, keep);
  };
  synchronize(device(ordinal).default_pool.get());
  for (auto it = pools_.begin(); it != pools_.end();) {
    const CUmemoryPool pool = (it++)->first;  // trimming may erase it
    if (pool->device == ordinal) synchronize(pool);
  }
}

// Before a graph takes memory for the first time, the default pool is trimmed and the graphs' pool
// is made.
void Driver::TellGraphPool(int ordinal, Records* records) {
  const CUmemoryPool default_pool = device(ordinal).default_pool.get();
  TellTrimmed(records, default_pool, default_pool->release_threshold);
  if (tidemark_sim_tools.pool_enabled.load(std::memory_order_relaxed) == 0) return;
  records->pool.push_back({CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED,
                           static_cast<uint32_t>(ordinal), 0, kPoolStep, 0, 0, 0});
}

CUresult Driver::PoolGet(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  std::lock_guard lock(mutex_);
  if (!KnownPool(pool) || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* out = static_cast<uint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *out = pool->release_threshold;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *out = pool->ranges.backed();
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *out = pool->backed_high;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *out = pool->used;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *out = pool->used_high;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult Driver::PoolSet(CUmemoryPool pool, CUmemPool_attribute attribute, const void* value) {
  std::lock_guard lock(mutex_);
  if (!KnownPool(pool) || value == nullptr || attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  pool->release_threshold = *static_cast<const uint64_t*>(value);
  return CUDA_SUCCESS;
}

CUresult Driver::AllocAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream,
                            Records* records) {
  const CUcontext context = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!ValidStream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (pool == nullptr) pool = device(context->device).current_pool;
  if (!KnownPool(pool)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) {  // measured: succeeds and allocates nothing
    *address = 0;
    return CUDA_SUCCESS;
  }
  const uint64_t taken =
      pool->ranges.Take(bytes, [&](uint64_t more) { return Charge(pool->device, more); });
  if (taken == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!pool->created_told) {
    pool->created_told = true;
    TellPool(records, CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED, pool, kPoolStep, 0, 0);
  }
  ++pool->live;
  pool->used += bytes;
  pool->used_high = std::max(pool->used_high, pool->used);
  pool->backed_high = std::max(pool->backed_high, pool->ranges.backed());
  // No context: the memory outlives it.
  blocks_[taken] = {BlockKind::kPool, bytes, nullptr, pool, 0};
  TellAsync(records, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION, taken, bytes, context, pool,
            stream);
  *address = taken;
  return CUDA_SUCCESS;
}

void Driver::FreePoolBlock(CUdeviceptr address, const Block& block) {
  block.pool->ranges.Give(address, block.bytes);
  block.pool->used -= block.bytes;
  --block.pool->live;
}

CUresult Driver::FreeAsync(CUdeviceptr address, CUstream stream, Records* records) {
  const CUcontext context = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  if (!ValidStream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (address == 0) return CUDA_SUCCESS;
  const auto it = blocks_.find(address);
  if (it == blocks_.end()) return CUDA_ERROR_INVALID_VALUE;
  const Block block = it->second;
  if (block.kind == BlockKind::kDevice) {  // allowed for cuMemAlloc's memory too
    blocks_.erase(it);
    GiveDevice(block.context->device, address, block.bytes);
    Tell(records, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
         address, block.bytes, block.context);
    return CUDA_SUCCESS;
  }
  if (block.kind != BlockKind::kPool) return CUDA_ERROR_INVALID_VALUE;
  blocks_.erase(it);
  TellAsync(records, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE, address, block.bytes, context,
            block.pool, stream);
  FreePoolBlock(address, block);
  return CUDA_SUCCESS;
}

}  // namespace tidemark::sim
