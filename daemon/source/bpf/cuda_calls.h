// Turns the reports of libcuda's probes into entries of one process's ledger.
//
// Reports come from the kernel, the values inside them from the process: untrusted. They can make
// this process's numbers wrong and nothing else.
//
// Devices: a call allocates in the thread's current context, which is known once the thread was
// seen to set it; before that the device is -1. Pools and VMM say their device themselves.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bpf/libcuda_intf.h"
#include "daemon/source/bpf/allocation_ledger.h"
#include "daemon/source/bpf/cuda_probes.h"
#include "daemon/source/bpf/vmm_table.h"

namespace tidemark {

class CudaCalls {
 public:
  explicit CudaCalls(size_t max_live) : ledger_(max_live) {}

  // The probes were on before the process could make a context: only then can the last release of
  // a primary context be told from another.
  void SetSeenFromStart() { seen_from_start_ = true; }

  // A report of kind TM_REPORT_ENTER or TM_REPORT_RETURN.
  void Apply(const tm_cuda_call& call);

  // The process became another program at `time_ns`: nothing of before is left.
  void Exec(uint64_t time_ns);

  void Seed(uint64_t address, uint64_t bytes, MemoryClass memory_class, uint64_t time_ns);

  const AllocationLedger& ledger() const { return ledger_; }
  // Ends of contexts whose allocations could not be told from another's: they stay live here.
  uint64_t unsure_context_ends() const { return unsure_context_ends_; }

 private:
  // What a thread's call under way took out, should it fail.
  struct Undo {
    std::vector<std::pair<AllocationKey, LedgerAllocation>> taken;
    VmmTable::Change vmm;
    uint64_t ipc_address = 0;
  };
  struct Primary {
    uint64_t context = 0;
    int retains = 0;
  };

  void Enter(const CudaProbe& probe, const tm_cuda_call& call);
  void Return(const CudaProbe& probe, const tm_cuda_call& call);
  void Failed(const CudaProbe& probe, pid_t tid);
  void TakeFreed(const VmmTable::Change& change, Undo* undo);
  void EndContext(uint64_t context, uint64_t before_ns);
  void EndPrimary(int device, uint64_t before_ns);

  uint64_t CurrentContext(pid_t tid) const;
  int DeviceOf(uint64_t context) const;

  AllocationLedger ledger_;
  VmmTable vmm_;
  std::unordered_map<pid_t, Undo> undo_;
  std::unordered_map<uint64_t, uint32_t> ipc_opens_;  // by address: opened again it is the same
  std::unordered_map<uint64_t, int> pool_devices_;
  std::unordered_map<pid_t, std::vector<uint64_t>> context_stacks_;
  std::map<uint64_t, int> context_devices_;
  std::map<int, Primary> primaries_;
  uint64_t exec_ns_ = 0;
  uint64_t unsure_context_ends_ = 0;
  bool seen_from_start_ = false;
};

}  // namespace tidemark
