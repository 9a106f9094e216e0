// What a request may ask the daemon to do, beyond reading snapshots. Implemented by the daemon's
// tick owner, called from server threads; implementations are thread-safe and return within a
// second.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace tidemark::serve {

struct HeldBlock {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t step = 0;  // birth
};

class Control {
 public:
  virtual ~Control() = default;

  // Tells the agent of `pid` to put everything back. Fails when it has no connected agent.
  virtual Result<void> Detach(pid_t pid) = 0;

  // Live blocks booked under a site, oldest first. Fails when the process is not known.
  virtual Result<std::vector<HeldBlock>> Holders(pid_t pid, uint64_t site_id) = 0;

  // Closes (or with `resume` reopens) NVML and every device file.
  virtual Result<void> ReleaseGpu(bool resume) = 0;
};

}  // namespace tidemark::serve
