// Which device each memory pool made by cuMemPoolCreate is on. A pool that is not here is a default
// pool: its device is that of the context.
//
// Threads: any; a bounded lock inside.
#pragma once

#include "cupti_agent/abi/cuda_abi.h"
#include "cupti_agent/ledger/ledger_lock.h"

namespace tidemark::agent {

class PoolTable {
 public:
  void Add(abi::CUmemoryPool pool, int16_t device);
  void Remove(abi::CUmemoryPool pool);
  // False when the pool is not one of these.
  bool DeviceOf(abi::CUmemoryPool pool, int16_t* device);

 private:
  struct Entry {
    abi::CUmemoryPool pool;
    int16_t device;
  };
  static constexpr uint32_t kCapacity = 256;

  LedgerLock lock_;
  Entry entries_[kCapacity] = {};
};

}  // namespace tidemark::agent
