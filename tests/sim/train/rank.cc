#include "tests/sim/train/rank.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/sim/torch/simtorch.h"

// Every function that allocates is kept out of line: stacks are to show it.
#define NOINLINE __attribute__((noinline))

namespace tidemark::simtrain {
namespace {

constexpr int kLayers = 12;
constexpr size_t kLayerBytes = 16 * kMiB;       // whole parameters of a layer, half precision
constexpr size_t kActivationBytes = 24 * kMiB;  // of a layer
constexpr size_t kScratchBytes = 3 * kMiB;

int FromEnvironment(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    if (const char* value = getenv(name)) return atoi(value);
  }
  return otherwise;
}

void Pause(double seconds) {
  timespec left = {
      static_cast<time_t>(seconds),
      static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
  while (nanosleep(&left, &left) != 0) {
  }
}

NOINLINE Tensor GatherParameters(Rank& rank) { return Allocate(rank, kLayerBytes); }

// Sharded: each rank holds 1/world of the parameters and of the optimizer's state. Without
// zero.Init the whole layer is built first and then cut.
NOINLINE void BuildLayer(Rank& rank, Layer* layer) {
  const auto part = kLayerBytes / static_cast<size_t>(rank.world);
  Tensor whole;
  if (!rank.options->zero_init) whole = Allocate(rank, kLayerBytes);
  layer->parameters = Allocate(rank, part);
  Release(rank, &whole);
}

NOINLINE void BuildOptimizerState(Rank& rank, Layer* layer) {
  const auto part = kLayerBytes / static_cast<size_t>(rank.world);
  layer->master = Allocate(rank, 2 * part);
  layer->momentum = Allocate(rank, 2 * part);
  layer->square = Allocate(rank, 2 * part);
}

NOINLINE void ForwardLayer(Rank& rank, Layer* layer) {
  Tensor parameters = GatherParameters(rank);
  Tensor scratch = Allocate(rank, kScratchBytes);
  // A different small size at each pass, as dropout masks and attention's lengths make them.
  Tensor odd = Allocate(rank, 1 + rank.random() % (kMiB / 2));
  layer->activations = Allocate(rank, kActivationBytes);
  Release(rank, &odd);
  Release(rank, &scratch);
  Release(rank, &parameters);
}

NOINLINE void BackwardLayer(Rank& rank, Layer* layer) {
  Tensor parameters = GatherParameters(rank);
  Tensor gradients = Allocate(rank, kLayerBytes);
  Release(rank, &layer->activations);
  if (layer->gradients.data == nullptr) {  // else it is added to: gradient accumulation
    layer->gradients = Allocate(rank, kLayerBytes / static_cast<size_t>(rank.world));
  }
  Release(rank, &gradients);
  Release(rank, &parameters);
}

void BackwardNode(void* argument) {
  Rank& rank = *static_cast<Rank*>(argument);
  for (auto layer = rank.layers.rbegin(); layer != rank.layers.rend(); ++layer) {
    BackwardLayer(rank, &*layer);
  }
}

NOINLINE void AdamWStep(Rank& rank) {
  Tensor scratch = Allocate(rank, kScratchBytes);
  Release(rank, &scratch);
}

void OptimizerBody(void* argument) { AdamWStep(*static_cast<Rank*>(argument)); }

void ZeroGradBody(void* argument) {
  Rank& rank = *static_cast<Rank*>(argument);
  for (Layer& layer : rank.layers) Release(rank, &layer.gradients);
}

NOINLINE void Forward(Rank& rank) {
  for (Layer& layer : rank.layers) ForwardLayer(rank, &layer);
  if (rank.scenario->forward != nullptr) rank.scenario->forward(rank);
}

NOINLINE void Backward(Rank& rank) {
  const std::string& scenario = rank.options->scenario;
  if (scenario == "raises" && rank.step % 10 == 5) {
    const size_t bytes = kScratchBytes;
    if (simtorch_backward(nullptr, &bytes, 1, rank.device, 0, /*fail=*/1) != 0) {
      ++rank.truth.backward_raised;
    }
  }
  if (scenario == "nested") {
    const size_t bytes = kScratchBytes;
    simtorch_backward(nullptr, &bytes, 1, rank.device, /*nested=*/1, 0);
  }
  simtorch_backward_with(&BackwardNode, &rank);
}

NOINLINE void OptimizerSteps(Rank& rank) {
  const std::string& scenario = rank.options->scenario;
  const int times = scenario == "subgroups" ? 7 : 1;
  for (int i = 0; i < times; ++i) {
    simtorch_user_scope("Optimizer.step#AdamW.step", &OptimizerBody, &rank);
  }
  if (scenario == "two-optimizers") {
    simtorch_user_scope("Optimizer.step#SGD.step", &OptimizerBody, &rank);
  }
  simtorch_user_scope("Optimizer.zero_grad#AdamW.zero_grad", &ZeroGradBody, &rank);
}

NOINLINE void TrainStep(Rank& rank) {
  const int passes = rank.options->scenario == "accumulate" ? 4 : 1;
  for (int i = 0; i < passes; ++i) {
    Forward(rank);
    Backward(rank);
  }
  OptimizerSteps(rank);
  if (rank.scenario->after != nullptr) rank.scenario->after(rank);
  simtorch_cuda_launch();
  Pause(rank.options->step_ms / 1e3);
}

void WriteTruth(const Rank& rank) {
  if (rank.options->truth.empty()) return;
  const Truth& t = rank.truth;
  const nlohmann::json line = {
      {"rank", rank.rank},
      {"local_rank", rank.local_rank},
      {"world", rank.world},
      {"pid", getpid()},
      {"device", rank.device},
      {"scenario", rank.options->scenario},
      {"zero_init", rank.options->zero_init},
      {"launcher", rank.options->launcher},
      {"steps", rank.step},
      {"layers", rank.layers.size()},
      {"leaks", rank.leaks},
      {"leak_function", rank.leaks ? rank.scenario->function : ""},
      {"leak_count", t.leaks},
      {"leaked_bytes", t.leaked_bytes},
      {"leak_bytes_per_step", rank.leaks && rank.step != 0 ? rank.options->leak_bytes : 0},
      {"first_leak_step", t.first_leak_step},
      {"fw_allocated", simtorch_memory_allocated(rank.device)},
      {"fw_reserved", simtorch_memory_reserved(rank.device)},
      {"fw_max_allocated", simtorch_max_memory_allocated(rank.device)},
      {"fw_max_reserved", simtorch_max_memory_reserved(rank.device)},
      {"fw_host", simtorch_cpu_allocated()},
      {"raw_cuda", t.raw_cuda_bytes},
      {"vmm", t.vmm_bytes},
      {"pool", t.async_bytes},
      {"pinned", t.pinned_bytes},
      {"host", t.host_bytes},
      {"communicator", t.comm_bytes},
      {"stack", t.stack_bytes},
      {"profiler_api_records", t.profiler_api_records},
      {"profiler_memory_records", t.profiler_memory_records},
      {"backward_raised", t.backward_raised},
  };
  const std::string text = line.dump() + "\n";
  const int fd = open(rank.options->truth.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    perror("simtrain: --truth");
  }
  if (fd >= 0) close(fd);
}

}  // namespace

void EndOutOfMemory(Rank& rank) {
  fprintf(stderr, "simtrain: rank %d, step %d: %s\n", rank.rank, rank.step, simtorch_last_error());
  WriteTruth(rank);
  exit(kFailed);
}

void Release(Rank& rank, Tensor* tensor) {
  if (tensor->data != nullptr) simtorch_delete(tensor->data, rank.device);
  *tensor = {};
}

void Leaked(Rank& rank, size_t bytes) {
  rank.truth.leaked_bytes += bytes;
  ++rank.truth.leaks;
  if (rank.truth.first_leak_step < 0) rank.truth.first_leak_step = rank.step;
}

int RunRank(const Options& options, const Scenario& scenario) {
  Rank rank;
  rank.options = &options;
  rank.scenario = &scenario;
  rank.rank = FromEnvironment({"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"}, 0);
  rank.local_rank =
      FromEnvironment({"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"}, 0);
  rank.world = FromEnvironment({"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"}, 1);
  rank.random.seed(options.seed + static_cast<uint64_t>(rank.rank));
  const std::string leak_rank = options.leak_rank.empty() ? scenario.leak_rank : options.leak_rank;
  rank.leaks =
      scenario.leaks && (leak_rank == "all" || atoi(leak_rank.c_str()) % rank.world == rank.rank);
  if (options.scenario == "zero-init-cat" && !options.zero_init) rank.leaks = false;
  const char* devices = getenv("TIDEMARK_SIM_DEVICES");
  const int device_count = devices != nullptr && atoi(devices) > 0 ? atoi(devices) : 8;
  rank.device = rank.local_rank % device_count;
  if (simtorch_set_device(rank.device) != 0) {
    fprintf(stderr, "simtrain: rank %d: %s\n", rank.rank, simtorch_last_error());
    return kNoLibraries;
  }
  const int layers = options.layers != 0    ? options.layers
                     : scenario.layers != 0 ? scenario.layers
                                            : kLayers;
  rank.layers.resize(static_cast<size_t>(layers));
  for (Layer& layer : rank.layers) BuildLayer(rank, &layer);
  if (scenario.trains) {
    for (Layer& layer : rank.layers) BuildOptimizerState(rank, &layer);
  }
  if (scenario.load != nullptr) scenario.load(rank);
  if (!scenario.trains) Pause(options.hold_s);
  for (; scenario.trains && rank.step < options.steps; ++rank.step) TrainStep(rank);
  WriteTruth(rank);
  return kOk;
}

}  // namespace tidemark::simtrain
