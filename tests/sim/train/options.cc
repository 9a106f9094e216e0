#include "tests/sim/train/options.h"

#include <CLI/CLI.hpp>

#include "tests/sim/device_state.h"
#include "tests/sim/train/rank.h"

namespace tidemark::simtrain {

bool ParseOptions(int argc, char** argv, Options* options, int* exit_code) {
  CLI::App app("A simulated training job: N ranks as processes on the simulated CUDA stack.");
  app.footer("Scenarios:\n" + ScenarioList() +
             "\nExit status: 0 done; 1 a rank failed (out of memory, a failed step); 2 usage; "
             "3 the simulated stack does not load; 128+N a rank was killed by signal N.");
  std::string leak_bytes = "8MiB";
  std::string zero_init = "on";
  app.add_option("--ranks", options->ranks, "processes")->check(CLI::Range(1, 1024));
  app.add_option("--steps", options->steps, "optimizer steps")->check(CLI::Range(0, 100000000));
  app.add_option("--scenario", options->scenario, "what goes on; see below");
  app.add_option("--leak-rank", options->leak_rank, "the rank that leaks, or all");
  app.add_option("--leak-bytes", leak_bytes, "bytes a step, such as 8MiB");
  app.add_option("--launcher", options->launcher, "whose environment the ranks get")
      ->check(CLI::IsMember({"torchrun", "deepspeed", "accelerate", "slurm", "ompi"}));
  app.add_option("--zero-init", zero_init, "build the model sharded")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--step-ms", options->step_ms, "milliseconds a step waits for the device")
      ->check(CLI::Range(0, 60000));
  app.add_option("--layers", options->layers, "layers of the model")->check(CLI::Range(1, 1000));
  app.add_option("--seed", options->seed, "seed of everything random");
  app.add_option("--hold", options->hold_s, "seconds that `masks` stays loaded");
  app.add_option("--truth", options->truth, "append one line of JSON per rank to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error) == 0 ? kOk : kUsage;
    return false;
  }
  const auto usage = [&](const std::string& message) {
    fprintf(stderr, "simtrain: %s (see simtrain --help)\n", message.c_str());
    *exit_code = kUsage;
    return false;
  };
  options->zero_init = zero_init == "on";
  options->leak_bytes = sim::ParseBytes(leak_bytes.c_str(), 0);
  if (options->leak_bytes == 0) {
    return usage("--leak-bytes " + leak_bytes + ": not a size such as 8MiB");
  }
  if (FindScenario(options->scenario) == nullptr) {
    return usage("--scenario " + options->scenario + ": there is no such scenario");
  }
  if (!options->leak_rank.empty() && options->leak_rank != "all") {
    char* end = nullptr;
    const long rank = strtol(options->leak_rank.c_str(), &end, 10);
    if (*end != '\0' || rank < 0 || rank >= options->ranks) {
      return usage("--leak-rank " + options->leak_rank + ": not a rank of this job, nor all");
    }
  }
  return true;
}

}  // namespace tidemark::simtrain
