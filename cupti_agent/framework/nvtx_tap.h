// A range named by the configuration marks a step. Ranges are seen where a program imports the NVTX
// library's functions; header-only NVTX (version 3) calls through a table of its own, and taking
// that would take it away from a profiler: `unavailable: no import`.
#pragma once

#include "cupti_agent/hooks/import_hooks.h"

namespace tidemark::agent {

// Copies `name`; empty = none.
void SetStepRange(const char* name);
bool HasStepRange();

// int nvtxRangePushA(const char* message)
void OnRangePush(const HookCall& call);
// int nvtxRangePushEx(const nvtxEventAttributes_t*)
void OnRangePushEx(const HookCall& call);
// int nvtxDomainRangePushEx(nvtxDomainHandle_t, const nvtxEventAttributes_t*)
void OnDomainRangePushEx(const HookCall& call);

}  // namespace tidemark::agent
