// The launcher's variables as the agent saw them.
#pragma once

#include "daemon/identity/launcher.h"
#include "daemon/source/agent/region_reader.h"

namespace tidemark {

// The variables that the agent saw inside the process: those that a launcher set after exec too.
Variables VariablesOf(const RegionCopy& region);

}  // namespace tidemark
