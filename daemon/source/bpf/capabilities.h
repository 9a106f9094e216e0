// Which Linux capabilities this process has, so that a refusal can name the one that is missing.
#pragma once

#include <initializer_list>
#include <string>

#include "base/proc_root.h"

namespace tidemark {

enum class Capability : int {
  kDacReadSearch = 2,
  kSysPtrace = 19,
  kSysAdmin = 21,
  kPerfmon = 38,
  kBpf = 39,
  kCheckpointRestore = 40,
};

std::string ToString(Capability capability);  // "CAP_BPF"

// The names of those `wanted` that are not in our effective set, joined by ", "; empty when all are
// there. CAP_SYS_ADMIN stands in for CAP_BPF, CAP_PERFMON and CAP_CHECKPOINT_RESTORE, as it does in
// the kernel.
std::string MissingCapabilities(const ProcRoot& root, std::initializer_list<Capability> wanted);

// Capabilities held in a user namespace of our own are worth nothing to bpf(2).
bool InInitialUserNamespace(const ProcRoot& root);

}  // namespace tidemark
