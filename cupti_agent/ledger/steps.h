// Steps and phases: the ring of finished steps and the list of phases, both with floor, peak and
// end of every peak group.
//
// Threads: whoever holds the ledger's lock.
#pragma once

#include <cstdint>

#include "cupti_agent/ledger/host_memory.h"
#include "cupti_agent/ledger/region.h"
#include "cupti_agent/ledger/totals_table.h"

namespace tidemark::agent {

class StepLedger {
 public:
  void Init(const Region& region, TotalsTable* totals);

  // True when this is the first backward pass of the process: `load` is over.
  bool BackwardBegan();
  void OptimizerScopeBegan();
  void StepBoundary(const HostMemory& host);
  // The process exits after the last step's work: closes that step as it stood when its last
  // backward pass or optimizer scope began, because by now the job has given its memory back. The
  // composition kept for Moment::kStepEnd stays that of the boundary before.
  void CloseLastStep(const HostMemory& host);

  // `name` is a string offset.
  void PhaseBegin(uint32_t name, const HostMemory& host);
  // Brings the running phase's peak and end up to date.
  void RefreshPhase(const HostMemory& host);
  bool InPhase(uint32_t name) const;

 private:
  // What a step's row says of memory, apart from the host's.
  struct Image {
    int64_t fw_allocated_bytes = 0;
    int64_t fw_reserved_bytes = 0;
    wire::StepGroup groups[wire::kMaxPeakGroups] = {};
  };

  void AdvanceMoment(wire::Moment moment);
  Image Now() const;
  void WriteStep(const Image& image, const HostMemory& host);

  wire::Header* header_ = nullptr;
  TotalsTable* totals_ = nullptr;
  wire::StepRow* steps_ = nullptr;
  wire::SectionEntry* steps_entry_ = nullptr;
  wire::PhaseRow* phases_ = nullptr;
  wire::SectionEntry* phases_entry_ = nullptr;
  const wire::AllocatorRow* allocators_ = nullptr;
  uint64_t backward_at_boundary_ = 0;
  uint64_t scopes_at_boundary_ = 0;
  Image latest_work_;  // as the last backward pass or optimizer scope began
};

}  // namespace tidemark::agent
