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

#include "cupti_agent/ledger/stack_view.h"
#include "wire/region.h"

namespace tidemark::agent {

// One report of the framework's CUDA allocator, with the totals it gives in the same call.
struct FrameworkBlock {
  uint64_t address = 0;
  uint64_t bytes = 0;  // rounded, as the allocator counts them
  int16_t device = 0;
  uint64_t total_allocated_bytes = 0;
  uint64_t total_reserved_bytes = 0;
};

struct LedgerEvent {
  wire::EventType type = wire::EventType::kAllocationFailed;
  uint16_t entry_point = UINT16_MAX;  // wire::EntryPoint, UINT16_MAX = none
  int32_t code = 0;
  int32_t device = -1;
  uint64_t bytes = 0;
  uint64_t address = 0;
  std::string_view text;  // cut to the row's room
};

class Ledger {
 public:
  // --- Sampling (sampler.h explains the estimate) ---

  // Decides whether an allocation of `bytes` gets a stack. 0 = no: book it with a null stack. Else
  // the bytes this block stands for in its site: bytes / (1 - exp(-bytes / interval)), or `bytes`
  // itself from the interval up. Takes no lock.
  uint64_t Sample(uint64_t bytes);

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

  // --- Steps and phases ---

  // An outermost backward pass begins. The first one ends the phase `load` (which the ledger began
  // at start) and begins `train`.
  void BackwardBegan();
  // A scope named Optimizer.step#... begins.
  void OptimizerScopeBegan();
  // A step is over: freezes floor, peak and end of every peak group. Whoever calls decides when.
  void StepBoundary();
  // Ends the current phase and begins `name`. Beginning the phase under way changes nothing.
  void PhaseBegin(std::string_view name);

  // --- Rare things ---

  void RecordEvent(const LedgerEvent& event);
  // Cheap when nothing changes; `reason` is cut to the row's room.
  void SetFeature(wire::Feature feature, wire::FeatureState state, std::string_view reason);
  void CountLoss(wire::Loss loss, uint64_t count = 1, uint64_t bytes = 0);
  void SetPythonVersion(uint32_t version);  // 0x030B for 3.11
};

// The ledger of this process, or nullptr: not started, switched off, detached, or a forked child.
Ledger* Active();

}  // namespace tidemark::agent
