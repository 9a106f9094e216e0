// What the process holds now, kept up to date beside it: the one writer of the region
// (wire/region.h).
//
// Threads: every method may be called from any thread of the job, inside foreign locks (the
// framework allocator's device lock, the driver's) and, by accident, from a signal handler. So
// nothing here allocates, throws, prints or waits without bound: the ledger's lock spins, yields,
// and gives up after kLockPatience; what was not booked then is a counted loss. A call that
// interrupts a ledger call of its own thread is refused and counted (Loss::kReentry).
//
// Every tap begins with Active(), which is nullptr in a process that is switched off, detached or
// forked: the region belongs to the parent, so the child must never write it.
//
//   void OnReport(...) {
//     Ledger* ledger = Active();
//     if (ledger == nullptr) return;
//     uint64_t estimate = ledger->Sample(bytes);
//     if (estimate == 0) return ledger->FrameworkAllocated(block, 0, nullptr);
//     StackView stack = ...;
//     ledger->FrameworkAllocated(block, estimate, &stack);
//   }
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "cupti_agent/ledger/alive.h"
#include "cupti_agent/ledger/host_memory.h"
#include "cupti_agent/ledger/ledger_lock.h"
#include "cupti_agent/ledger/live_table.h"
#include "cupti_agent/ledger/region.h"
#include "cupti_agent/ledger/sampler.h"
#include "cupti_agent/ledger/site_table.h"
#include "cupti_agent/ledger/stack_view.h"
#include "cupti_agent/ledger/steps.h"
#include "cupti_agent/ledger/totals_table.h"
#include "wire/entry_point.h"
#include "wire/region.h"

namespace tidemark::agent {

struct LedgerOptions {
  uint64_t region_bytes = wire::kDefaultRegionBytes;
  uint64_t sampling_interval_bytes = 1 << 20;
  uint64_t seed = 0;  // of the sampler
};

// One report of the framework's CUDA allocator, with the totals it gives in the same call.
struct FrameworkBlock {
  uint64_t address = 0;
  uint64_t bytes = 0;  // rounded, as the allocator counts them
  int16_t device = 0;
  uint64_t total_allocated_bytes = 0;
  uint64_t total_reserved_bytes = 0;
};

// One successful allocating call of the driver.
struct DriverAllocation {
  Space space = Space::kAddress;
  wire::Kind kind = wire::Kind::kDevice;
  int16_t device = -1;
  uint16_t owner = kNoOwner;  // context whose end frees it
  uint64_t address = 0;       // or handle, see Space
  uint64_t bytes = 0;
};

// What a free took out when it began, so that it can be put back if the call fails.
struct PendingFree {
  bool found = false;  // the address was live
  Space space = Space::kAddress;
  uint8_t totals_row = 0;
  uint16_t owner = kNoOwner;
  wire::LiveRow row = {};
};

struct LedgerEvent {
  wire::EventType type = wire::EventType::kAllocationFailed;
  uint16_t entry_point = UINT16_MAX;  // wire::EntryPoint, UINT16_MAX = none
  int32_t code = 0;
  int32_t device = -1;
  uint64_t bytes = 0;
  uint64_t address = 0;
  std::string_view text = {};  // cut to the row's room
};

class Ledger {
 public:
  // Makes the region. nullptr on success, else what failed (static text). Once, before any other
  // call.
  const char* Open(const LedgerOptions& options);

  // --- Sampling (sampler.h explains the estimate) ---

  // Decides whether an allocation of `bytes` gets a stack. 0 = no: book it with a null stack. Else
  // the bytes this block stands for in its site: bytes / (1 - exp(-bytes / interval)), or `bytes`
  // itself from the interval up. Takes no lock.
  uint64_t Sample(uint64_t bytes) { return sampler_.Sample(bytes); }
  void SetSamplingInterval(uint64_t bytes);

  // --- The framework's CUDA allocator ---

  // `estimated_bytes` is Sample()'s answer; `stack` is null exactly when it is 0.
  void FrameworkAllocated(const FrameworkBlock& block, uint64_t estimated_bytes,
                          const StackView* stack);
  void FrameworkFreed(const FrameworkBlock& block);

  // The framework's own word that a request failed; `requested_bytes` is what it was asked.
  void OutOfMemory(int16_t device, uint64_t requested_bytes, uint64_t total_allocated_bytes,
                   uint64_t total_reserved_bytes);

  // --- The framework's CPU tensors ---

  void HostTensorAllocated(uint64_t address, uint64_t bytes, uint64_t estimated_bytes,
                           const StackView* stack);
  void HostTensorFreed(uint64_t address);

  // --- The driver ---

  // A call returned success. An address that is still booked was freed behind our back: the new
  // allocation wins, and the collision is counted. `estimated_bytes` is what it stands for in its
  // site: its bytes, or Sample()'s answer, 0 with a null stack.
  void DriverAllocated(const DriverAllocation& allocation, uint64_t estimated_bytes,
                       const StackView* stack);
  // A freeing call begins: takes the entry out at once, because from here on the driver may give
  // the address to another thread. What was taken goes to `pending`.
  void DriverFreeBegan(Space space, uint64_t address, PendingFree* pending);
  // The call failed: puts the entry back, unless the address has been allocated meanwhile.
  void DriverFreeFailed(const PendingFree& pending);
  // The call succeeded on an address that was not booked: allocated before injection, or while a
  // table was full.
  void DriverFreeUnknown(wire::Kind kind, int16_t device);
  // A success that the caller has no room to follow up to its free.
  void DriverUntracked(wire::Kind kind, int16_t device, uint64_t bytes);
  void DriverCallFailed(wire::Kind kind, int16_t device);
  // A context's end begins, and then: it is gone, and everything it owned is freed (returns the
  // bytes); or the call failed, and what `to` allocated since is its own again. In between the
  // driver may give its addresses to other contexts, which is no collision.
  void DriverOwnerEnding(uint16_t owner);
  uint64_t DriverOwnerGone(uint16_t owner);
  void DriverRenameOwner(uint16_t from, uint16_t to);

  void CountCall(wire::EntryPoint entry_point, uint64_t requested_bytes);
  void CountFailedCall(wire::EntryPoint entry_point);

  // --- CUPTI's activity records: the second count of what both can see ---

  // Frees carry their bytes here, so no table is kept.
  void RecordAllocated(wire::Kind kind, int16_t device, uint64_t bytes);
  void RecordFreed(wire::Kind kind, int16_t device, uint64_t bytes);
  // Every record of what happened before this flush began has been booked.
  void RecordsFlushed();

  // --- Steps and phases ---

  // An outermost backward pass begins. The first one ends the phase `load` (which the ledger began
  // at start) and begins `train`, unless the job has named a phase itself by then.
  void BackwardBegan();
  // A scope named Optimizer.step#... begins.
  void OptimizerScopeBegan();
  // A step is over: freezes floor, peak and end of every peak group. Whoever calls decides when.
  void StepBoundary();
  // At exit, when a step's work was done and no boundary followed.
  void CloseLastStep();
  // Ends the current phase and begins `name`. Beginning the phase under way changes nothing.
  void PhaseBegin(std::string_view name);

  // --- Rare things ---

  void RecordEvent(const LedgerEvent& event);
  // Cheap when nothing changes; `reason` is cut to the row's room.
  void SetFeature(wire::Feature feature, wire::FeatureState state, std::string_view reason);
  void CountLoss(wire::Loss loss, uint64_t count = 1, uint64_t bytes = 0);
  void SetPythonVersion(uint32_t version);  // 0x030B for 3.11
  void SetCuptiVersion(uint32_t version);
  void SetState(wire::AgentState state);
  // "NAME=VALUE\0" each; cut to the header's room.
  void SetEnvironment(std::string_view block);

  // Once a second from the agent's own thread: the running phase's figures, and what the agent
  // itself costs. `other_bytes` is what the caller knows beyond the region and its indexes.
  void Refresh(uint64_t other_bytes);

  const Region& region() const { return region_; }

 private:
  class Guard;

  void Book(LiveTable& table, const wire::LiveRow& row, Space space, uint8_t totals_row,
            uint16_t owner);
  void TakeOut(LiveTable& table, uint32_t number);
  void ReplaceEnding(uint16_t from, uint16_t to);
  bool IsEnding(uint16_t owner) const;
  void ReportAllocator(const FrameworkBlock& block);
  void AppendEvent(const LedgerEvent& event, uint32_t site);
  uint32_t CurrentStep() const { return static_cast<uint32_t>(region_.header()->current_step); }

  Region region_;
  Sampler sampler_;
  LedgerLock lock_;
  TotalsTable totals_;
  SiteTable sites_;
  LiveTable driver_;
  LiveTable framework_;
  LiveTable host_;
  StepLedger steps_;
  HostMemoryReader host_memory_;
  uint16_t ending_[8] = {kNoOwner, kNoOwner, kNoOwner, kNoOwner,
                         kNoOwner, kNoOwner, kNoOwner, kNoOwner};
  // Bytes of framework blocks that are live but in no table; their frees carry their bytes.
  uint64_t framework_overflow_[kMaxTotalsRows] = {};
};

// The ledger of this process, or nullptr: not started, switched off, detached, or a forked child.
extern Ledger g_ledger;
inline Ledger* Active() { return IsAlive() ? &g_ledger : nullptr; }

}  // namespace tidemark::agent
