// How a process that we are not the parent of came to its end.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/proc_root.h"
#include "daemon/snapshot/node_snapshot.h"

namespace tidemark {

struct ProcessExit {
  Liveness liveness = Liveness::kExited;
  std::string reason;  // "exited with status 1", "killed by SIGKILL", ...
};

// What a wait status (wait(2)) says.
ProcessExit ExitFromStatus(int status);

// Asks the zombie's stat, then the pidfd (kernel 6.15 keeps the status for it after the parent has
// waited). nullopt when neither says.
std::optional<ProcessExit> FindExit(const ProcRoot& root, pid_t pid, int pidfd);

}  // namespace tidemark
