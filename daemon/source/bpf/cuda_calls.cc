#include "daemon/source/bpf/cuda_calls.h"

namespace tidemark {
namespace {

// Per-thread notes are kept for this many threads at most; a process that starts more over its life
// loses what was noted of threads long gone.
constexpr size_t kMaxThreads = 1u << 16;
constexpr size_t kMaxContextDepth = 64;

constexpr uint32_t kLocationDevice = 1;

int LocationDevice(uint64_t location) {
  return static_cast<uint32_t>(location) == kLocationDevice ? static_cast<int>(location >> 32) : -1;
}

}  // namespace

void CudaCalls::Apply(const tm_cuda_call& call) {
  // The exec is told by another ring than the calls: what the old program did may arrive later.
  if (call.head.time_ns < exec_ns_) return;
  const CudaProbe* probe = CudaProbeOf(call.fn);
  if (!probe) return;
  if (undo_.size() > kMaxThreads) undo_.clear();
  if (context_stacks_.size() > kMaxThreads) context_stacks_.clear();
  if (call.head.kind == TM_REPORT_ENTER) {
    Enter(*probe, call);
  } else if (call.result == 0) {
    Return(*probe, call);
  } else if (probe->at_entry) {
    Failed(*probe, static_cast<pid_t>(call.head.tid));
  }
}

void CudaCalls::TakeFreed(const VmmTable::Change& change, Undo* undo) {
  for (uint64_t handle : change.freed) {
    for (KeySpace space : {KeySpace::kVmm, KeySpace::kImported}) {
      const AllocationKey key = {space, handle};
      if (auto taken = ledger_.Take(key)) undo->taken.emplace_back(key, *taken);
    }
  }
  undo->vmm = change;
}

void CudaCalls::Enter(const CudaProbe& probe, const tm_cuda_call& call) {
  const auto tid = static_cast<pid_t>(call.head.tid);
  switch (probe.kind) {
    case CudaCallKind::kFree:
      if (call.args[0] != 0) ledger_.BeginFree(tid, {KeySpace::kPointer, call.args[0]});
      break;
    case CudaCallKind::kUnregister:
      ledger_.BeginFree(tid, {KeySpace::kRegistered, call.args[0]});
      break;
    case CudaCallKind::kArrayFree:
      ledger_.BeginFree(tid, {KeySpace::kArray, call.args[0]});
      break;
    case CudaCallKind::kGraphFree:
      ledger_.BeginFree(tid, {KeySpace::kGraphNode, call.args[4]});
      break;
    case CudaCallKind::kVmmRelease: {
      Undo& undo = undo_[tid] = {};
      TakeFreed(vmm_.Release(call.args[0]), &undo);
      break;
    }
    case CudaCallKind::kVmmUnmap: {
      Undo& undo = undo_[tid] = {};
      TakeFreed(vmm_.Unmap(call.args[0], call.args[1]), &undo);
      break;
    }
    case CudaCallKind::kIpcClose: {
      Undo& undo = undo_[tid] = {};
      auto opens = ipc_opens_.find(call.args[0]);
      if (opens == ipc_opens_.end()) break;
      undo.ipc_address = call.args[0];
      if (--opens->second > 0) break;
      ipc_opens_.erase(opens);
      const AllocationKey key = {KeySpace::kIpc, call.args[0]};
      if (auto taken = ledger_.Take(key)) undo.taken.emplace_back(key, *taken);
      break;
    }
    case CudaCallKind::kAllocate:
    case CudaCallKind::kAllocatePitch:
    case CudaCallKind::kAllocateAsync:
    case CudaCallKind::kAllocateFromPool:
    case CudaCallKind::kRegister:
    case CudaCallKind::kPoolCreate:
    case CudaCallKind::kVmmCreate:
    case CudaCallKind::kVmmRetain:
    case CudaCallKind::kVmmImport:
    case CudaCallKind::kVmmMap:
    case CudaCallKind::kArray:
    case CudaCallKind::kIpcOpen:
    case CudaCallKind::kGraphAllocate:
    case CudaCallKind::kContextCreate:
    case CudaCallKind::kContextSetCurrent:
    case CudaCallKind::kContextPush:
    case CudaCallKind::kContextPop:
    case CudaCallKind::kContextDestroy:
    case CudaCallKind::kPrimaryRetain:
    case CudaCallKind::kPrimaryRelease:
    case CudaCallKind::kPrimaryReset:
    case CudaCallKind::kCountOnly:
      break;  // reported at return
  }
}

void CudaCalls::Failed(const CudaProbe& probe, pid_t tid) {
  switch (probe.kind) {
    case CudaCallKind::kVmmRelease:
    case CudaCallKind::kVmmUnmap:
    case CudaCallKind::kIpcClose: {
      auto found = undo_.find(tid);
      if (found == undo_.end()) return;
      vmm_.Undo(found->second.vmm);
      if (found->second.ipc_address != 0) ipc_opens_[found->second.ipc_address] += 1;
      for (const auto& [key, allocation] : found->second.taken) ledger_.PutBack(key, allocation);
      undo_.erase(found);
      return;
    }
    default:
      ledger_.FailFree(tid);
      return;
  }
}

void CudaCalls::Return(const CudaProbe& probe, const tm_cuda_call& call) {
  const auto tid = static_cast<pid_t>(call.head.tid);
  const uint64_t context = CurrentContext(tid);
  LedgerAllocation allocation = {.bytes = call.bytes,
                                 .time_ns = call.head.time_ns,
                                 .stack_id = call.stack,
                                 .owner = context,
                                 .memory_class = probe.memory_class,
                                 .device = DeviceOf(context)};
  if (!OnDevice(probe.memory_class)) allocation.device = -1;
  const int told_device = probe.device_arg ? static_cast<int>(call.args[probe.device_arg - 1]) : -1;

  switch (probe.kind) {
    case CudaCallKind::kAllocatePitch:
      allocation.bytes = call.out[1] * call.args[3];  // pitch x height
      [[fallthrough]];
    case CudaCallKind::kAllocate:
      if (call.out[0] != 0) ledger_.Allocate({KeySpace::kPointer, call.out[0]}, allocation);
      break;
    case CudaCallKind::kAllocateFromPool:
      if (auto pool = pool_devices_.find(call.args[2]); pool != pool_devices_.end()) {
        allocation.device = pool->second;
      }
      [[fallthrough]];
    case CudaCallKind::kAllocateAsync:
      allocation.owner = kDeviceOwned;
      if (call.out[0] != 0) ledger_.Allocate({KeySpace::kPointer, call.out[0]}, allocation);
      break;
    case CudaCallKind::kRegister:
      ledger_.Allocate({KeySpace::kRegistered, call.args[0]}, allocation);
      break;
    case CudaCallKind::kPoolCreate:
      pool_devices_[call.out[0]] = LocationDevice(call.location);
      break;
    case CudaCallKind::kVmmCreate:
      allocation.owner = kDeviceOwned;
      allocation.device = LocationDevice(call.location);
      vmm_.Create(call.out[0]);
      ledger_.Allocate({KeySpace::kVmm, call.out[0]}, allocation);
      break;
    case CudaCallKind::kVmmImport:
      allocation.owner = kDeviceOwned;
      vmm_.Create(call.out[0]);
      ledger_.Allocate({KeySpace::kImported, call.out[0]}, allocation);
      break;
    case CudaCallKind::kVmmRetain:
      vmm_.Retain(call.out[0], call.args[1]);
      break;
    case CudaCallKind::kVmmMap:
      vmm_.Map(call.args[0], call.args[1], call.args[3]);
      break;
    case CudaCallKind::kArray:
      ledger_.Allocate({KeySpace::kArray, call.out[0]}, allocation);
      break;
    case CudaCallKind::kIpcOpen:
      if (++ipc_opens_[call.out[0]] == 1) {
        ledger_.Allocate({KeySpace::kIpc, call.out[0]}, allocation);
      }
      break;
    case CudaCallKind::kGraphAllocate:
      allocation.owner = kDeviceOwned;
      allocation.device = LocationDevice(call.location);
      ledger_.Allocate({KeySpace::kGraphNode, call.out[0]}, allocation);
      break;
    case CudaCallKind::kContextCreate:
      context_devices_[call.out[0]] = told_device;
      context_stacks_[tid].push_back(call.out[0]);
      break;
    case CudaCallKind::kContextSetCurrent: {
      std::vector<uint64_t>& stack = context_stacks_[tid];
      if (!stack.empty()) stack.pop_back();
      if (call.args[0] != 0) stack.push_back(call.args[0]);
      break;
    }
    case CudaCallKind::kContextPush: {
      std::vector<uint64_t>& stack = context_stacks_[tid];
      if (stack.size() >= kMaxContextDepth) stack.clear();
      stack.push_back(call.args[0]);
      break;
    }
    case CudaCallKind::kContextPop: {
      std::vector<uint64_t>& stack = context_stacks_[tid];
      if (!stack.empty()) stack.pop_back();
      break;
    }
    case CudaCallKind::kContextDestroy: {
      EndContext(call.args[0], call.head.time_ns);
      context_devices_.erase(call.args[0]);
      std::vector<uint64_t>& stack = context_stacks_[tid];
      if (!stack.empty() && stack.back() == call.args[0]) stack.pop_back();
      break;
    }
    case CudaCallKind::kPrimaryRetain:
      context_devices_[call.out[0]] = told_device;
      primaries_[told_device].context = call.out[0];
      primaries_[told_device].retains += 1;
      break;
    case CudaCallKind::kPrimaryRelease: {
      Primary& primary = primaries_[told_device];
      if (primary.retains > 0) primary.retains -= 1;
      if (primary.retains == 0 && seen_from_start_) EndPrimary(told_device, call.head.time_ns);
      break;
    }
    case CudaCallKind::kPrimaryReset:
      primaries_[told_device].retains = 0;
      EndPrimary(told_device, call.head.time_ns);
      break;
    case CudaCallKind::kFree:
    case CudaCallKind::kUnregister:
    case CudaCallKind::kArrayFree:
    case CudaCallKind::kGraphFree:
    case CudaCallKind::kVmmRelease:
    case CudaCallKind::kVmmUnmap:
    case CudaCallKind::kIpcClose:
    case CudaCallKind::kCountOnly:
      break;
  }
}

void CudaCalls::EndContext(uint64_t context, uint64_t before_ns) {
  ledger_.EndOwnedBefore(context, before_ns);
  // What was allocated before its thread's context was known belongs to the only one there is.
  if (context_devices_.size() <= 1) {
    ledger_.EndOwnedBefore(kUnknownOwner, before_ns);
  } else if (ledger_.HasOwnedBy(kUnknownOwner)) {
    unsure_context_ends_ += 1;
  }
}

void CudaCalls::EndPrimary(int device, uint64_t before_ns) {
  const uint64_t context = primaries_[device].context;
  if (context != 0) return EndContext(context, before_ns);
  // Made before the probes: which of the contexts seen it is, is known only when there is one.
  const std::set<uint64_t> owners = ledger_.ContextOwners();
  if (owners.size() > 1) {
    unsure_context_ends_ += 1;
    return;
  }
  for (uint64_t owner : owners) ledger_.EndOwnedBefore(owner, before_ns);
}

uint64_t CudaCalls::CurrentContext(pid_t tid) const {
  auto found = context_stacks_.find(tid);
  return found == context_stacks_.end() || found->second.empty() ? kUnknownOwner
                                                                 : found->second.back();
}

int CudaCalls::DeviceOf(uint64_t context) const {
  auto found = context_devices_.find(context);
  return found == context_devices_.end() ? -1 : found->second;
}

void CudaCalls::Exec(uint64_t time_ns) {
  exec_ns_ = time_ns;
  ledger_.EndAllBefore(time_ns);
  vmm_.Clear();
  undo_.clear();
  ipc_opens_.clear();
  pool_devices_.clear();
  context_stacks_.clear();
  context_devices_.clear();
  primaries_.clear();
  seen_from_start_ = true;
}

void CudaCalls::Seed(uint64_t address, uint64_t bytes, MemoryClass memory_class, uint64_t time_ns) {
  KeySpace space = KeySpace::kPointer;
  if (memory_class == MemoryClass::kRegistered) space = KeySpace::kRegistered;
  if (memory_class == MemoryClass::kArray) space = KeySpace::kArray;
  if (memory_class == MemoryClass::kIpc) space = KeySpace::kIpc;
  if (memory_class == MemoryClass::kGraph) space = KeySpace::kGraphNode;
  if (memory_class == MemoryClass::kVmm) space = KeySpace::kVmm;
  ledger_.Seed({space, address},
               {.bytes = bytes, .time_ns = time_ns, .memory_class = memory_class});
}

}  // namespace tidemark
