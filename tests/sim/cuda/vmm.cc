// The virtual memory calls: address space, memory behind handles, mappings. Memory is freed when
// its last handle is released and its last mapping is gone, in either order.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "tests/sim/cuda/driver.h"

namespace tidemark::sim {
namespace {

constexpr uint64_t kGranularity = 2 * kMiB;
constexpr int kHost = -1;

struct ShareableMemory {
  uint64_t magic;
  int32_t device;
  uint64_t bytes;
};
constexpr uint64_t kShareableMagic = 0x746d73696d766d6d;

}  // namespace

CUresult Driver::Reserve(CUdeviceptr* address, size_t bytes) {
  if (address == nullptr || bytes == 0 || bytes % kGranularity != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard lock(mutex_);
  const uint64_t taken = reserved_space_.Take(bytes);
  if (taken == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  reservations_[taken] = bytes;
  *address = taken;
  return CUDA_SUCCESS;
}

CUresult Driver::Unreserve(CUdeviceptr address, size_t bytes) {
  std::lock_guard lock(mutex_);
  const auto it = reservations_.find(address);
  if (it == reservations_.end() || it->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto mapped = mappings_.lower_bound(address);
  if (mapped != mappings_.end() && mapped->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  reserved_space_.Give(address, bytes);
  reservations_.erase(it);
  return CUDA_SUCCESS;
}

CUresult Driver::Create(CUmemGenericAllocationHandle* handle, size_t bytes,
                        const CUmemAllocationProp* properties) {
  if (handle == nullptr || properties == nullptr || bytes == 0 || bytes % kGranularity != 0 ||
      properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  int ordinal = kHost;
  switch (properties->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (!ValidDevice(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
      ordinal = properties->location.id;
      break;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      break;
    case CU_MEM_LOCATION_TYPE_INVALID:
      return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard lock(mutex_);
  if (ordinal != kHost && !Charge(ordinal, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto physical = std::make_unique<Physical>(Physical{ordinal, bytes, true, 1, 0});
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(physical.get());
  Physical* key = physical.get();
  physical_[key] = std::move(physical);
  return CUDA_SUCCESS;
}

void Driver::DropPhysical(Physical* physical) {
  if (physical->handles != 0 || physical->maps != 0) return;
  if (physical->owned && physical->device != kHost) Credit(physical->device, physical->bytes);
  physical_.erase(physical);
}

CUresult Driver::Release(CUmemGenericAllocationHandle handle) {
  std::lock_guard lock(mutex_);
  auto* physical = reinterpret_cast<Physical*>(handle);
  if (physical_.count(physical) == 0 || physical->handles == 0) return CUDA_ERROR_INVALID_VALUE;
  --physical->handles;
  DropPhysical(physical);
  return CUDA_SUCCESS;
}

CUresult Driver::Retain(CUmemGenericAllocationHandle* handle, void* address) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto it = mappings_.upper_bound(at);
  if (it == mappings_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --it;
  if (at >= it->first + it->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  ++it->second.physical->handles;
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(it->second.physical);
  return CUDA_SUCCESS;
}

CUresult Driver::Export(int* fd, CUmemGenericAllocationHandle handle) {
  std::lock_guard lock(mutex_);
  auto* physical = reinterpret_cast<Physical*>(handle);
  if (fd == nullptr || physical_.count(physical) == 0) return CUDA_ERROR_INVALID_VALUE;
  const ShareableMemory shareable = {kShareableMagic, physical->device, physical->bytes};
  const int made = memfd_create("cuda-shareable", MFD_CLOEXEC);
  if (made < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (pwrite(made, &shareable, sizeof(shareable), 0) != sizeof(shareable)) {
    close(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *fd = made;
  return CUDA_SUCCESS;
}

// What is imported is the exporter's: it costs this process nothing.
CUresult Driver::Import(CUmemGenericAllocationHandle* handle, int fd) {
  ShareableMemory shareable = {};
  if (handle == nullptr || pread(fd, &shareable, sizeof(shareable), 0) != sizeof(shareable) ||
      shareable.magic != kShareableMagic) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard lock(mutex_);
  auto physical =
      std::make_unique<Physical>(Physical{shareable.device, shareable.bytes, false, 1, 0});
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(physical.get());
  Physical* key = physical.get();
  physical_[key] = std::move(physical);
  return CUDA_SUCCESS;
}

CUresult Driver::Map(CUdeviceptr address, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle handle) {
  std::lock_guard lock(mutex_);
  auto* physical = reinterpret_cast<Physical*>(handle);
  if (physical_.count(physical) == 0 || physical->handles == 0 || bytes == 0 || offset != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto reserved = reservations_.upper_bound(address);
  if (reserved == reservations_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --reserved;
  if (address + bytes > reserved->first + reserved->second) return CUDA_ERROR_INVALID_VALUE;
  const auto after = mappings_.lower_bound(address);
  if (after != mappings_.end() && after->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  if (after != mappings_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second.bytes > address) return CUDA_ERROR_INVALID_VALUE;
  }
  if (bytes != physical->bytes) return CUDA_ERROR_NOT_SUPPORTED;
  ++physical->maps;
  mappings_[address] = {bytes, physical};
  return CUDA_SUCCESS;
}

CUresult Driver::Unmap(CUdeviceptr address, size_t bytes) {
  std::lock_guard lock(mutex_);
  const uint64_t end = address + bytes;
  // Whole mappings only; a range in which nothing is mapped is fine.
  auto first = mappings_.lower_bound(address);
  if (first != mappings_.begin()) {
    const auto before = std::prev(first);
    if (before->first + before->second.bytes > address) return CUDA_ERROR_INVALID_VALUE;
  }
  auto last = first;
  while (last != mappings_.end() && last->first < end) {
    if (last->first + last->second.bytes > end) return CUDA_ERROR_INVALID_VALUE;
    ++last;
  }
  std::vector<Physical*> released;
  for (auto it = first; it != last; ++it) released.push_back(it->second.physical);
  mappings_.erase(first, last);
  for (Physical* physical : released) {
    --physical->maps;
    DropPhysical(physical);
  }
  return CUDA_SUCCESS;
}

}  // namespace tidemark::sim
