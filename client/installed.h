// Where the other parts of Tidemark lie, seen from this program.
#pragma once

#include <string>

#include "client/command_line.h"

namespace tidemark::client {

// The injected library: build/lib beside build/bin, or /usr/lib/tidemark beside /usr/bin. A path
// even where it does not exist, so that a message can name it.
std::string InjectedLibrary(const Context& context);

// tidemarkd: TIDEMARK_DAEMON, else beside this program.
std::string DaemonProgram(const Context& context);

}  // namespace tidemark::client
