// Outermost backward passes. torch::autograd::Engine::execute is seen at entry only: a return probe
// on it, through which exceptions pass, would abort the job.
#pragma once

#include "cupti_agent/framework/step_counter.h"
#include "cupti_agent/hooks/import_hooks.h"

namespace tidemark::agent {

inline constexpr char kExecuteName[] = "_ZN5torch8autograd6Engine7executeE";
void OnExecute(const HookCall& call);

// Whether a call whose return address lies at `stack_pointer` is nested in an earlier one that is
// still running on this thread (re-entrant checkpointing). Remembers the call when it is not.
bool IsNestedCall(uint64_t stack_pointer, uint64_t return_address);

extern StepCounter g_step_counter;

// One step is over, by whatever mark.
void EndStep();

}  // namespace tidemark::agent
