// Memory of the node and of memory cgroups.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/proc_root.h"
#include "daemon/snapshot/node_snapshot.h"

namespace tidemark::procfs {

// /proc/meminfo. All zero when it cannot be read.
NodeMemory ReadNodeMemory(const ProcRoot& root);

struct CgroupMemory {
  int64_t current_bytes = -1;  // -1 = no memory cgroup
  int64_t limit_bytes = -1;    // the tightest on the way up; -1 = unlimited
};

// Usage and limit of the memory cgroup of a process, from its /proc/PID/cgroup lines
// (ReadCgroups). v1 (memory.usage_in_bytes) and v2 (memory.current), also side by side.
CgroupMemory ReadCgroupMemory(const ProcRoot& root,
                              const std::vector<std::pair<std::string, std::string>>& cgroups);

}  // namespace tidemark::procfs
