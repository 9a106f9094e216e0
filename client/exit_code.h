// What `tidemark` returns to the shell; the list in docs/operations.md and `tidemark --help` is
// this one. `tidemark run` returns the job's own code (128 + signal where one killed it).
#pragma once

namespace tidemark::client {

enum ExitCode : int {
  kOk = 0,
  kDiffers = 1,        // diff: a site grows in one of the two only
  kUsage = 2,          // an option or argument is wrong
  kNoDaemon = 3,       // no daemon answers, or it went away
  kBadFile = 4,        // a file cannot be read, is damaged, or is from a newer Tidemark
  kRefused = 5,        // the daemon answered no: no such process, or somebody else's
  kInternal = 6,       // Tidemark itself failed
  kLeakFound = 10,     // --fail-on leak: a confirmed leak (and the job itself ended with 0)
  kNotObserved = 11,   // --fail-on leak: nothing was observed, so nothing can be vouched for
  kCannotStart = 126,  // run: the command is not executable
  kNotFound = 127,     // run: there is no such command
};

inline constexpr char kExitCodeHelp[] =
    "Exit codes: 0 done; 1 diff found a site that grows in one only; 2 wrong usage; 3 no daemon "
    "answers;\n4 a file cannot be read; 5 the daemon refused; 6 internal; 10 --fail-on leak found "
    "one; 11 --fail-on leak\nbut nothing was observed. `tidemark run` returns the job's own code, "
    "128 + signal when it was killed,\n126 or 127 when it could not be started.";

}  // namespace tidemark::client
