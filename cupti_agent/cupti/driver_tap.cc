#include "cupti_agent/cupti/driver_tap.h"

#include <algorithm>

#include "cupti_agent/abi/cuda_abi.h"
#include "cupti_agent/ledger/monotonic.h"
#include "cupti_agent/stack/stack.h"

namespace tidemark::agent {

using wire::EntryPoint;
using wire::EventType;
using wire::Kind;

namespace {

constexpr uint64_t kCommunicatorEveryNs = 500'000'000;  // it sets up with hundreds of calls

constexpr abi::CUpti_CallbackId kCbids[] = {
#define TIDEMARK_CBID_VALUE(name, value) value,
    TIDEMARK_MEMORY_CBIDS(TIDEMARK_CBID_VALUE)
#undef TIDEMARK_CBID_VALUE
};

uint64_t ArrayBytes(size_t width, size_t height, size_t depth, abi::CUarray_format format,
                    unsigned channels) {
  return width * std::max<size_t>(height, 1) * std::max<size_t>(depth, 1) * channels *
         abi::ArrayChannelBytes(format);
}

uint64_t ArrayBytes(const abi::CUDA_ARRAY3D_DESCRIPTOR* d) {
  return d == nullptr ? 0 : ArrayBytes(d->Width, d->Height, d->Depth, d->Format, d->NumChannels);
}

uint64_t MipmapBytes(const abi::CUDA_ARRAY3D_DESCRIPTOR* d, unsigned levels) {
  if (d == nullptr) return 0;
  abi::CUDA_ARRAY3D_DESCRIPTOR level = *d;
  uint64_t bytes = 0;
  // Beyond 64 halvings every level has one element; a call with more levels fails.
  for (unsigned i = 0; i < std::min(levels, 64u); ++i) {
    bytes += ArrayBytes(&level);
    level.Width = std::max<size_t>(level.Width / 2, 1);
    level.Height = level.Height == 0 ? 0 : std::max<size_t>(level.Height / 2, 1);
    level.Depth = level.Depth == 0 ? 0 : std::max<size_t>(level.Depth / 2, 1);
  }
  return bytes;
}

int16_t DeviceOf(const abi::CUmemLocation& location) {
  return location.type == abi::CU_MEM_LOCATION_TYPE_DEVICE ? static_cast<int16_t>(location.id)
                                                           : int16_t{-1};
}

template <typename T>
uint64_t Number(T* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

template <typename T>
T ReadOr(const T* pointer, T otherwise) {
  return pointer == nullptr ? otherwise : *pointer;
}

}  // namespace

std::span<const abi::CUpti_CallbackId> DriverTapCbids() { return kCbids; }

struct DriverTap::Call {
  Ledger* ledger;
  abi::CUpti_CallbackId cbid;
  const abi::CUpti_CallbackData& data;

  template <typename Params>
  const Params& params() const {
    return *static_cast<const Params*>(data.functionParams);
  }
  abi::CUresult result() const {
    return data.functionReturnValue == nullptr
               ? abi::CUDA_ERROR_UNKNOWN
               : *static_cast<const abi::CUresult*>(data.functionReturnValue);
  }
  bool succeeded() const { return result() == abi::CUDA_SUCCESS; }
};

bool DriverTap::Init(const CuptiLibrary* cupti, const CudaDriver* driver) {
  cupti_ = cupti;
  driver_ = driver;
  return physical_.Init();
}

void DriverTap::OnCallback(Ledger* ledger, abi::CUpti_CallbackId cbid,
                           const abi::CUpti_CallbackData& data) {
  Call call{ledger, cbid, data};
  if (data.callbackSite == abi::CUPTI_API_ENTER) {
    if (data.correlationData != nullptr) *data.correlationData = 0;
    Enter(call);
  } else {
    Exit(call);
  }
}

// The device is asked once per context.
ContextInfo DriverTap::ContextOf(const abi::CUpti_CallbackData& data) {
  ContextInfo info;
  if (data.context == nullptr || contexts_.Find(data.context, &info)) return info;
  uint32_t device = 0;
  if (cupti_->GetDeviceId(data.context, &device) == abi::CUPTI_SUCCESS) {
    return contexts_.Add(data.context, static_cast<int16_t>(device));
  }
  abi::CUdevice current = -1;
  if (driver_->CtxGetDevice == nullptr || driver_->CtxGetDevice(&current) != abi::CUDA_SUCCESS) {
    return info;
  }
  return contexts_.Add(data.context, static_cast<int16_t>(current));
}

void DriverTap::EnterFree(Call& call, EntryPoint entry_point, Space space, uint64_t address) {
  call.ledger->CountCall(entry_point, 0);
  if (address == 0) return;
  const uint64_t number = pending_.Begin(call.cbid);
  PendingFree unremembered;
  PendingCall* slot = pending_.Find(number, call.cbid);
  call.ledger->DriverFreeBegan(space, address, slot != nullptr ? &slot->free : &unremembered);
  if (call.data.correlationData != nullptr) *call.data.correlationData = number;
}

void DriverTap::ExitFree(Call& call, EntryPoint entry_point, Kind kind, uint64_t address) {
  if (!call.succeeded()) call.ledger->CountFailedCall(entry_point);
  const uint64_t number = ReadOr(call.data.correlationData, uint64_t{0});
  PendingCall* slot = pending_.Find(number, call.cbid);
  if (slot == nullptr || address == 0) return;
  if (slot->free.found) {
    if (!call.succeeded()) call.ledger->DriverFreeFailed(slot->free);
  } else if (call.succeeded()) {
    const bool host = kind == Kind::kPinned || kind == Kind::kRegistered;
    call.ledger->DriverFreeUnknown(kind, host ? int16_t{-1} : ContextOf(call.data).device);
  }
  pending_.End(number);
}

void DriverTap::ExitAllocation(Call& call, EntryPoint entry_point,
                               const DriverAllocation& allocation, uint64_t requested_bytes) {
  call.ledger->CountCall(entry_point, requested_bytes);
  if (call.succeeded()) {
    if (allocation.address == 0) return;  // zero bytes asked: success that allocates nothing
    // Stream-ordered calls are as frequent as the framework's own blocks: sampled alike.
    const uint64_t estimate =
        allocation.kind == Kind::kPool ? call.ledger->Sample(allocation.bytes) : allocation.bytes;
    if (estimate == 0) return call.ledger->DriverAllocated(allocation, 0, nullptr);
    Stack stack;
    if (allocation.kind != Kind::kPool || !CapturePython(&stack)) CaptureNative(&stack);
    NoteCommunicator(call.ledger, stack, allocation.device, allocation.bytes);
    const StackView view = stack.View();
    return call.ledger->DriverAllocated(allocation, estimate, &view);
  }
  call.ledger->CountFailedCall(entry_point);
  call.ledger->DriverCallFailed(allocation.kind, allocation.device);
  call.ledger->RecordEvent({.type = EventType::kAllocationFailed,
                            .entry_point = static_cast<uint16_t>(entry_point),
                            .code = call.result(),
                            .device = allocation.device,
                            .bytes = requested_bytes});
}

// What NCCL makes the driver take beside its buffers (modules, stacks, proxies) is known by no
// call; that it was setting up a communicator then is what gives those bytes a name.
void DriverTap::NoteCommunicator(Ledger* ledger, const Stack& stack, int16_t device,
                                 uint64_t bytes) {
  const char* library = CommunicatorIn(stack);
  if (library == nullptr) return;
  const uint64_t now = MonotonicNs();
  uint64_t last = communicator_noted_ns_.load(std::memory_order_relaxed);
  if (last != 0 && now - last < kCommunicatorEveryNs) return;
  if (!communicator_noted_ns_.compare_exchange_strong(last, now)) return;
  ledger->RecordEvent(
      {.type = EventType::kCommunicator, .device = device, .bytes = bytes, .text = library});
}

void DriverTap::ExitCreate(Call& call) {
  const auto& p = call.params<abi::cuMemCreate_params>();
  const int16_t device = p.prop == nullptr ? int16_t{-1} : DeviceOf(p.prop->location);
  if (!call.succeeded()) {
    return ExitAllocation(call, EntryPoint::kMemCreate, {.kind = Kind::kVmm, .device = device},
                          p.size);
  }
  call.ledger->CountCall(EntryPoint::kMemCreate, p.size);
  Stack stack;
  CaptureNative(&stack);
  NoteCommunicator(call.ledger, stack, device, p.size);
  const StackView view = stack.View();
  physical_.Created(call.ledger, *p.handle, p.size, device, &view);
}

void DriverTap::ExitArray(Call& call, EntryPoint entry_point, uint64_t handle, uint64_t bytes) {
  const ContextInfo context = ContextOf(call.data);
  ExitAllocation(call, entry_point,
                 {.space = Space::kArray,
                  .kind = Kind::kArray,
                  .device = context.device,
                  .owner = context.owner,
                  .address = handle,
                  .bytes = bytes},
                 bytes);
}

// A context's end begins. Whatever is allocated from now on belongs to its next life.
void DriverTap::EnterEnd(Call& call, abi::CUcontext context) {
  const uint64_t number = pending_.Begin(call.cbid);
  PendingCall* slot = pending_.Find(number, call.cbid);
  if (slot == nullptr || call.data.correlationData == nullptr) return;
  slot->old_owner = contexts_.Retire(context, &slot->new_owner);
  if (slot->old_owner != kNoOwner) call.ledger->DriverOwnerEnding(slot->old_owner);
  *call.data.correlationData = number;
}

void DriverTap::ExitEnd(Call& call, EntryPoint entry_point, int16_t device) {
  call.ledger->CountCall(entry_point, 0);
  if (!call.succeeded()) call.ledger->CountFailedCall(entry_point);
  const uint64_t number = ReadOr(call.data.correlationData, uint64_t{0});
  PendingCall* slot = pending_.Find(number, call.cbid);
  if (slot == nullptr) return;
  if (slot->old_owner != kNoOwner) {
    if (call.succeeded()) {
      ContextGone(call, slot->old_owner, device);
    } else {
      call.ledger->DriverRenameOwner(slot->old_owner, slot->new_owner);
    }
  }
  pending_.End(number);
}

// Whether it was the last release only the driver knows.
void DriverTap::ExitPrimaryRelease(Call& call, int16_t device) {
  call.ledger->CountCall(EntryPoint::kDevicePrimaryCtxRelease, 0);
  if (!call.succeeded()) return call.ledger->CountFailedCall(EntryPoint::kDevicePrimaryCtxRelease);
  const abi::CUcontext context = contexts_.Primary(device);
  unsigned flags = 0;
  int active = 1;
  if (context == nullptr || driver_->DevicePrimaryCtxGetState == nullptr ||
      driver_->DevicePrimaryCtxGetState(device, &flags, &active) != abi::CUDA_SUCCESS ||
      active != 0) {
    return;
  }
  uint16_t next;
  const uint16_t old = contexts_.Retire(context, &next);
  if (old != kNoOwner) ContextGone(call, old, device);
}

void DriverTap::ContextGone(Call& call, uint16_t owner, int16_t device) {
  const uint64_t bytes = call.ledger->DriverOwnerGone(owner);
  call.ledger->RecordEvent({.type = EventType::kContextGone, .device = device, .bytes = bytes});
}

void DriverTap::Enter(Call& call) {
  switch (call.cbid) {
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2:
      return EnterFree(call, EntryPoint::kMemFree, Space::kAddress,
                       call.params<abi::cuMemFree_v2_params>().dptr);
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync:
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync_ptsz:
      return EnterFree(call, EntryPoint::kMemFreeAsync, Space::kAddress,
                       call.params<abi::cuMemFreeAsync_params>().dptr);
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemFreeHost:
      return EnterFree(call, EntryPoint::kMemFreeHost, Space::kAddress,
                       Number(call.params<abi::cuMemFreeHost_params>().p));
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemHostUnregister:
      return EnterFree(call, EntryPoint::kMemHostUnregister, Space::kRegistered,
                       Number(call.params<abi::cuMemHostUnregister_params>().p));
    case abi::CUPTI_DRIVER_TRACE_CBID_cuArrayDestroy:
      return EnterFree(call, EntryPoint::kArrayDestroy, Space::kArray,
                       Number(call.params<abi::cuArrayDestroy_params>().hArray));
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMipmappedArrayDestroy:
      return EnterFree(call, EntryPoint::kMipmappedArrayDestroy, Space::kArray,
                       Number(call.params<abi::cuMipmappedArrayDestroy_params>().hMipmappedArray));
    case abi::CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemFreeNode:
      return EnterFree(call, EntryPoint::kGraphAddMemFreeNode, Space::kAddress,
                       call.params<abi::cuGraphAddMemFreeNode_params>().dptr);
    case abi::CUPTI_DRIVER_TRACE_CBID_cuIpcCloseMemHandle: {
      const uint64_t address = call.params<abi::cuIpcCloseMemHandle_params>().dptr;
      if (physical_.IpcClosing(address)) {
        return EnterFree(call, EntryPoint::kIpcCloseMemHandle, Space::kImported, address);
      }
      return call.ledger->CountCall(EntryPoint::kIpcCloseMemHandle, 0);
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemRelease: {
      call.ledger->CountCall(EntryPoint::kMemRelease, 0);
      const uint64_t number = pending_.Begin(call.cbid);
      const uint32_t place =
          physical_.ReleaseBegan(call.ledger, call.params<abi::cuMemRelease_params>().handle);
      if (PendingCall* slot = pending_.Find(number, call.cbid)) slot->place = place;
      if (call.data.correlationData != nullptr) *call.data.correlationData = number;
      return;
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemUnmap: {
      call.ledger->CountCall(EntryPoint::kMemUnmap, 0);
      const auto& p = call.params<abi::cuMemUnmap_params>();
      const uint64_t number = pending_.Begin(call.cbid);
      physical_.UnmapBegan(call.ledger, p.ptr, p.size, static_cast<uint32_t>(number));
      if (call.data.correlationData != nullptr) *call.data.correlationData = number;
      return;
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy:
    case abi::CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy_v2:
      return EnterEnd(call, call.params<abi::cuCtxDestroy_v2_params>().ctx);
    case abi::CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset:
    case abi::CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset_v2:
      return EnterEnd(call, contexts_.Primary(static_cast<int16_t>(
                                call.params<abi::cuDevicePrimaryCtxReset_v2_params>().dev)));
    default:
      return;  // everything else is booked at exit
  }
}

void DriverTap::Exit(Call& call) {
  const bool ok = call.succeeded();
  // An allocation of the current context, by address; address 0 where the call failed.
  auto in_context = [&](Kind kind, uint64_t address, uint64_t bytes) {
    const ContextInfo context = ContextOf(call.data);
    const bool host = kind == Kind::kPinned || kind == Kind::kRegistered;
    const bool outlives = kind == Kind::kPool;  // stream-ordered memory belongs to the device
    return DriverAllocation{
        .space = kind == Kind::kRegistered ? Space::kRegistered : Space::kAddress,
        .kind = kind,
        .device = host ? int16_t{-1} : context.device,
        .owner = outlives ? kNoOwner : context.owner,
        .address = address,
        .bytes = bytes};
  };
  switch (call.cbid) {
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2: {
      const auto& p = call.params<abi::cuMemAlloc_v2_params>();
      return ExitAllocation(call, EntryPoint::kMemAlloc,
                            in_context(Kind::kDevice, ok ? *p.dptr : 0, p.bytesize), p.bytesize);
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2: {
      const auto& p = call.params<abi::cuMemAllocPitch_v2_params>();
      const uint64_t bytes = ok ? *p.pPitch * p.Height : 0;
      return ExitAllocation(call, EntryPoint::kMemAllocPitch,
                            in_context(Kind::kDevice, ok ? *p.dptr : 0, bytes),
                            p.WidthInBytes * p.Height);
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged: {
      const auto& p = call.params<abi::cuMemAllocManaged_params>();
      return ExitAllocation(call, EntryPoint::kMemAllocManaged,
                            in_context(Kind::kManaged, ok ? *p.dptr : 0, p.bytesize), p.bytesize);
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemAllocHost_v2: {
      const auto& p = call.params<abi::cuMemAllocHost_v2_params>();
      return ExitAllocation(call, EntryPoint::kMemAllocHost,
                            in_context(Kind::kPinned, ok ? Number(*p.pp) : 0, p.bytesize),
                            p.bytesize);
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc:
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc_v2: {
      const auto& p = call.params<abi::cuMemHostAlloc_params>();
      return ExitAllocation(call, EntryPoint::kMemHostAlloc,
                            in_context(Kind::kPinned, ok ? Number(*p.pp) : 0, p.bytesize),
                            p.bytesize);
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemHostRegister:
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemHostRegister_v2: {
      const auto& p = call.params<abi::cuMemHostRegister_v2_params>();
      return ExitAllocation(call, EntryPoint::kMemHostRegister,
                            in_context(Kind::kRegistered, ok ? Number(p.p) : 0, p.bytesize),
                            p.bytesize);
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync:
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz: {
      const auto& p = call.params<abi::cuMemAllocAsync_params>();
      stream_ordered_.fetch_add(1, std::memory_order_relaxed);
      return ExitAllocation(call, EntryPoint::kMemAllocAsync,
                            in_context(Kind::kPool, ok ? *p.dptr : 0, p.bytesize), p.bytesize);
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync:
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync_ptsz: {
      const auto& p = call.params<abi::cuMemAllocFromPoolAsync_params>();
      stream_ordered_.fetch_add(1, std::memory_order_relaxed);
      DriverAllocation allocation = in_context(Kind::kPool, ok ? *p.dptr : 0, p.bytesize);
      int16_t device;
      if (pools_.DeviceOf(p.pool, &device)) allocation.device = device;
      return ExitAllocation(call, EntryPoint::kMemAllocFromPoolAsync, allocation, p.bytesize);
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemCreate:
      return ExitCreate(call);
    case abi::CUPTI_DRIVER_TRACE_CBID_cuArrayCreate_v2: {
      const auto& p = call.params<abi::cuArrayCreate_v2_params>();
      const abi::CUDA_ARRAY_DESCRIPTOR* d = p.pAllocateArray;
      const uint64_t bytes =
          d == nullptr ? 0 : ArrayBytes(d->Width, d->Height, 0, d->Format, d->NumChannels);
      return ExitArray(call, EntryPoint::kArrayCreate, ok ? Number(*p.pHandle) : 0, bytes);
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuArray3DCreate_v2: {
      const auto& p = call.params<abi::cuArray3DCreate_v2_params>();
      return ExitArray(call, EntryPoint::kArray3DCreate, ok ? Number(*p.pHandle) : 0,
                       ArrayBytes(p.pAllocateArray));
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMipmappedArrayCreate: {
      const auto& p = call.params<abi::cuMipmappedArrayCreate_params>();
      return ExitArray(call, EntryPoint::kMipmappedArrayCreate, ok ? Number(*p.pHandle) : 0,
                       MipmapBytes(p.pMipmappedArrayDesc, p.numMipmapLevels));
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuIpcOpenMemHandle:
    case abi::CUPTI_DRIVER_TRACE_CBID_cuIpcOpenMemHandle_v2: {
      const uint64_t address =
          ok ? *call.params<abi::cuIpcOpenMemHandle_v2_params>().pdptr : uint64_t{0};
      abi::CUdeviceptr base = 0;
      size_t bytes = 0;
      if (ok && driver_->MemGetAddressRange != nullptr) {
        driver_->MemGetAddressRange(&base, &bytes, address);
      }
      DriverAllocation allocation = in_context(Kind::kIpc, address, bytes);
      allocation.space = Space::kImported;
      if (ok && !physical_.IpcOpened(address)) allocation.address = 0;  // open already
      return ExitAllocation(call, EntryPoint::kIpcOpenMemHandle, allocation, 0);
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemAllocNode: {
      const abi::CUDA_MEM_ALLOC_NODE_PARAMS* p =
          call.params<abi::cuGraphAddMemAllocNode_params>().nodeParams;
      if (p == nullptr) return;
      return ExitAllocation(call, EntryPoint::kGraphAddMemAllocNode,
                            {.kind = Kind::kGraph,
                             .device = DeviceOf(p->poolProps.location),
                             .address = ok ? p->dptr : 0,
                             .bytes = p->bytesize},
                            p->bytesize);
    }

    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2:
      return ExitFree(call, EntryPoint::kMemFree, Kind::kDevice,
                      call.params<abi::cuMemFree_v2_params>().dptr);
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync:
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync_ptsz:
      return ExitFree(call, EntryPoint::kMemFreeAsync, Kind::kPool,
                      call.params<abi::cuMemFreeAsync_params>().dptr);
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemFreeHost:
      return ExitFree(call, EntryPoint::kMemFreeHost, Kind::kPinned,
                      Number(call.params<abi::cuMemFreeHost_params>().p));
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemHostUnregister:
      return ExitFree(call, EntryPoint::kMemHostUnregister, Kind::kRegistered,
                      Number(call.params<abi::cuMemHostUnregister_params>().p));
    case abi::CUPTI_DRIVER_TRACE_CBID_cuArrayDestroy:
      return ExitFree(call, EntryPoint::kArrayDestroy, Kind::kArray,
                      Number(call.params<abi::cuArrayDestroy_params>().hArray));
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMipmappedArrayDestroy:
      return ExitFree(call, EntryPoint::kMipmappedArrayDestroy, Kind::kArray,
                      Number(call.params<abi::cuMipmappedArrayDestroy_params>().hMipmappedArray));
    case abi::CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemFreeNode:
      return ExitFree(call, EntryPoint::kGraphAddMemFreeNode, Kind::kGraph,
                      call.params<abi::cuGraphAddMemFreeNode_params>().dptr);
    case abi::CUPTI_DRIVER_TRACE_CBID_cuIpcCloseMemHandle: {
      const uint64_t address = call.params<abi::cuIpcCloseMemHandle_params>().dptr;
      if (!ok) physical_.IpcCloseFailed(address);
      return ExitFree(call, EntryPoint::kIpcCloseMemHandle, Kind::kIpc, address);
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemRelease: {
      if (!ok) call.ledger->CountFailedCall(EntryPoint::kMemRelease);
      const uint64_t number = ReadOr(call.data.correlationData, uint64_t{0});
      PendingCall* slot = pending_.Find(number, call.cbid);
      if (slot == nullptr) return;
      if (slot->place != PhysicalMemory::kNone) {
        physical_.ReleaseEnded(call.ledger, slot->place, ok);
      } else if (ok) {
        call.ledger->DriverFreeUnknown(Kind::kVmm, ContextOf(call.data).device);
      }
      return pending_.End(number);
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemUnmap: {
      if (!ok) call.ledger->CountFailedCall(EntryPoint::kMemUnmap);
      const auto& p = call.params<abi::cuMemUnmap_params>();
      const uint64_t number = ReadOr(call.data.correlationData, uint64_t{0});
      if (pending_.Find(number, call.cbid) == nullptr) return;
      physical_.UnmapEnded(call.ledger, p.ptr, p.size, static_cast<uint32_t>(number), ok);
      return pending_.End(number);
    }

    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemMap: {
      const auto& p = call.params<abi::cuMemMap_params>();
      call.ledger->CountCall(EntryPoint::kMemMap, p.size);
      if (!ok) return call.ledger->CountFailedCall(EntryPoint::kMemMap);
      return physical_.Mapped(p.ptr, p.size, p.handle);
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemImportFromShareableHandle:
      if (ok) {
        physical_.Imported(*call.params<abi::cuMemImportFromShareableHandle_params>().handle);
      }
      return;
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemRetainAllocationHandle: {
      const auto& p = call.params<abi::cuMemRetainAllocationHandle_params>();
      if (ok) physical_.Retained(Number(p.addr), *p.handle);
      return;
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemPoolCreate: {
      const auto& p = call.params<abi::cuMemPoolCreate_params>();
      call.ledger->CountCall(EntryPoint::kMemPoolCreate, 0);
      if (!ok) return call.ledger->CountFailedCall(EntryPoint::kMemPoolCreate);
      return pools_.Add(*p.pool,
                        p.poolProps == nullptr ? int16_t{-1} : DeviceOf(p.poolProps->location));
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemPoolDestroy:
      // What was allocated from the pool stays until it is freed; only the cache goes.
      call.ledger->CountCall(EntryPoint::kMemPoolDestroy, 0);
      if (!ok) return call.ledger->CountFailedCall(EntryPoint::kMemPoolDestroy);
      return pools_.Remove(call.params<abi::cuMemPoolDestroy_params>().pool);
    case abi::CUPTI_DRIVER_TRACE_CBID_cuMemPoolTrimTo: {
      const auto& p = call.params<abi::cuMemPoolTrimTo_params>();
      call.ledger->CountCall(EntryPoint::kMemPoolTrimTo, 0);
      if (!ok) return call.ledger->CountFailedCall(EntryPoint::kMemPoolTrimTo);
      return call.ledger->RecordEvent(
          {.type = EventType::kPoolTrim,
           .entry_point = static_cast<uint16_t>(EntryPoint::kMemPoolTrimTo),
           .device = ContextOf(call.data).device,
           .bytes = p.minBytesToKeep,
           .address = Number(p.pool)});
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuDeviceGraphMemTrim:
      call.ledger->CountCall(EntryPoint::kDeviceGraphMemTrim, 0);
      if (!ok) return call.ledger->CountFailedCall(EntryPoint::kDeviceGraphMemTrim);
      return call.ledger->RecordEvent(
          {.type = EventType::kGraph,
           .entry_point = static_cast<uint16_t>(EntryPoint::kDeviceGraphMemTrim),
           .device = call.params<abi::cuDeviceGraphMemTrim_params>().device,
           .text = "graph memory trimmed"});
    case abi::CUPTI_DRIVER_TRACE_CBID_cuCtxSetLimit: {
      const auto& p = call.params<abi::cuCtxSetLimit_params>();
      call.ledger->CountCall(EntryPoint::kCtxSetLimit, 0);
      if (!ok) return call.ledger->CountFailedCall(EntryPoint::kCtxSetLimit);
      return call.ledger->RecordEvent(
          {.type = EventType::kLimitRaised,
           .entry_point = static_cast<uint16_t>(EntryPoint::kCtxSetLimit),
           .code = p.limit,
           .device = ContextOf(call.data).device,
           .bytes = p.value});
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRetain: {
      const auto& p = call.params<abi::cuDevicePrimaryCtxRetain_params>();
      if (!ok) return;
      contexts_.SetPrimary(static_cast<int16_t>(p.dev), *p.pctx);
      contexts_.Add(*p.pctx, static_cast<int16_t>(p.dev));
      return;
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy:
    case abi::CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy_v2: {
      const abi::CUcontext context = call.params<abi::cuCtxDestroy_v2_params>().ctx;
      ContextInfo info;
      contexts_.Find(context, &info);
      ExitEnd(call, EntryPoint::kCtxDestroy, info.device);
      if (ok) contexts_.Forget(context, info.owner);
      return;
    }
    case abi::CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset:
    case abi::CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset_v2:
      return ExitEnd(
          call, EntryPoint::kDevicePrimaryCtxReset,
          static_cast<int16_t>(call.params<abi::cuDevicePrimaryCtxReset_v2_params>().dev));
    case abi::CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRelease:
    case abi::CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRelease_v2:
      return ExitPrimaryRelease(
          call, static_cast<int16_t>(call.params<abi::cuDevicePrimaryCtxRelease_v2_params>().dev));
    default:
      return;
  }
}

}  // namespace tidemark::agent
