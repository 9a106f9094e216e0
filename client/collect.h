// The last word on a run: waits until the daemon has seen its processes end, then fetches all that
// it knows about them.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"
#include "client/connection.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

// Only the run's processes. `ended_monotonic_ns` is when the job's main process was gone: a
// snapshot from before cannot show the end. Gives up waiting after `patience` and returns what
// there is.
Result<v1::Snapshot> CollectRun(Connection& connection, const std::string& run,
                                uint64_t ended_monotonic_ns, std::chrono::milliseconds patience);

// Drops what does not belong to the run.
void KeepOnly(v1::Snapshot& snapshot, const std::string& run);

}  // namespace tidemark::client
