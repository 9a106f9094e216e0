// simtrain: a simulated training job with selectable faults, for machines without a GPU. It never
// sets the injection itself: run it under `tidemark run`, or set CUDA_INJECTION64_PATH.
#include <cstdlib>

#include "tests/sim/train/rank.h"

int main(int argc, char** argv) {
  using namespace tidemark::simtrain;  // NOLINT
  Options options;
  int exit_code = kOk;
  if (!ParseOptions(argc, argv, &options, &exit_code)) return exit_code;
  if (!IsRankProcess()) return Launch(options, argc, argv);
  // Pinned memory is resident, as on a real machine.
  setenv("TIDEMARK_SIM_PINNED", "populate", 0);
  return RunRank(options, *FindScenario(options.scenario));
}
