// Linear memory, pinned and managed host memory, arrays.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/sim/cuda/driver.h"

namespace tidemark::sim {
namespace {

constexpr uint64_t kLargeStep = 2 * kMiB;
constexpr uint64_t kSmallMost = kMiB;
constexpr uint64_t kPageBytes = 4096;
constexpr size_t kPitchAlignment = 512;

constexpr auto kAllocation = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
constexpr auto kRelease = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;

// Pinned memory is really there on a real machine and shows as RssShmem. Here that is the choice of
// the program: TIDEMARK_SIM_PINNED=populate.
int PinnedFlags() {
  static const bool populate = [] {
    const char* value = getenv("TIDEMARK_SIM_PINNED");
    return value != nullptr && strcmp(value, "populate") == 0;
  }();
  return MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | (populate ? MAP_POPULATE : 0);
}

}  // namespace

uint64_t Driver::TakeDevice(int ordinal, uint64_t bytes) {
  Device& dev = device(ordinal);
  const auto grow = [&](uint64_t more) { return Charge(ordinal, more); };
  if (bytes <= kSmallMost) return dev.small.Take(bytes, grow);
  if (bytes > DeviceBytes()) return 0;
  const uint64_t rounded = RoundUp(bytes, kLargeStep);
  if (!Charge(ordinal, rounded)) return 0;
  const uint64_t address = dev.large.Take(rounded);
  if (address == 0) Credit(ordinal, rounded);
  return address;
}

void Driver::GiveDevice(int ordinal, uint64_t address, uint64_t bytes) {
  Device& dev = device(ordinal);
  if (bytes <= kSmallMost) {
    dev.small.Give(address, bytes);
    Credit(ordinal, dev.small.Trim(0));
    return;
  }
  dev.large.Give(address, RoundUp(bytes, kLargeStep));
  Credit(ordinal, RoundUp(bytes, kLargeStep));
}

CUresult Driver::MemInfo(size_t* free_bytes, size_t* total_bytes) {
  const CUcontext context = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  const uint64_t used = state_ != nullptr ? UsedBytes(*state_, context->device, true)
                                          : slot()->bytes[context->device].load();
  *total_bytes = DeviceBytes();
  *free_bytes = used < DeviceBytes() ? DeviceBytes() - used : 0;
  return CUDA_SUCCESS;
}

CUresult Driver::AddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  std::lock_guard lock(mutex_);
  const auto it = blocks_.find(address);
  if (it == blocks_.end()) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = address;
  if (bytes != nullptr) *bytes = it->second.bytes;
  return CUDA_SUCCESS;
}

CUresult Driver::MemAlloc(CUdeviceptr* address, size_t bytes, Records* records) {
  const CUcontext context = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t taken = TakeDevice(context->device, bytes);
  if (taken == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  blocks_[taken] = {BlockKind::kDevice, bytes, context, nullptr, 0};
  Tell(records, kAllocation, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, taken, bytes, context);
  *address = taken;
  return CUDA_SUCCESS;
}

CUresult Driver::MemAllocPitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                               unsigned element_bytes, Records* records) {
  const bool valid_element = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
  if (width == 0 || height == 0 || pitch == nullptr || !valid_element) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const size_t row = RoundUp(width, kPitchAlignment);
  const CUresult result = MemAlloc(address, row * height, records);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

CUresult Driver::MemFree(CUdeviceptr address, Records* records) {
  const CUcontext current = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(current); result != CUDA_SUCCESS) return result;
  if (address == 0) return CUDA_SUCCESS;
  const auto it = blocks_.find(address);
  if (it == blocks_.end() || it->second.kind == BlockKind::kIpc) return CUDA_ERROR_INVALID_VALUE;
  const Block block = it->second;
  blocks_.erase(it);
  switch (block.kind) {
    case BlockKind::kDevice:
      GiveDevice(block.context->device, address, block.bytes);
      Tell(records, kRelease, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, address, block.bytes,
           block.context);
      break;
    case BlockKind::kManaged:
      munmap(reinterpret_cast<void*>(address), RoundUp(block.bytes, kPageBytes));
      Tell(records, kRelease, CUPTI_ACTIVITY_MEMORY_KIND_MANAGED, address, block.bytes,
           block.context);
      break;
    case BlockKind::kPool: {  // allowed, waits for the stream, and gives the memory back at once
      if (tidemark_sim_tools.memory_enabled.load(std::memory_order_relaxed) != 0 &&
          !block.pool->destroyed) {
        MemoryEvent event = {};
        event.operation = kRelease;
        event.kind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
        event.address = address;
        event.bytes = block.bytes;
        event.device = static_cast<uint32_t>(block.pool->device);
        event.context_uid = kInvalidContextId;
        event.stream = kInvalidStreamId;
        event.in_pool = true;
        event.pool_address = block.pool->ranges.base();
        event.pool_bytes = block.pool->ranges.backed();
        event.pool_used = block.pool->used;
        event.pool_threshold = block.pool->release_threshold;
        records->memory.push_back(event);
      }
      FreePoolBlock(address, block);
      block.pool->used += block.bytes;  // measured: this way of freeing never lowers the count
      TrimPool(block.pool, block.pool->release_threshold);
      break;
    }
    case BlockKind::kIpc:
      break;
  }
  return CUDA_SUCCESS;
}

CUresult Driver::MemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags,
                                 Records* records) {
  const CUcontext context = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  if (address == nullptr || bytes == 0 || (flags != 1 && flags != 2)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (bytes > (1ULL << 46)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* map = mmap(nullptr, RoundUp(bytes, kPageBytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(map);
  blocks_[*address] = {BlockKind::kManaged, bytes, context, nullptr, 0};
  Tell(records, kAllocation, CUPTI_ACTIVITY_MEMORY_KIND_MANAGED, *address, bytes, context);
  return CUDA_SUCCESS;
}

CUresult Driver::HostAlloc(void** address, size_t bytes, Records* records) {
  const CUcontext context = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) {  // measured: succeeds and allocates nothing
    *address = nullptr;
    return CUDA_SUCCESS;
  }
  if (bytes > (1ULL << 46)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* map =
      mmap(nullptr, RoundUp(bytes, kPageBytes), PROT_READ | PROT_WRITE, PinnedFlags(), -1, 0);
  if (map == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  host_[reinterpret_cast<uintptr_t>(map)] = {bytes, context, false};
  Tell(records, kAllocation, CUPTI_ACTIVITY_MEMORY_KIND_PINNED, reinterpret_cast<uintptr_t>(map),
       bytes, context);
  *address = map;
  return CUDA_SUCCESS;
}

CUresult Driver::HostFree(void* address, Records* records) {
  const CUcontext current = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(current); result != CUDA_SUCCESS) return result;
  if (address == nullptr) return CUDA_SUCCESS;
  const auto it = host_.find(reinterpret_cast<uintptr_t>(address));
  if (it == host_.end() || it->second.registered) return CUDA_ERROR_INVALID_VALUE;
  Tell(records, kRelease, CUPTI_ACTIVITY_MEMORY_KIND_PINNED, it->first, it->second.bytes,
       it->second.context);
  munmap(address, RoundUp(it->second.bytes, kPageBytes));
  host_.erase(it);
  return CUDA_SUCCESS;
}

CUresult Driver::HostRegister(void* address, size_t bytes, Records* records) {
  const CUcontext context = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const auto after = host_.lower_bound(begin);
  if (after != host_.end() && after->first < begin + bytes) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  if (after != host_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second.bytes > begin) {
      return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
  }
  host_[begin] = {bytes, context, true};
  Tell(records, kAllocation, CUPTI_ACTIVITY_MEMORY_KIND_PINNED, begin, bytes, context);
  return CUDA_SUCCESS;
}

CUresult Driver::HostUnregister(void* address, Records* records) {
  const CUcontext current = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(current); result != CUDA_SUCCESS) return result;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const auto it = host_.find(begin);
  if (it == host_.end()) {
    const auto after = host_.upper_bound(begin);
    const bool inside =
        after != host_.begin() && std::prev(after)->first + std::prev(after)->second.bytes > begin;
    return inside ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  if (!it->second.registered) return CUDA_ERROR_INVALID_VALUE;
  Tell(records, kRelease, CUPTI_ACTIVITY_MEMORY_KIND_PINNED, begin, it->second.bytes,
       it->second.context);
  host_.erase(it);
  return CUDA_SUCCESS;
}

std::optional<CUarray> Driver::NewArray(const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                                        Records* records) {
  const CUcontext context = Current();
  const uint64_t bytes = descriptor.Width * std::max<size_t>(descriptor.Height, 1) *
                         std::max<size_t>(descriptor.Depth, 1) * descriptor.NumChannels *
                         ArrayChannelBytes(descriptor.Format);
  const uint64_t address = TakeDevice(context->device, bytes);
  if (address == 0) return std::nullopt;
  auto* array = new CUarray_st{context, bytes, address, nullptr};
  arrays_.insert(array);
  Tell(records, kAllocation, CUPTI_ACTIVITY_MEMORY_KIND_ARRAY, reinterpret_cast<uintptr_t>(array),
       bytes, context);
  return array;
}

void Driver::DropArray(CUarray array, Records* records) {
  Tell(records, kRelease, CUPTI_ACTIVITY_MEMORY_KIND_ARRAY, reinterpret_cast<uintptr_t>(array),
       array->bytes, array->context);
  GiveDevice(array->context->device, array->address, array->bytes);
  arrays_.erase(array);
  delete array;
}

namespace {
bool ValidArray(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  const unsigned channels = descriptor.NumChannels;
  return descriptor.Width != 0 && (channels == 1 || channels == 2 || channels == 4) &&
         ArrayChannelBytes(descriptor.Format) != 0;
}
}  // namespace

CUresult Driver::ArrayCreate(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                             Records* records) {
  const CUcontext context = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  if (array == nullptr || !ValidArray(descriptor)) return CUDA_ERROR_INVALID_VALUE;
  const auto created = NewArray(descriptor, records);
  if (!created) return CUDA_ERROR_OUT_OF_MEMORY;
  *array = *created;
  return CUDA_SUCCESS;
}

CUresult Driver::ArrayDestroy(CUarray array, Records* records) {
  std::lock_guard lock(mutex_);
  if (arrays_.count(array) == 0 || array->whole != nullptr) return CUDA_ERROR_INVALID_HANDLE;
  DropArray(array, records);
  return CUDA_SUCCESS;
}

// One array, and one record, for each level: that is how the real driver shows it.
CUresult Driver::MipmapCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                              unsigned levels, Records* records) {
  const CUcontext context = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  if (array == nullptr || levels == 0 || !ValidArray(descriptor)) return CUDA_ERROR_INVALID_VALUE;
  auto whole = std::make_unique<CUmipmappedArray_st>();
  CUDA_ARRAY3D_DESCRIPTOR level = descriptor;
  for (unsigned i = 0; i < levels; ++i) {
    const auto created = NewArray(level, records);
    if (!created) {
      for (const CUarray earlier : whole->levels) DropArray(earlier, records);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    (*created)->whole = whole.get();
    whole->levels.push_back(*created);
    level.Width = std::max<size_t>(level.Width / 2, 1);
    if (level.Height != 0) level.Height = std::max<size_t>(level.Height / 2, 1);
    if (level.Depth != 0) level.Depth = std::max<size_t>(level.Depth / 2, 1);
  }
  *array = whole.release();
  mipmaps_.insert(*array);
  return CUDA_SUCCESS;
}

CUresult Driver::MipmapDestroy(CUmipmappedArray array, Records* records) {
  std::lock_guard lock(mutex_);
  if (mipmaps_.erase(array) == 0) return CUDA_ERROR_INVALID_HANDLE;
  for (const CUarray level : array->levels) DropArray(level, records);
  delete array;
  return CUDA_SUCCESS;
}

}  // namespace tidemark::sim
