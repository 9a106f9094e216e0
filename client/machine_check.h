// What this machine offers Tidemark, without asking a daemon: libraries, kernel, privileges.
#pragma once

#include <string>
#include <vector>

#include "base/proc_root.h"
#include "client/command_line.h"

namespace tidemark::client {

struct MachineFinding {
  std::string name;
  bool good = false;
  std::string what;    // what was found
  std::string advice;  // what to do; empty when good
};

std::vector<MachineFinding> CheckMachine(const Context& context, const ProcRoot& root);

}  // namespace tidemark::client
