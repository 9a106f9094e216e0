#include "tests/sim/truth/script.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tidemark::truth {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kGranularity = 2 * kMiB;
constexpr uint64_t kRegistrableBytes = 64ULL << 30;  // addresses only
constexpr size_t kMostHeld = 2000;

// The script and the simulation must agree on what succeeds; if they do not, nothing below is true.
void Must(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "truth_alloc: %s failed with %d\n", call, result);
  abort();
}

void MustFail(CUresult result, CUresult expected, const char* call) {
  if (result == expected) return;
  fprintf(stderr, "truth_alloc: %s gave %d, not %d\n", call, result, expected);
  abort();
}

CUmemAllocationProp Properties(int device, bool on_host) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = on_host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = on_host ? 0 : device;
  return properties;
}

CUmemPoolProps PoolProperties(int device) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return properties;
}

}  // namespace

void Exchange::Put(const Allocation& allocation) {
  std::lock_guard lock(mutex_);
  waiting_.push_back(allocation);
}

bool Exchange::Take(Allocation* allocation) {
  std::lock_guard lock(mutex_);
  if (waiting_.empty()) return false;
  *allocation = waiting_.back();
  waiting_.pop_back();
  return true;
}

Script::Script(uint64_t seed, const CUcontext* contexts, Exchange* exchange,
               std::vector<Exported> exported)
    : state_(seed * 0x9e3779b97f4a7c15 + 1),
      contexts_(contexts),
      exchange_(exchange),
      exported_(std::move(exported)) {
  for (int device = 0; device < kDevices; ++device) {
    UseDevice(device);
    const CUmemPoolProps properties = PoolProperties(device);
    Must(cuMemPoolCreate(&pools_[device], &properties), "cuMemPoolCreate");
    book_.Called("cuMemPoolCreate", false);
    Must(cuStreamCreate(&streams_[device], 0), "cuStreamCreate");
    Must(cuGraphCreate(&graphs_[device], 0), "cuGraphCreate");
  }
  registrable_ = static_cast<char*>(mmap(nullptr, kRegistrableBytes, PROT_NONE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

Script::~Script() { munmap(registrable_, kRegistrableBytes); }

uint64_t Script::Random() {
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return state_;
}

// Mostly small, now and then large, never a round number.
uint64_t Script::Size(uint64_t most) {
  const uint64_t span = Below(8) == 0 ? most : most / 64;
  return 1 + Below(span);
}

void Script::UseDevice(int device) {
  device_ = device;
  Must(cuCtxSetCurrent(contexts_[device]), "cuCtxSetCurrent");
}

bool Script::Fits(Kind kind, int device, uint64_t bytes) const {
  return live_[static_cast<int>(kind)][device + 1] + static_cast<int64_t>(bytes) <=
         static_cast<int64_t>(kMostPerThread);
}

void Script::Hold(const Allocation& allocation) {
  book_.Allocated(allocation.kind, allocation.device, allocation.bytes);
  live_[static_cast<int>(allocation.kind)][allocation.device + 1] +=
      static_cast<int64_t>(allocation.bytes);
  held_.push_back(allocation);
}

void Script::Run(int64_t operations) {
  for (int64_t i = 0; i < operations; ++i) {
    if (i % 64 == 0) UseDevice(static_cast<int>(Below(kDevices)));
    Operation();
  }
}

void Script::Operation() {
  const uint64_t what = Below(1000);
  if (what < 2) return DoRareThing();
  if (what < 40) return FailSomething();
  const bool full = held_.size() >= kMostHeld;
  if (full || (what < 520 && !held_.empty())) return FreeSomething();
  AllocateSomething();
}

void Script::AllocateSomething() {
  switch (Below(20)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
      if (!AllocateDevice(Size(8 * kMiB))) FreeSomething();
      return;
    case 5:
      if (!AllocatePitch(1 + Below(5000), 1 + Below(200))) FreeSomething();
      return;
    case 6:
    case 7:
    case 8:
    case 9:
    case 10:
      if (!AllocateAsync(Size(4 * kMiB))) FreeSomething();
      return;
    case 11:
    case 12:
      if (!AllocateFromPool(Size(4 * kMiB))) FreeSomething();
      return;
    case 13:
      if (!AllocateManaged(Size(kMiB))) FreeSomething();
      return;
    case 14:
      if (!AllocatePinned(Size(kMiB))) FreeSomething();
      return;
    case 15:
      if (!Register(Size(kMiB))) FreeSomething();
      return;
    case 16:
      if (!CreateVmm((1 + Below(4)) * kGranularity, Below(8) == 0)) FreeSomething();
      return;
    case 17:
      if (!CreateArray(1 + Below(300), Below(300))) FreeSomething();
      return;
    case 18:
      if (Below(4) == 0 ? !CreateMipmap(1 + Below(256)) : !OpenExported()) FreeSomething();
      return;
    case 19:
      if (!AddGraphNode(Size(2 * kMiB))) FreeSomething();
      return;
  }
}

bool Script::AllocateDevice(uint64_t bytes) {
  if (!Fits(Kind::kDevice, device_, bytes)) return false;
  CUdeviceptr address = 0;
  Must(cuMemAlloc_v2(&address, bytes), "cuMemAlloc");
  book_.Called("cuMemAlloc", false, bytes);
  Hold({Kind::kDevice, device_, device_, address, bytes});
  return true;
}

bool Script::AllocatePitch(uint64_t width, uint64_t height) {
  if (!Fits(Kind::kDevice, device_, (width + 512) * height)) return false;
  CUdeviceptr address = 0;
  size_t pitch = 0;
  Must(cuMemAllocPitch_v2(&address, &pitch, width, height, 4), "cuMemAllocPitch");
  book_.Called("cuMemAllocPitch", false, width * height);
  Hold({Kind::kDevice, device_, device_, address, pitch * height});
  return true;
}

bool Script::AllocateManaged(uint64_t bytes) {
  if (!Fits(Kind::kManaged, device_, bytes)) return false;
  CUdeviceptr address = 0;
  Must(cuMemAllocManaged(&address, bytes, 1), "cuMemAllocManaged");
  book_.Called("cuMemAllocManaged", false, bytes);
  Hold({Kind::kManaged, device_, device_, address, bytes});
  return true;
}

bool Script::AllocatePinned(uint64_t bytes) {
  if (!Fits(Kind::kPinned, kHost, bytes)) return false;
  void* address = nullptr;
  if (Below(2) == 0) {
    Must(cuMemAllocHost_v2(&address, bytes), "cuMemAllocHost");
    book_.Called("cuMemAllocHost", false, bytes);
  } else {
    Must(cuMemHostAlloc(&address, bytes, 0), "cuMemHostAlloc");
    book_.Called("cuMemHostAlloc", false, bytes);
  }
  Hold({Kind::kPinned, kHost, device_, reinterpret_cast<uint64_t>(address), bytes});
  return true;
}

bool Script::Register(uint64_t bytes) {
  if (!Fits(Kind::kRegistered, kHost, bytes)) return false;
  // A range of this thread's own address space; freed ranges come back for other sizes only when
  // they are the same, which is often enough for addresses to repeat.
  const uint64_t rounded = (bytes + kPage - 1) / kPage * kPage;
  uint64_t address = 0;
  for (size_t i = registrable_free_.size(); i-- > 0;) {
    if (registrable_free_[i].second >= rounded) {
      address = registrable_free_[i].first;
      registrable_free_.erase(registrable_free_.begin() + static_cast<long>(i));
      break;
    }
  }
  if (address == 0) {
    if (registrable_used_ + rounded > kRegistrableBytes) return false;
    address = reinterpret_cast<uint64_t>(registrable_) + registrable_used_;
    registrable_used_ += rounded;
  }
  Must(cuMemHostRegister_v2(reinterpret_cast<void*>(address), bytes, 0), "cuMemHostRegister");
  book_.Called("cuMemHostRegister", false, bytes);
  Hold({Kind::kRegistered, kHost, device_, address, bytes, rounded});
  return true;
}

bool Script::AllocateAsync(uint64_t bytes) {
  if (!Fits(Kind::kPool, device_, bytes)) return false;
  CUdeviceptr address = 0;
  if (Below(2) == 0) {
    Must(cuMemAllocAsync(&address, bytes, streams_[device_]), "cuMemAllocAsync");
  } else {
    Must(cuMemAllocAsync_ptsz(&address, bytes, nullptr), "cuMemAllocAsync_ptsz");
  }
  book_.Called("cuMemAllocAsync", false, bytes);
  Hold({Kind::kPool, device_, device_, address, bytes, 0, false});
  return true;
}

bool Script::AllocateFromPool(uint64_t bytes) {
  // Now and then from the other device's pool: the pool, not the context, says where it lies.
  const int owner = Below(4) == 0 ? 1 - device_ : device_;
  if (!Fits(Kind::kPool, owner, bytes)) return false;
  CUdeviceptr address = 0;
  if (Below(2) == 0) {
    Must(cuMemAllocFromPoolAsync(&address, bytes, pools_[owner], nullptr), "FromPool");
  } else {
    Must(cuMemAllocFromPoolAsync_ptsz(&address, bytes, pools_[owner], nullptr), "FromPool_ptsz");
  }
  book_.Called("cuMemAllocFromPoolAsync", false, bytes);
  Hold({Kind::kPool, owner, device_, address, bytes, 0, false});
  return true;
}

bool Script::CreateVmm(uint64_t bytes, bool on_host) {
  const int device = on_host ? kHost : device_;
  if (!Fits(Kind::kVmm, device, bytes)) return false;
  const CUmemAllocationProp properties = Properties(device_, on_host);
  CUmemGenericAllocationHandle handle = 0;
  Must(cuMemCreate(&handle, bytes, &properties, 0), "cuMemCreate");
  book_.Called("cuMemCreate", false, bytes);
  CUdeviceptr at = 0;
  if (Below(4) != 0) {
    Must(cuMemAddressReserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve");
    Must(cuMemMap(at, bytes, 0, handle, 0), "cuMemMap");
    book_.Called("cuMemMap", false, bytes);
    if (Below(4) == 0) {  // one handle more, and released again: changes nothing
      CUmemGenericAllocationHandle again = 0;
      Must(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(at)), "cuMemRetain");
      Must(cuMemRelease(again), "cuMemRelease");
      book_.Called("cuMemRelease", false);
    }
  }
  Hold({Kind::kVmm, device, device_, handle, bytes, at, false});
  return true;
}

bool Script::CreateArray(uint64_t width, uint64_t height) {
  const uint64_t bytes = width * (height == 0 ? 1 : height) * 4 * 2;
  if (!Fits(Kind::kArray, device_, bytes)) return false;
  CUarray array = nullptr;
  if (Below(2) == 0) {
    const CUDA_ARRAY_DESCRIPTOR descriptor = {width, height, CU_AD_FORMAT_FLOAT, 2};
    Must(cuArrayCreate_v2(&array, &descriptor), "cuArrayCreate");
    book_.Called("cuArrayCreate", false, bytes);
  } else {
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = {width, height, 0, CU_AD_FORMAT_FLOAT, 2, 0};
    Must(cuArray3DCreate_v2(&array, &descriptor), "cuArray3DCreate");
    book_.Called("cuArray3DCreate", false, bytes);
  }
  Hold({Kind::kArray, device_, device_, reinterpret_cast<uint64_t>(array), bytes});
  return true;
}

bool Script::CreateMipmap(uint64_t width) {
  constexpr unsigned kLevels = 3;
  uint64_t bytes = 0;
  for (uint64_t w = width, level = 0; level<kLevels; ++level, w = w / 2> 1 ? w / 2 : 1) {
    bytes += w * w * 4;
  }
  if (!Fits(Kind::kArray, device_, bytes)) return false;
  const CUDA_ARRAY3D_DESCRIPTOR descriptor = {width, width, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CUmipmappedArray array = nullptr;
  Must(cuMipmappedArrayCreate(&array, &descriptor, kLevels), "cuMipmappedArrayCreate");
  book_.Called("cuMipmappedArrayCreate", false, bytes);
  // `second` tells it from a plain array.
  Hold({Kind::kArray, device_, device_, reinterpret_cast<uint64_t>(array), bytes, 1});
  return true;
}

bool Script::AddGraphNode(uint64_t bytes) {
  if (!Fits(Kind::kGraph, device_, bytes)) return false;
  if (graph_nodes_[device_] > 200 && graph_live_[device_] == 0) {
    Must(cuGraphDestroy(graphs_[device_]), "cuGraphDestroy");
    Must(cuGraphCreate(&graphs_[device_], 0), "cuGraphCreate");
    graph_nodes_[device_] = 0;
  }
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  params.poolProps = PoolProperties(device_);
  params.bytesize = bytes;
  CUgraphNode node = nullptr;
  Must(cuGraphAddMemAllocNode(&node, graphs_[device_], nullptr, 0, &params), "AddMemAllocNode");
  book_.Called("cuGraphAddMemAllocNode", false, bytes);
  ++graph_nodes_[device_];
  ++graph_live_[device_];
  Hold({Kind::kGraph, device_, device_, params.dptr, bytes, 0, false});
  return true;
}

// A second open of the same handle gives the same address and holds nothing more.
bool Script::OpenExported() {
  if (exported_.empty()) return false;
  const size_t index = Below(exported_.size());
  Exported& exported = exported_[index];
  if (exported.opens == 0 && !Fits(Kind::kIpc, device_, exported.bytes)) return false;
  if (exported.opens >= 2 || (exported.opens == 1 && exported.device != device_)) return false;
  CUdeviceptr address = 0;
  Must(cuIpcOpenMemHandle_v2(&address, exported.handle, 1), "cuIpcOpenMemHandle");
  book_.Called("cuIpcOpenMemHandle", false);
  if (exported.opens++ == 0) {
    exported.address = address;
    exported.device = device_;
    Hold({Kind::kIpc, device_, device_, address, exported.bytes, index});
  }
  return true;
}

void Script::FreeSomething() {
  Allocation allocation = {};
  if (Below(16) == 0 && exchange_->Take(&allocation)) return Free(allocation);
  if (held_.empty()) return;
  const size_t index = Below(held_.size());
  allocation = held_[index];
  held_[index] = held_.back();
  held_.pop_back();
  // Only what any thread can free goes to another: the rest needs this thread's own tables.
  const bool portable = allocation.kind == Kind::kDevice || allocation.kind == Kind::kPool ||
                        allocation.kind == Kind::kManaged || allocation.kind == Kind::kPinned;
  if (portable && Below(16) == 0) return exchange_->Put(allocation);
  Free(allocation);
}

void Script::Free(const Allocation& a) {
  live_[static_cast<int>(a.kind)][a.device + 1] -= static_cast<int64_t>(a.bytes);
  switch (a.kind) {
    case Kind::kDevice:
      if (Below(16) == 0) {
        Must(cuMemFreeAsync(a.address, nullptr), "cuMemFreeAsync of cuMemAlloc's");
        book_.Called("cuMemFreeAsync", false);
        break;
      }
      [[fallthrough]];
    case Kind::kManaged:
      Must(cuMemFree_v2(a.address), "cuMemFree");
      book_.Called("cuMemFree", false);
      break;
    case Kind::kPool: {
      const uint64_t how = Below(16);
      if (how == 0) {
        Must(cuMemFree_v2(a.address), "cuMemFree of a pool's");
        book_.Called("cuMemFree", false);
      } else {
        Must(how % 2 == 0 ? cuMemFreeAsync(a.address, nullptr)
                          : cuMemFreeAsync_ptsz(a.address, nullptr),
             "cuMemFreeAsync");
        book_.Called("cuMemFreeAsync", false);
      }
      break;
    }
    case Kind::kPinned:
      Must(cuMemFreeHost(reinterpret_cast<void*>(a.address)), "cuMemFreeHost");
      book_.Called("cuMemFreeHost", false);
      break;
    case Kind::kRegistered:
      Must(cuMemHostUnregister(reinterpret_cast<void*>(a.address)), "cuMemHostUnregister");
      book_.Called("cuMemHostUnregister", false);
      registrable_free_.emplace_back(a.address, a.second);
      break;
    case Kind::kVmm:
      FreeVmm(a);
      break;
    case Kind::kArray:
      if (a.second == 0) {
        Must(cuArrayDestroy(reinterpret_cast<CUarray>(a.address)), "cuArrayDestroy");
        book_.Called("cuArrayDestroy", false);
      } else {
        Must(cuMipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(a.address)), "cuMipmap");
        book_.Called("cuMipmappedArrayDestroy", false);
      }
      break;
    case Kind::kGraph: {
      CUgraphNode node = nullptr;
      Must(cuGraphAddMemFreeNode(&node, graphs_[a.device], nullptr, 0, a.address), "FreeNode");
      book_.Called("cuGraphAddMemFreeNode", false);
      ++graph_nodes_[a.device];
      --graph_live_[a.device];
      break;
    }
    case Kind::kIpc: {
      Exported& exported = exported_[a.second];
      for (; exported.opens > 0; --exported.opens) {
        Must(cuIpcCloseMemHandle(a.address), "cuIpcCloseMemHandle");
        book_.Called("cuIpcCloseMemHandle", false);
      }
      break;
    }
  }
  book_.Freed(a.kind, a.device, a.bytes);
}

// Handle first or mapping first: the memory goes with the later of the two.
void Script::FreeVmm(const Allocation& a) {
  const auto release = [&] {
    Must(cuMemRelease(a.address), "cuMemRelease");
    book_.Called("cuMemRelease", false);
  };
  if (a.second == 0) return release();
  const bool release_first = Below(2) == 0;
  if (release_first) release();
  Must(cuMemUnmap(a.second, a.bytes), "cuMemUnmap");
  book_.Called("cuMemUnmap", false);
  if (!release_first) release();
  Must(cuMemAddressFree(a.second, a.bytes), "cuMemAddressFree");
}

// Calls that the driver refuses, each with the error it really gives. No address here is one that
// another thread could own.
void Script::FailSomething() {
  CUdeviceptr address = 0;
  void* host = nullptr;
  constexpr uint64_t kTooMuch = 1ULL << 50;
  switch (Below(14)) {
    case 0:
      MustFail(cuMemAlloc_v2(&address, 0), CUDA_ERROR_INVALID_VALUE, "cuMemAlloc(0)");
      return book_.Called("cuMemAlloc", true, 0);
    case 1:
      MustFail(cuMemAlloc_v2(&address, kTooMuch), CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc");
      return book_.Called("cuMemAlloc", true, kTooMuch);
    case 2:
      MustFail(cuMemAllocAsync(&address, kTooMuch, nullptr), CUDA_ERROR_OUT_OF_MEMORY, "Async");
      return book_.Called("cuMemAllocAsync", true, kTooMuch);
    case 3:
      MustFail(cuMemHostAlloc(&host, kTooMuch, 0), CUDA_ERROR_OUT_OF_MEMORY, "cuMemHostAlloc");
      return book_.Called("cuMemHostAlloc", true, kTooMuch);
    case 4:
      MustFail(cuMemAllocManaged(&address, 0, 1), CUDA_ERROR_INVALID_VALUE, "Managed(0)");
      return book_.Called("cuMemAllocManaged", true, 0);
    case 5: {
      const CUmemAllocationProp properties = Properties(device_, false);
      CUmemGenericAllocationHandle handle = 0;
      MustFail(cuMemCreate(&handle, kGranularity + 1, &properties, 0), CUDA_ERROR_INVALID_VALUE,
               "cuMemCreate");
      return book_.Called("cuMemCreate", true, kGranularity + 1);
    }
    case 6: {
      const CUDA_ARRAY_DESCRIPTOR descriptor = {0, 4, CU_AD_FORMAT_FLOAT, 1};
      CUarray array = nullptr;
      MustFail(cuArrayCreate_v2(&array, &descriptor), CUDA_ERROR_INVALID_VALUE, "cuArrayCreate");
      return book_.Called("cuArrayCreate", true, 0);
    }
    case 7:
      MustFail(cuMemHostUnregister(&address), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "Unregister");
      return book_.Called("cuMemHostUnregister", true);
    case 8: {
      CUmemoryPool pool = nullptr;
      Must(cuDeviceGetDefaultMemPool(&pool, device_), "cuDeviceGetDefaultMemPool");
      MustFail(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE, "cuMemPoolDestroy");
      return book_.Called("cuMemPoolDestroy", true);
    }
    case 9: {
      const CUipcMemHandle nonsense = {};
      MustFail(cuIpcOpenMemHandle_v2(&address, nonsense, 1), CUDA_ERROR_INVALID_VALUE, "IpcOpen");
      return book_.Called("cuIpcOpenMemHandle", true);
    }
    case 10:
      Must(cuMemFree_v2(0), "cuMemFree(0)");
      return book_.Called("cuMemFree", false);
    case 11:  // succeeds, and allocates nothing
      Must(cuMemAllocAsync(&address, 0, nullptr), "cuMemAllocAsync(0)");
      return book_.Called("cuMemAllocAsync", false, 0);
    default:
      break;
  }
  // Frees of an address inside a block, and a registration that overlaps, need a block of our own.
  if (held_.empty()) return;
  const Allocation& a = held_[Below(held_.size())];
  switch (a.kind) {
    case Kind::kDevice:
    case Kind::kManaged:
      if (a.bytes < 2) return;
      MustFail(cuMemFree_v2(a.address + 1), CUDA_ERROR_INVALID_VALUE, "cuMemFree inside");
      return book_.Called("cuMemFree", true);
    case Kind::kPool:
      if (a.bytes < 2) return;
      MustFail(cuMemFreeAsync(a.address + 1, nullptr), CUDA_ERROR_INVALID_VALUE, "Free inside");
      return book_.Called("cuMemFreeAsync", true);
    case Kind::kPinned:
      if (a.bytes < 2) return;
      MustFail(cuMemFreeHost(reinterpret_cast<void*>(a.address + 1)), CUDA_ERROR_INVALID_VALUE,
               "cuMemFreeHost inside");
      return book_.Called("cuMemFreeHost", true);
    case Kind::kRegistered:
      MustFail(cuMemHostRegister_v2(reinterpret_cast<void*>(a.address), a.bytes, 0),
               CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "cuMemHostRegister again");
      return book_.Called("cuMemHostRegister", true, a.bytes);
    case Kind::kVmm:
      if (a.second == 0 || a.bytes == kGranularity) return;
      MustFail(cuMemUnmap(a.second, kGranularity), CUDA_ERROR_INVALID_VALUE,
               "cuMemUnmap of a part");
      return book_.Called("cuMemUnmap", true);
    case Kind::kIpc:
      MustFail(cuMemFree_v2(a.address), CUDA_ERROR_INVALID_VALUE, "cuMemFree of an import");
      return book_.Called("cuMemFree", true);
    case Kind::kArray:
    case Kind::kGraph:
      return;
  }
}

void Script::DoRareThing() {
  switch (Below(7)) {
    case 0:
      return SideContext();
    case 1:
      return DestroyPoolWithLiveBlock();
    case 2:
      Must(cuMemPoolTrimTo(pools_[device_], 0), "cuMemPoolTrimTo");
      return book_.Called("cuMemPoolTrimTo", false);
    case 3: {
      CUgraphExec exec = nullptr;
      Must(cuGraphInstantiateWithFlags(&exec, graphs_[device_], 0), "cuGraphInstantiate");
      Must(cuGraphLaunch(exec, nullptr), "cuGraphLaunch");
      Must(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
      Must(cuDeviceGraphMemTrim(device_), "cuDeviceGraphMemTrim");
      return book_.Called("cuDeviceGraphMemTrim", false);
    }
    case 4: {
      CUcontext context = nullptr;
      Must(cuDevicePrimaryCtxRetain(&context, device_), "cuDevicePrimaryCtxRetain");
      Must(cuDevicePrimaryCtxRelease_v2(device_), "cuDevicePrimaryCtxRelease");
      return book_.Called("cuDevicePrimaryCtxRelease", false);
    }
    case 5:
      Must(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048), "cuCtxSetLimit");
      return book_.Called("cuCtxSetLimit", false);
    case 6:
      Must(cuCtxSynchronize(), "cuCtxSynchronize");
      return;
  }
}

// A context of our own with a block of each kind that goes down with it.
void Script::SideContext() {
  const uint64_t device_bytes = Size(2 * kMiB);
  const uint64_t pinned_bytes = Size(256 * kKiB);
  if (!Fits(Kind::kDevice, device_, device_bytes) || !Fits(Kind::kPinned, kHost, pinned_bytes) ||
      !Fits(Kind::kManaged, device_, pinned_bytes) || !Fits(Kind::kArray, device_, 64)) {
    return;
  }
  CUcontext context = nullptr;
  Must(cuCtxCreate_v2(&context, 0, device_), "cuCtxCreate");
  CUdeviceptr address = 0;
  Must(cuMemAlloc_v2(&address, device_bytes), "cuMemAlloc");
  book_.Called("cuMemAlloc", false, device_bytes);
  book_.Allocated(Kind::kDevice, device_, device_bytes);
  Must(cuMemAllocManaged(&address, pinned_bytes, 1), "cuMemAllocManaged");
  book_.Called("cuMemAllocManaged", false, pinned_bytes);
  book_.Allocated(Kind::kManaged, device_, pinned_bytes);
  void* host = nullptr;
  Must(cuMemHostAlloc(&host, pinned_bytes, 0), "cuMemHostAlloc");
  book_.Called("cuMemHostAlloc", false, pinned_bytes);
  book_.Allocated(Kind::kPinned, kHost, pinned_bytes);
  const CUDA_ARRAY_DESCRIPTOR descriptor = {16, 0, CU_AD_FORMAT_FLOAT, 1};
  CUarray array = nullptr;
  Must(cuArrayCreate_v2(&array, &descriptor), "cuArrayCreate");
  book_.Called("cuArrayCreate", false, 64);
  book_.Allocated(Kind::kArray, device_, 64);
  Must(cuCtxDestroy_v2(context), "cuCtxDestroy");
  book_.Called("cuCtxDestroy", false);
  book_.FreedImplicitly(Kind::kDevice, device_, device_bytes);
  book_.FreedImplicitly(Kind::kManaged, device_, pinned_bytes);
  book_.FreedImplicitly(Kind::kPinned, kHost, pinned_bytes);
  book_.FreedImplicitly(Kind::kArray, device_, 64);
}

// A pool's end frees nothing of what is still allocated from it.
void Script::DestroyPoolWithLiveBlock() {
  const uint64_t bytes = Size(2 * kMiB);
  if (!Fits(Kind::kPool, device_, bytes)) return;
  const CUmemPoolProps properties = PoolProperties(device_);
  CUmemoryPool pool = nullptr;
  Must(cuMemPoolCreate(&pool, &properties), "cuMemPoolCreate");
  book_.Called("cuMemPoolCreate", false);
  CUdeviceptr address = 0;
  Must(cuMemAllocFromPoolAsync(&address, bytes, pool, nullptr), "cuMemAllocFromPoolAsync");
  book_.Called("cuMemAllocFromPoolAsync", false, bytes);
  Hold({Kind::kPool, device_, device_, address, bytes, 0, false});
  Must(cuMemPoolDestroy(pool), "cuMemPoolDestroy");
  book_.Called("cuMemPoolDestroy", false);
}

void Script::RaiseToPeak(int threads) {
  const uint64_t above = (static_cast<uint64_t>(threads) + 1) * kMostPerThread;
  int64_t saved[kKinds][kDevices + 1];
  memcpy(saved, live_, sizeof(live_));
  memset(live_, 0x80, sizeof(live_));  // the limit does not hold here
  const size_t before = held_.size();
  for (int device = 0; device < kDevices; ++device) {
    UseDevice(device);
    AllocateDevice(above);
    AllocateManaged(above);
    AllocateAsync(above);
    CreateVmm(above, false);
    CreateArray(above / 8, 1);
    AddGraphNode(above);
  }
  CreateVmm(above, true);
  AllocatePinned(above);
  Register(above);
  peak_.assign(held_.begin() + static_cast<long>(before), held_.end());
  held_.resize(before);
  memcpy(live_, saved, sizeof(live_));
}

void Script::DropPeak() {
  int64_t saved[kKinds][kDevices + 1];
  memcpy(saved, live_, sizeof(live_));
  for (const Allocation& allocation : peak_) {
    UseDevice(allocation.context_device);
    Free(allocation);
  }
  peak_.clear();
  memcpy(live_, saved, sizeof(live_));
}

void Script::BookReset() {
  for (const Allocation& allocation : held_) {
    if (allocation.in_context) {
      book_.FreedImplicitly(allocation.kind, allocation.device, allocation.bytes);
    }
  }
}

}  // namespace tidemark::truth
