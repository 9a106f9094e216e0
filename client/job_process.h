// The job that `tidemark run` starts: its own process with our standard streams, its signals passed
// on, its end awaited.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace tidemark::client {

// Blocks the signals that are passed on, before any thread exists that could take them. One a
// process; lives until the process ends.
class SignalGate {
 public:
  SignalGate();
  // The mask from before, which the job gets.
  const sigset_t& original_mask() const { return original_; }
  int fd() const { return fd_.get(); }

 private:
  sigset_t original_;
  UniqueFd fd_;
};

struct StartError {
  Error error;
  int exit_code = 126;  // 127 where there is no such command, as a shell has it
};

class JobProcess {
 public:
  // Searches PATH. `environment` is "NAME=VALUE".
  static std::variant<JobProcess, StartError> Start(std::vector<std::string> command,
                                                    std::vector<std::string> environment,
                                                    const SignalGate& gate);

  pid_t pid() const { return pid_; }

  // Waits for the end and passes signals on meanwhile, except those that the terminal sends to the
  // whole foreground group: the job has them already. Returns the exit code, 128 + signal if one
  // killed it.
  int Wait(const SignalGate& gate);

 private:
  explicit JobProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_;
};

}  // namespace tidemark::client
