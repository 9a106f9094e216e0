// What the two halves of the simulated CUPTI share: callbacks (subscriber.cc) and records
// (activity.cc).
#pragma once

#include "tests/sim/tools_interface.h"

namespace tidemark::sim {

// The driver's side of the connection; null when no simulated driver is or can be loaded.
ToolsInterface* Tools();

// TIDEMARK_SIM_CUPTI_VERSION, default 130001. Record layouts follow it.
uint32_t CuptiVersion();

uint64_t NowNs();

// Tells the driver which calls CUPTI wants to see: those with a callback, or all when API records
// are on. Called whenever either changes.
void RefreshCallEnables();

// Whether API records (CUPTI_ACTIVITY_KIND_DRIVER) are on, and the record of one call.
bool ApiRecordsEnabled();
void RecordApiCall(const ApiCall& call, uint64_t end_ns);

// The correlation id of the driver call that this thread is in, or was in last. With API tracing
// off it stands still over calls that nobody watches: that is why ids repeat in memory records.
uint32_t CurrentCorrelationId();

// True in a child of fork, where CUPTI's state is a copy without threads.
bool InForkedChild();

void FinalizeActivity();

}  // namespace tidemark::sim
