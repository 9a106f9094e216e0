// One rank of the simulated job: a ZeRO-3 model on a device, its training loop, and the bookkeeping
// that becomes the truth line. Single-threaded but for the engine's device thread, which runs the
// backward nodes while this thread waits.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/sim/torch/simtorch.h"
#include "tests/sim/train/options.h"

namespace tidemark::simtrain {

inline constexpr size_t kMiB = 1 << 20;

struct Tensor {
  void* data = nullptr;
  size_t bytes = 0;
};

struct Layer {
  Tensor parameters;                // this rank's part of them, half precision
  Tensor master, momentum, square;  // this rank's part of the optimizer state, single precision
  Tensor gradients;                 // this rank's part, from backward to step
  Tensor activations;               // from forward to backward
};

// What the rank knows to be true about its memory, by how it was taken.
struct Truth {
  uint64_t leaked_bytes = 0;
  uint64_t leaks = 0;
  int first_leak_step = -1;
  uint64_t raw_cuda_bytes = 0;
  uint64_t vmm_bytes = 0;
  uint64_t async_bytes = 0;
  uint64_t pinned_bytes = 0;  // as asked for
  uint64_t host_bytes = 0;    // CPU tensors that stay
  uint64_t comm_bytes = 0;
  uint64_t stack_bytes = 0;
  int64_t profiler_api_records = -1;
  int64_t profiler_memory_records = -1;
  int backward_raised = 0;
};

struct Scenario;

struct Rank {
  const Options* options = nullptr;
  const Scenario* scenario = nullptr;
  int rank = 0;
  int local_rank = 0;
  int world = 1;
  int device = 0;
  int step = 0;
  bool leaks = false;
  std::mt19937_64 random;
  std::vector<Layer> layers;
  std::vector<Tensor> kept;  // by whatever the scenario keeps
  Truth truth;
};

// What a scenario adds to the training loop; a null function adds nothing.
struct Scenario {
  const char* name;
  const char* says;
  bool leaks;              // at least one rank leaks (with zero.Init on, for zero-init-cat)
  const char* leak_rank;   // default of --leak-rank
  const char* function;    // where a native stack shows the leak
  void (*load)(Rank&);     // after the model is built
  void (*forward)(Rank&);  // inside each forward pass
  void (*after)(Rank&);    // after each step
  int layers;              // 0: the default
  bool trains;
};

const Scenario* FindScenario(const std::string& name);
std::string ScenarioList();

// Exits the process with kFailed, after saying so as PyTorch does.
[[noreturn]] void EndOutOfMemory(Rank& rank);
// Never a frame of its own: the site of a tensor is who wanted it.
[[gnu::always_inline]] inline Tensor Allocate(Rank& rank, size_t bytes) {
  void* data = simtorch_empty(bytes, rank.device);
  if (data == nullptr) EndOutOfMemory(rank);
  return {data, bytes};
}
void Release(Rank& rank, Tensor* tensor);
// Books a leak in the truth.
void Leaked(Rank& rank, size_t bytes);

// Builds the model, trains, writes the truth line. Returns an exit code.
int RunRank(const Options& options, const Scenario& scenario);

// Starts the ranks as processes with the launcher's environment and waits for them.
int Launch(const Options& options, int argc, char** argv);
// Whether this process was started by Launch.
bool IsRankProcess();

}  // namespace tidemark::simtrain
