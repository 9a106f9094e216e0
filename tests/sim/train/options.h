// Command line of simtrain, and what a launched rank reads from its environment.
#pragma once

#include <cstdint>
#include <string>

namespace tidemark::simtrain {

enum ExitCode : int {
  kOk = 0,
  kFailed = 1,       // a rank ran out of memory, or its step failed
  kUsage = 2,        // bad arguments
  kNoLibraries = 3,  // the simulated stack does not load, or has no device
};

struct Options {
  int ranks = 4;
  int steps = 300;
  std::string scenario = "steady";
  std::string leak_rank;  // a number, "all", or empty: as the scenario does
  uint64_t leak_bytes = 8 << 20;
  std::string launcher = "torchrun";
  bool zero_init = true;
  int step_ms = 20;
  int layers = 0;  // 0: as the scenario does
  uint64_t seed = 0;
  double hold_s = 3;  // how long `masks` stays loaded
  std::string truth;  // file to which each rank appends one line
};

// Parses and checks; on failure or --help prints and returns the exit code through `exit_code`.
bool ParseOptions(int argc, char** argv, Options* options, int* exit_code);

}  // namespace tidemark::simtrain
