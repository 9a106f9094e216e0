// What is written about a process that died, or whose device allocation failed for want of memory:
// a v1::Postmortem made from the snapshot that saw it and from the minutes before. Pure functions.
#pragma once

#include <string>

#include "daemon/snapshot/node_snapshot.h"
#include "daemon/store/recent_bytes.h"

namespace tidemark::v1 {
class Postmortem;
}

namespace tidemark {

// "PID-START": of the file, and of the region kept beside it.
std::string PostMortemId(const ProcessKey& key);

// Why a process deserves a post-mortem: "device_out_of_memory", "oom_killer", "signal",
// "exit_status", "unknown"; empty for one that lives or ended in peace.
std::string CauseOf(const ProcessSnapshot& process);

// The last allocation that failed; null when none did, or not lately. Calls that the allocator got
// over by giving its cache back are failures too.
const EventView* FailingCall(const ProcessSnapshot& process);

// `process` is one of `snapshot`'s.
void MakePostMortem(const NodeSnapshot& snapshot, const ProcessSnapshot& process,
                    const RecentBytes& recent, v1::Postmortem* out);

}  // namespace tidemark
