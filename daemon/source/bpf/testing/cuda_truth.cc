// Every memory call of the simulated driver in random order on two devices, by threads that know
// what must be live. Speaks like truth_program.cc; a line names "CLASS@DEVICE".
//
// First line: the random calls. Second line: reset of device 0's context. Third: release of
// device 1's.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/sim/cuda_api.h"

namespace {

constexpr size_t kTooMuch = size_t{1} << 50;
constexpr size_t kVmmGranule = 2 << 20;

struct Truth {
  uint64_t live_bytes = 0, live_count = 0, allocated_bytes = 0, allocated_count = 0;
};
using Truths = std::map<std::string, Truth>;

struct Block {
  enum Kind { kDevice, kHost, kRegistered, kAsync, kVmm, kArray, kMipmapped, kGraph } kind;
  std::string name;
  uint64_t address = 0;  // or handle
  uint64_t bytes = 0;
  uint64_t mapped = 0;    // VMM: address space it is mapped to, 0 if not
  bool released = false;  // VMM: the handle is gone, the mapping holds the memory
};

uint64_t ElementBytes(CUarray_format format, unsigned channels) {
  return ArrayChannelBytes(format) * channels;
}

class Worker {
 public:
  Worker(int number, int device) : random_(number), number_(number), device_(device) {
    at_ = "@" + std::to_string(device);
  }

  void Run(int calls) {
    CUcontext context;
    cuDevicePrimaryCtxRetain(&context, device_);
    cuCtxSetCurrent(context);
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
    cuMemPoolCreate(&pool_, &properties);
    cuGraphCreate(&graph_, 0);
    for (int i = 0; i < calls; ++i) {
      if (blocks_.size() < 100 && random_() % 5 < 3) {
        Allocate();
      } else if (!blocks_.empty()) {
        Free(random_() % blocks_.size());
      }
      if (i % 7 == 0) Fail();
    }
    cuMemPoolDestroy(pool_);  // what is live in it stays
  }

  const Truths& truths() const { return truths_; }
  Truths truths_;

 private:
  void Booked(Block::Kind kind, const std::string& name, uint64_t address, uint64_t bytes) {
    Truth& truth = truths_[name];
    truth.live_bytes += bytes;
    truth.live_count += 1;
    truth.allocated_bytes += bytes;
    truth.allocated_count += 1;
    blocks_.push_back({kind, name, address, bytes});
  }

  void Allocate() {
    const size_t bytes = 1 + random_() % 100'000;
    CUdeviceptr address = 0;
    void* host = nullptr;
    switch (random_() % 14) {
      case 0:
        if (cuMemAlloc_v2(&address, bytes) == 0) {
          Booked(Block::kDevice, "device" + at_, address, bytes);
        }
        break;
      case 1: {
        size_t pitch = 0;
        if (cuMemAllocPitch_v2(&address, &pitch, 1 + bytes % 1000, 1 + bytes % 50, 4) == 0) {
          Booked(Block::kDevice, "device" + at_, address, pitch * (1 + bytes % 50));
        }
        break;
      }
      case 2:
        if (cuMemAllocManaged(&address, bytes, 1) == 0) {
          Booked(Block::kDevice, "managed" + at_, address, bytes);
        }
        break;
      case 3:
        if (cuMemAllocHost_v2(&host, bytes) == 0) {
          Booked(Block::kHost, "pinned@-1", reinterpret_cast<uint64_t>(host), bytes);
        }
        break;
      case 4:
        if (cuMemHostAlloc(&host, bytes, 0) == 0) {
          Booked(Block::kHost, "pinned@-1", reinterpret_cast<uint64_t>(host), bytes);
        }
        break;
      case 5:
        host = reinterpret_cast<void*>(0x100000000000 * (number_ + 1) + (next_ += 0x100000));
        if (cuMemHostRegister_v2(host, bytes, 0) == 0) {
          Booked(Block::kRegistered, "registered@-1", reinterpret_cast<uint64_t>(host), bytes);
        }
        break;
      case 6:
        if (cuMemAllocAsync(&address, bytes, nullptr) == 0) {
          Booked(Block::kAsync, "pool" + at_, address, bytes);
        }
        break;
      case 7:
        if (cuMemAllocAsync_ptsz(&address, bytes, nullptr) == 0) {
          Booked(Block::kAsync, "pool" + at_, address, bytes);
        }
        break;
      case 8:
        if (cuMemAllocFromPoolAsync(&address, bytes, pool_, nullptr) == 0) {
          Booked(Block::kAsync, "pool" + at_, address, bytes);
        }
        break;
      case 9:
        AllocateVmm();
        break;
      case 10: {
        CUDA_ARRAY_DESCRIPTOR d = {1 + bytes % 300, bytes % 20, CU_AD_FORMAT_HALF, 4};
        CUarray array;
        if (cuArrayCreate_v2(&array, &d) == 0) {
          Booked(Block::kArray, "array" + at_, reinterpret_cast<uint64_t>(array),
                 d.Width * std::max<size_t>(d.Height, 1) * ElementBytes(d.Format, d.NumChannels));
        }
        break;
      }
      case 11: {
        CUDA_ARRAY3D_DESCRIPTOR d = {1 + bytes % 300, bytes % 20, 0, CU_AD_FORMAT_FLOAT, 2, 0};
        if (d.Height != 0) d.Depth = bytes % 5;
        CUarray array;
        if (cuArray3DCreate_v2(&array, &d) == 0) {
          Booked(Block::kArray, "array" + at_, reinterpret_cast<uint64_t>(array),
                 d.Width * std::max<size_t>(d.Height, 1) * std::max<size_t>(d.Depth, 1) *
                     ElementBytes(d.Format, d.NumChannels));
        }
        break;
      }
      case 12: {
        CUDA_ARRAY3D_DESCRIPTOR d = {64, 32, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
        CUmipmappedArray array;
        if (cuMipmappedArrayCreate(&array, &d, 3) == 0) {
          Booked(Block::kMipmapped, "array" + at_, reinterpret_cast<uint64_t>(array),
                 (64 * 32 + 32 * 16 + 16 * 8) * 4);
        }
        break;
      }
      case 13: {
        CUDA_MEM_ALLOC_NODE_PARAMS params = {};
        params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
        params.bytesize = bytes;
        CUgraphNode node;
        if (cuGraphAddMemAllocNode(&node, graph_, nullptr, 0, &params) == 0) {
          Booked(Block::kGraph, "graph" + at_, params.dptr, bytes);
        }
        break;
      }
    }
  }

  void AllocateVmm() {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
    CUmemGenericAllocationHandle handle;
    if (cuMemCreate(&handle, kVmmGranule, &properties, 0) != 0) return;
    Booked(Block::kVmm, "vmm" + at_, handle, kVmmGranule);
    Block& block = blocks_.back();
    if (random_() % 2) return;
    CUdeviceptr address;
    cuMemAddressReserve(&address, kVmmGranule, 0, 0, 0);
    cuMemMap(address, kVmmGranule, 0, handle, 0);
    block.mapped = address;
    if (random_() % 2) return;
    cuMemRelease(handle);
    block.released = true;
  }

  void Free(size_t index) {
    const Block block = blocks_[index];
    blocks_[index] = blocks_.back();
    blocks_.pop_back();
    CUresult result = CUDA_SUCCESS;
    CUgraphNode node;
    auto* pointer = reinterpret_cast<void*>(block.address);
    switch (block.kind) {
      case Block::kDevice:
        result = cuMemFree_v2(block.address);
        break;
      case Block::kHost:
        result = cuMemFreeHost(pointer);
        break;
      case Block::kRegistered:
        result = cuMemHostUnregister(pointer);
        break;
      case Block::kAsync:
        result = random_() % 2 ? cuMemFreeAsync(block.address, nullptr)
                               : cuMemFreeAsync_ptsz(block.address, nullptr);
        break;
      case Block::kVmm:
        if (block.mapped) {
          cuMemUnmap(block.mapped + 4096, 4096);  // cuts the mapping: must fail
          result = cuMemUnmap(block.mapped, kVmmGranule);
          cuMemAddressFree(block.mapped, kVmmGranule);
        }
        if (!block.released) result = cuMemRelease(block.address);
        break;
      case Block::kArray:
        result = cuArrayDestroy(static_cast<CUarray>(pointer));
        break;
      case Block::kMipmapped:
        result = cuMipmappedArrayDestroy(static_cast<CUmipmappedArray>(pointer));
        break;
      case Block::kGraph:
        result = cuGraphAddMemFreeNode(&node, graph_, nullptr, 0, block.address);
        break;
    }
    if (result != CUDA_SUCCESS) {
      printf("a free failed that must not: %s %d\n", block.name.c_str(), result);
      return;
    }
    truths_[block.name].live_bytes -= block.bytes;
    truths_[block.name].live_count -= 1;
  }

  // Calls that must fail and change nothing.
  void Fail() {
    CUdeviceptr address;
    void* host;
    CUmemGenericAllocationHandle handle;
    switch (random_() % 6) {
      case 0:
        cuMemAlloc_v2(&address, kTooMuch);
        break;
      case 1:
        cuMemHostAlloc(&host, 0, 0);
        break;
      case 2:
        cuMemFree_v2(0x12340000);
        break;
      case 3:
        cuMemFreeAsync(0x12340000, nullptr);
        break;
      case 4:
        cuMemCreate(&handle, 12345, nullptr, 0);
        break;
      case 5:
        cuMemRelease(0x77);
        break;
    }
  }

  std::mt19937 random_;
  int number_;
  int device_;
  std::string at_;
  uint64_t next_ = 0;
  CUmemoryPool pool_ = nullptr;
  CUgraph graph_ = nullptr;
  std::vector<Block> blocks_;
};

void Print(const Truths& truths) {
  for (const auto& [name, truth] : truths) {
    printf("%s %lu %lu %lu %lu 0\n", name.c_str(), truth.live_bytes, truth.live_count,
           truth.allocated_bytes, truth.allocated_count);
  }
  printf("done\n");
  fflush(stdout);
}

// A context takes what was allocated in it; the workers of `device` hold all of that.
void ContextGone(std::vector<Worker>* workers, int device) {
  for (size_t i = 0; i < workers->size(); ++i) {
    if (static_cast<int>(i % 2) != device) continue;
    for (auto& [name, truth] : (*workers)[i].truths_) {
      const bool stays =
          name.starts_with("pool") || name.starts_with("vmm") || name.starts_with("graph");
      if (!stays) truth.live_bytes = truth.live_count = 0;
    }
  }
}

Truths Sum(const std::vector<Worker>& workers) {
  Truths all;
  for (const Worker& worker : workers) {
    for (const auto& [name, truth] : worker.truths()) {
      Truth& sum = all[name];
      sum.live_bytes += truth.live_bytes;
      sum.live_count += truth.live_count;
      sum.allocated_bytes += truth.allocated_bytes;
      sum.allocated_count += truth.allocated_count;
    }
  }
  return all;
}

}  // namespace

int main() {
  char line[256];
  printf("ready\n");
  fflush(stdout);
  if (!fgets(line, sizeof(line), stdin)) return 0;
  cuInit(0);
  std::vector<Worker> workers;
  for (int i = 0; i < 4; ++i) workers.emplace_back(i, i % 2);
  std::vector<std::thread> threads;
  for (Worker& worker : workers) threads.emplace_back([&worker] { worker.Run(10'000); });
  for (std::thread& thread : threads) thread.join();
  Print(Sum(workers));

  if (!fgets(line, sizeof(line), stdin)) return 0;
  cuDevicePrimaryCtxReset_v2(0);
  ContextGone(&workers, 0);
  Print(Sum(workers));

  if (!fgets(line, sizeof(line), stdin)) return 0;
  cuDevicePrimaryCtxRelease_v2(1);  // retained twice
  cuDevicePrimaryCtxRelease_v2(1);
  ContextGone(&workers, 1);
  Print(Sum(workers));
  fgets(line, sizeof(line), stdin);
  return 0;
}
