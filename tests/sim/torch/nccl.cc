// libnccl.so.2 as far as memory goes: a communicator takes its buffers by cuMemCreate, outside
// every allocator, one block a channel.
#include <cstddef>
#include <vector>

#include "tests/sim/torch/cudart.h"

using namespace tidemark::abi;  // NOLINT

namespace {

struct Buffer {
  CUdeviceptr address;
  size_t bytes;
  CUmemGenericAllocationHandle handle;
};

template <typename F>
F* Driver(const char* name) {
  return reinterpret_cast<F*>(cudaSimDriverEntryPoint(name));
}

// NCCL's own name for it; out of line so that stacks show it.
__attribute__((noinline)) bool ncclCuMemAlloc(size_t bytes, int device, Buffer* buffer) {
  static auto* const reserve =
      Driver<CUresult(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long)>(
          "cuMemAddressReserve");
  static auto* const create =
      Driver<CUresult(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                      unsigned long long)>("cuMemCreate");
  static auto* const map = Driver<CUresult(
      CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)>("cuMemMap");
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  buffer->bytes = bytes;
  return create(&buffer->handle, bytes, &properties, 0) == CUDA_SUCCESS &&
         reserve(&buffer->address, bytes, 0, 0, 0) == CUDA_SUCCESS &&
         map(buffer->address, bytes, 0, buffer->handle, 0) == CUDA_SUCCESS;
}

__attribute__((noinline)) void ncclCuMemFree(const Buffer& buffer) {
  static auto* const unmap = Driver<CUresult(CUdeviceptr, size_t)>("cuMemUnmap");
  static auto* const release = Driver<CUresult(CUmemGenericAllocationHandle)>("cuMemRelease");
  static auto* const unreserve = Driver<CUresult(CUdeviceptr, size_t)>("cuMemAddressFree");
  unmap(buffer.address, buffer.bytes);
  release(buffer.handle);
  unreserve(buffer.address, buffer.bytes);
}

}  // namespace

struct ncclComm {
  std::vector<Buffer> buffers;
};

extern "C" {

// A communicator of `channels` channels with `bytes` each; null on failure.
ncclComm* ncclSimCommInit(int device, int channels, size_t bytes) {
  auto* comm = new ncclComm;
  for (int i = 0; i < channels; ++i) {
    Buffer buffer = {};
    if (!ncclCuMemAlloc(bytes, device, &buffer)) return nullptr;
    comm->buffers.push_back(buffer);
  }
  return comm;
}

void ncclSimCommDestroy(ncclComm* comm) {
  for (const Buffer& buffer : comm->buffers) ncclCuMemFree(buffer);
  delete comm;
}
}
