// The driver's memory calls as CUPTI's callbacks show them, booked into the ledger.
//
//   enter: calls that free take their entry out of the ledger (the driver may give the address to
//          another thread before the call returns)
//   exit:  success of an allocating call books it; failure of a freeing call puts back; failures of
//          allocating calls are events with size and code
//
// Which calls: kDriverTapCbids, single ids of the driver-API domain. Nothing is enabled that fires
// for a kernel launch.
//
// Threads: OnCallback runs on whatever thread makes the call, inside the driver. It allocates
// nothing and waits only for bounded locks.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "cupti_agent/abi/cupti_abi.h"
#include "cupti_agent/cupti/context_table.h"
#include "cupti_agent/cupti/cupti_library.h"
#include "cupti_agent/cupti/pending_calls.h"
#include "cupti_agent/cupti/physical_memory.h"
#include "cupti_agent/cupti/pool_table.h"
#include "cupti_agent/ledger/ledger.h"
#include "cupti_agent/stack/stack.h"

namespace tidemark::agent {

std::span<const abi::CUpti_CallbackId> DriverTapCbids();

class DriverTap {
 public:
  // `cupti` and `driver` outlive this. False when there is no memory for its tables.
  bool Init(const CuptiLibrary* cupti, const CudaDriver* driver);

  void OnCallback(Ledger* ledger, abi::CUpti_CallbackId cbid, const abi::CUpti_CallbackData& data);

  // Stream-ordered allocations so far: what activity records would have to be written for.
  uint64_t stream_ordered_calls() const { return stream_ordered_.load(std::memory_order_relaxed); }

 private:
  struct Call;  // one side of one call, with what the handlers share

  void Enter(Call& call);
  void Exit(Call& call);
  void EnterFree(Call& call, wire::EntryPoint entry_point, Space space, uint64_t address);
  void ExitFree(Call& call, wire::EntryPoint entry_point, wire::Kind kind, uint64_t address);
  void ExitAllocation(Call& call, wire::EntryPoint entry_point, const DriverAllocation& allocation,
                      uint64_t requested_bytes);
  void ExitCreate(Call& call);
  void NoteCommunicator(Ledger* ledger, const Stack& stack, int16_t device, uint64_t bytes);
  void ExitArray(Call& call, wire::EntryPoint entry_point, uint64_t handle, uint64_t bytes);
  void EnterEnd(Call& call, abi::CUcontext context);
  void ExitEnd(Call& call, wire::EntryPoint entry_point, int16_t device);
  void ExitPrimaryRelease(Call& call, int16_t device);
  void ContextGone(Call& call, uint16_t owner, int16_t device);
  ContextInfo ContextOf(const abi::CUpti_CallbackData& data);

  const CuptiLibrary* cupti_ = nullptr;
  const CudaDriver* driver_ = nullptr;
  ContextTable contexts_;
  PendingCalls pending_;
  PhysicalMemory physical_;
  std::atomic<uint64_t> communicator_noted_ns_{0};
  PoolTable pools_;
  std::atomic<uint64_t> stream_ordered_{0};
};

}  // namespace tidemark::agent
