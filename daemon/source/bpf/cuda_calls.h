// Turns the reports of libcuda's probes into entries of one process's ledger.
//
// Reports come from the kernel, the values inside them from the process: untrusted. They can make
// this process's numbers wrong and nothing else.
#pragma once

#include <cstdint>
#include <span>

#include "bpf/libcuda_intf.h"
#include "daemon/source/bpf/allocation_ledger.h"

namespace tidemark {

class CudaCalls {
 public:
  explicit CudaCalls(size_t max_live) : ledger_(max_live) {}

  // A report of kind TM_REPORT_ENTER, _RETURN or _RETURN_BLOB; `blob` is empty except for the last.
  void Apply(const tm_cuda_call& call, std::span<const uint8_t> blob);

  // The process became another program at `time_ns`: nothing of before is left.
  void Exec(uint64_t time_ns);

  void Seed(uint64_t address, uint64_t bytes, MemoryClass memory_class, uint64_t time_ns);

  const AllocationLedger& ledger() const { return ledger_; }

 private:
  void Enter(const tm_cuda_call& call);
  void Return(const tm_cuda_call& call, std::span<const uint8_t> blob);

  AllocationLedger ledger_;
  uint64_t exec_ns_ = 0;
};

}  // namespace tidemark
