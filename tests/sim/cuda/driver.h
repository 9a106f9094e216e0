// The state behind the simulated libcuda.so.1 of one process: contexts, and every kind of memory
// with the sizes, roundings, results and address reuse that were measured on a real driver
// (tests/sim/README.md). No memory of the device is really there: addresses are numbers outside
// anything the process maps, and bytes are counted in the shared state file.
//
// Thread-safe: one mutex guards all of it. Nothing here calls out while holding it, except for the
// page-level system calls of pinned and managed memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cupti_agent/abi/cuda_abi.h"
#include "tests/sim/cuda/ranges.h"
#include "tests/sim/device_state.h"
#include "tests/sim/tools_interface.h"

namespace tidemark::abi {

struct CUctx_st {
  int device = 0;
  uint32_t uid = 0;  // 0 while not active
  bool primary = false;
  uint32_t retains = 0;
  size_t stack_limit = 1024;
  uint64_t bytes = 0;  // what the context itself costs: its fixed part, stacks, modules
};

struct CUstream_st {
  CUcontext context;
  uint32_t id;
};

struct CUmod_st {
  CUcontext context;
};

struct CUarray_st {
  CUcontext context;
  uint64_t bytes;
  uint64_t address;  // of the backing memory
  CUmipmappedArray whole;
};

struct CUmipmappedArray_st {
  std::vector<CUarray> levels;
};

struct CUmemPoolHandle_st {
  CUmemPoolHandle_st(int device, uint64_t base, uint64_t window);

  int device;
  uint64_t window;
  sim::ChunkedRanges ranges;
  uint64_t release_threshold = 0;
  uint64_t used = 0;  // bytes as asked for
  uint64_t used_high = 0;
  uint64_t backed_high = 0;
  uint64_t live = 0;  // allocations
  bool destroyed = false;
  bool created_told = false;  // the record of its creation comes with the first allocation
};

struct CUgraphNode_st {
  CUgraph graph;
};

struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
  std::unordered_map<CUdeviceptr, uint64_t> allocations;  // without a free node
  uint64_t alloc_bytes = 0;
  int device = 0;
};

struct CUgraphExec_st {
  int device;
  uint64_t alloc_bytes;
  uint64_t unfreed_bytes;
  bool launched = false;
};

}  // namespace tidemark::abi

namespace tidemark::sim {

using namespace abi;  // NOLINT: the driver is written in the driver's words

// What a call asks CUPTI to record once the driver's lock is released.
struct Records {
  std::vector<MemoryEvent> memory;
  std::vector<PoolEvent> pool;
};

class Driver {
 public:
  static Driver& Get();

  CUresult Init();
  bool initialized() const { return initialized_.load(std::memory_order_acquire); }
  // A forked child keeps a copy of this object that must not be used: the driver says so.
  bool forked() const { return forked_.load(std::memory_order_relaxed); }

  static CUcontext Current();
  static uint32_t CurrentUid();
  CUresult SetCurrent(CUcontext context);
  CUresult Push(CUcontext context);
  CUresult Pop(CUcontext* context);
  CUresult PrimaryRetain(CUcontext* context, CUdevice device);
  CUresult PrimaryRelease(CUdevice device, Records* records);
  CUresult PrimaryReset(CUdevice device, Records* records);
  CUresult PrimaryState(CUdevice device, int* active);
  CUresult CreateContext(CUcontext* context, CUdevice device);
  CUresult DestroyContext(CUcontext context, Records* records);
  CUresult SetLimit(CUlimit limit, size_t value);
  CUresult GetLimit(size_t* value, CUlimit limit);
  CUresult Synchronize(Records* records);
  CUresult SynchronizeStream(CUstream stream, Records* records);

  CUresult StreamCreate(CUstream* stream);
  CUresult StreamDestroy(CUstream stream);
  CUresult ModuleLoad(CUmodule* module);
  CUresult ModuleUnload(CUmodule module);

  CUresult MemInfo(size_t* free_bytes, size_t* total_bytes);
  CUresult AddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address);
  CUresult MemAlloc(CUdeviceptr* address, size_t bytes, Records* records);
  CUresult MemAllocPitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                         unsigned element_bytes, Records* records);
  CUresult MemFree(CUdeviceptr address, Records* records);
  CUresult MemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags, Records* records);
  CUresult HostAlloc(void** address, size_t bytes, Records* records);
  CUresult HostFree(void* address, Records* records);
  CUresult HostRegister(void* address, size_t bytes, Records* records);
  CUresult HostUnregister(void* address, Records* records);

  CUresult DefaultPool(CUmemoryPool* pool, CUdevice device);
  CUresult CurrentPool(CUmemoryPool* pool, CUdevice device);
  CUresult SetPool(CUdevice device, CUmemoryPool pool);
  CUresult PoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties);
  CUresult PoolDestroy(CUmemoryPool pool, Records* records);
  CUresult PoolTrim(CUmemoryPool pool, size_t keep, Records* records);
  CUresult PoolGet(CUmemoryPool pool, CUmemPool_attribute attribute, void* value);
  CUresult PoolSet(CUmemoryPool pool, CUmemPool_attribute attribute, const void* value);
  // A null pool means the device's current one.
  CUresult AllocAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream,
                      Records* records);
  CUresult FreeAsync(CUdeviceptr address, CUstream stream, Records* records);

  CUresult Reserve(CUdeviceptr* address, size_t bytes);
  CUresult Unreserve(CUdeviceptr address, size_t bytes);
  CUresult Create(CUmemGenericAllocationHandle* handle, size_t bytes,
                  const CUmemAllocationProp* properties);
  CUresult Release(CUmemGenericAllocationHandle handle);
  CUresult Retain(CUmemGenericAllocationHandle* handle, void* address);
  CUresult Export(int* fd, CUmemGenericAllocationHandle handle);
  CUresult Import(CUmemGenericAllocationHandle* handle, int fd);
  CUresult Map(CUdeviceptr address, size_t bytes, size_t offset,
               CUmemGenericAllocationHandle handle);
  CUresult Unmap(CUdeviceptr address, size_t bytes);

  CUresult ArrayCreate(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR& descriptor, Records* records);
  CUresult ArrayDestroy(CUarray array, Records* records);
  CUresult MipmapCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                        unsigned levels, Records* records);
  CUresult MipmapDestroy(CUmipmappedArray array, Records* records);

  CUresult IpcGet(CUipcMemHandle* handle, CUdeviceptr address);
  CUresult IpcOpen(CUdeviceptr* address, const CUipcMemHandle& handle);
  CUresult IpcClose(CUdeviceptr address);

  CUresult GraphCreate(CUgraph* graph);
  CUresult GraphDestroy(CUgraph graph);
  CUresult GraphAddAlloc(CUgraphNode* node, CUgraph graph, CUDA_MEM_ALLOC_NODE_PARAMS* params);
  CUresult GraphAddFree(CUgraphNode* node, CUgraph graph, CUdeviceptr address);
  CUresult GraphInstantiate(CUgraphExec* exec, CUgraph graph);
  CUresult GraphLaunch(CUgraphExec exec, Records* records);
  CUresult GraphExecDestroy(CUgraphExec exec);
  CUresult GraphTrim(CUdevice device, Records* records);

 private:
  enum class BlockKind : uint8_t { kDevice, kManaged, kPool, kIpc };
  struct Block {
    BlockKind kind;
    uint64_t bytes;
    CUcontext context;
    CUmemoryPool pool;
    uint32_t opens;  // IPC
  };
  struct HostBlock {
    uint64_t bytes;
    CUcontext context;
    bool registered;
  };
  struct Physical {  // behind a cuMemCreate handle
    int device;      // -1: host memory
    uint64_t bytes;
    bool owned;
    uint32_t handles;
    uint32_t maps;
  };
  struct Mapping {
    uint64_t bytes;
    Physical* physical;
  };
  struct Device {
    explicit Device(int ordinal);
    CUctx_st primary;
    Ranges large;
    ChunkedRanges small;
    Ranges imported;
    std::unique_ptr<CUmemPoolHandle_st> default_pool;
    CUmemoryPool current_pool;
    uint64_t graph_bytes = 0;  // of the graph pool
    bool graph_pool_told = false;
    uint64_t graph_unfreed = 0;
  };

  Driver();
  void Inject();
  bool ValidDevice(int device) const { return device >= 0 && device < DeviceCount(); }
  bool ValidStream(CUstream stream) const;

  // All below: the mutex is held.
  Slot* slot();
  bool Charge(int device, uint64_t bytes);
  void Credit(int device, uint64_t bytes);
  Device& device(int ordinal);
  CUresult Usable(CUcontext context) const;
  CUresult Activate(CUcontext context);
  void Deactivate(CUcontext context, bool tell_all, Records* records);
  uint64_t TakeDevice(int device, uint64_t bytes);
  void GiveDevice(int device, uint64_t address, uint64_t bytes);
  std::optional<CUarray> NewArray(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, Records* records);
  void DropArray(CUarray array, Records* records);
  void DropPhysical(Physical* physical);
  void FreePoolBlock(CUdeviceptr address, const Block& block);
  uint64_t TrimPool(CUmemoryPool pool, uint64_t keep);  // bytes given back
  void SynchronizeDevice(int device, bool of_context, Records* records);
  void TellGraphPool(int device, Records* records);
  bool KnownPool(CUmemoryPool pool);

  std::atomic<bool> initialized_{false};
  std::atomic<bool> forked_{false};
  std::recursive_mutex init_mutex_;

  mutable std::mutex mutex_;
  StateFile* state_ = nullptr;
  Slot* slot_ = nullptr;
  Slot private_slot_ = {};  // when the state file cannot be had
  uint32_t next_uid_ = 1;
  uint32_t next_stream_id_ = 8;
  std::array<std::unique_ptr<Device>, kMaxDevices> devices_;
  std::unordered_set<CUcontext> contexts_;  // the non-primary ones
  std::unordered_set<CUstream> streams_;
  std::unordered_set<CUmodule> modules_;
  std::unordered_map<CUdeviceptr, Block> blocks_;
  std::map<uintptr_t, HostBlock> host_;
  std::unordered_set<CUarray> arrays_;
  std::unordered_set<CUmipmappedArray> mipmaps_;
  std::unordered_map<CUmemoryPool, std::unique_ptr<CUmemPoolHandle_st>> pools_;
  Ranges pool_windows_;
  Ranges reserved_space_;
  std::map<uint64_t, uint64_t> reservations_;
  std::unordered_map<Physical*, std::unique_ptr<Physical>> physical_;
  std::map<uint64_t, Mapping> mappings_;
  std::map<std::pair<int, uint64_t>, CUdeviceptr> ipc_open_;  // exporter and its address -> ours
  std::unordered_map<CUgraph, std::unique_ptr<CUgraph_st>> graphs_;
  std::unordered_map<CUgraphExec, std::unique_ptr<CUgraphExec_st>> graph_execs_;
};

// Appends what MEMORY2 says of one operation, when it is wanted.
void Tell(Records* records, CUpti_ActivityMemoryOperationType operation,
          CUpti_ActivityMemoryKind kind, uint64_t address, uint64_t bytes, CUcontext context);

}  // namespace tidemark::sim
