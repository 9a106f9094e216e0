// The contexts of this process: which device each is on, and the owner number under which the
// ledger keeps what dies with it.
//
// A primary context that is reset comes back under the same pointer. So a context's owner number
// changes when its end begins: what another thread allocates meanwhile belongs to the next life.
//
// Threads: any; a bounded lock inside.
#pragma once

#include <cstdint>

#include "cupti_agent/abi/cuda_abi.h"
#include "cupti_agent/ledger/ledger_lock.h"
#include "cupti_agent/ledger/live_table.h"

namespace tidemark::agent {

struct ContextInfo {
  int16_t device = -1;
  uint16_t owner = kNoOwner;
};

class ContextTable {
 public:
  static constexpr int kMaxDevices = 64;

  // False when the context has not been added or there is no lock to be had.
  bool Find(abi::CUcontext context, ContextInfo* info);
  // Adds a context, or finds it. An unowned ContextInfo when the table is full.
  ContextInfo Add(abi::CUcontext context, int16_t device);
  void SetPrimary(int16_t device, abi::CUcontext context);
  abi::CUcontext Primary(int16_t device) const;

  // The context's end begins: gives it a new owner number and returns the old one; kNoOwner when
  // nothing is known of the context.
  uint16_t Retire(abi::CUcontext context, uint16_t* next);
  // The context is gone and was not primary: another may get its pointer, on another device.
  void Forget(abi::CUcontext context, uint16_t owner);

 private:
  struct Entry {
    abi::CUcontext context;
    ContextInfo info;
  };
  static constexpr uint32_t kCapacity = 256;

  Entry* FindLocked(abi::CUcontext context);
  uint16_t NextOwner();

  LedgerLock lock_;
  Entry entries_[kCapacity] = {};
  uint32_t used_ = 0;
  uint16_t next_owner_ = 0;
  std::atomic<abi::CUcontext> primaries_[kMaxDevices] = {};
};

}  // namespace tidemark::agent
