#include "daemon/source/bpf/cuda_calls.h"

#include "daemon/source/bpf/cuda_probes.h"

namespace tidemark {

void CudaCalls::Apply(const tm_cuda_call& call, std::span<const uint8_t> blob) {
  // The exec is told by another ring than the calls: what the old program did may arrive later.
  if (call.head.time_ns < exec_ns_) return;
  if (call.head.kind == TM_REPORT_ENTER) {
    Enter(call);
  } else {
    Return(call, blob);
  }
}

void CudaCalls::Enter(const tm_cuda_call& call) {
  const CudaProbe* probe = CudaProbeOf(static_cast<uint8_t>(call.fn));
  if (!probe) return;
  const auto tid = static_cast<pid_t>(call.head.tid);
  switch (probe->kind) {
    case CudaCallKind::kFree:
      ledger_.BeginFree(tid, {KeySpace::kPointer, call.args[0]});
      break;
    case CudaCallKind::kUnregister:
      ledger_.BeginFree(tid, {KeySpace::kRegistered, call.args[0]});
      break;
    default:
      break;
  }
}

void CudaCalls::Return(const tm_cuda_call& call, std::span<const uint8_t> blob) {
  const CudaProbe* probe = CudaProbeOf(static_cast<uint8_t>(call.fn));
  if (!probe) return;
  if (probe->at_entry) {  // reported again only when it failed
    ledger_.FailFree(static_cast<pid_t>(call.head.tid));
    return;
  }
  if (call.result != 0) return;
  (void)blob;
  LedgerAllocation allocation = {.bytes = probe->bytes_arg ? call.args[probe->bytes_arg - 1] : 0,
                                 .time_ns = call.head.time_ns,
                                 .stack_id = call.stack,
                                 .memory_class = probe->memory_class};
  switch (probe->kind) {
    case CudaCallKind::kAllocate:
      ledger_.Allocate({KeySpace::kPointer, call.out[0]}, allocation);
      break;
    case CudaCallKind::kRegister:
      ledger_.Allocate({KeySpace::kRegistered, call.args[0]}, allocation);
      break;
    default:
      break;
  }
}

void CudaCalls::Exec(uint64_t time_ns) {
  exec_ns_ = time_ns;
  ledger_.EndAllBefore(time_ns);
}

void CudaCalls::Seed(uint64_t address, uint64_t bytes, MemoryClass memory_class, uint64_t time_ns) {
  const KeySpace space =
      memory_class == MemoryClass::kRegistered ? KeySpace::kRegistered : KeySpace::kPointer;
  ledger_.Seed({space, address},
               {.bytes = bytes, .time_ns = time_ns, .memory_class = memory_class});
}

}  // namespace tidemark
