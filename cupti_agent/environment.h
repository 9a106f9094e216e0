// Which environment variables tell who a process is. Only these leave the process: an environment
// holds secrets. Read once and in process, because some launchers (Ray, some MPIs) set ranks after
// exec, where /proc/PID/environ does not show them.
#pragma once

#include <cstddef>

#include "cupti_agent/switches.h"

namespace tidemark::agent {

// Writes "NAME=VALUE\0" for every variable of the list that is set; one that does not fit is left
// out whole. Returns the bytes written.
size_t CollectEnvironment(GetEnv get, char* to, size_t room);

}  // namespace tidemark::agent
