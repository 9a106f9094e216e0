// The scenarios: what each adds to the same training loop.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/sim/torch/simtorch.h"
#include "tests/sim/train/rank.h"

#define NOINLINE __attribute__((noinline))

namespace tidemark::simtrain {
namespace {

[[noreturn]] void Fail(const Rank& rank, const char* what) {
  fprintf(stderr, "simtrain: rank %d, step %d: %s: out of memory\n", rank.rank, rank.step, what);
  exit(kFailed);
}

// The module of the thread: it concatenates whole weights in forward and keeps the result under a
// key that is fresh at every pass when zero.Init made the parameters, and the same otherwise.
NOINLINE void ConcatenateWeights(Rank& rank) {
  Tensor whole = Allocate(rank, rank.options->leak_bytes);
  if (rank.leaks) {
    rank.kept.push_back(whole);
    Leaked(rank, whole.bytes);
    return;
  }
  rank.kept.resize(1);
  Release(rank, &rank.kept[0]);
  rank.kept[0] = whole;
}

NOINLINE void KeepLossWithGraph(Rank& rank) {
  if (!rank.leaks) return;
  rank.kept.push_back(Allocate(rank, rank.options->leak_bytes));
  Leaked(rank, rank.options->leak_bytes);
}

void KeepLossLate(Rank& rank) {
  if (rank.step >= rank.options->steps / 2) KeepLossWithGraph(rank);
}

// An evaluation every 50 steps: forward passes without backward, and a hook that keeps outputs.
NOINLINE void EvaluateAndKeep(Rank& rank) {
  if (rank.step % 50 != 49) return;
  for (int i = 0; i < 10; ++i) {
    Tensor outputs = Allocate(rank, 32 * kMiB);
    Release(rank, &outputs);
    KeepLossWithGraph(rank);
  }
}

NOINLINE void AllocateKernelWorkspace(Rank& rank) {
  if (!rank.leaks) return;
  if (simtorch_cuda_malloc(rank.options->leak_bytes) == nullptr) Fail(rank, "cudaMalloc");
  rank.truth.raw_cuda_bytes += rank.options->leak_bytes;
  Leaked(rank, rank.options->leak_bytes);
}

NOINLINE void MapMoreMemory(Rank& rank) {
  if (!rank.leaks) return;
  const size_t bytes = (rank.options->leak_bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
  if (simtorch_vmm_alloc(bytes, rank.device) == nullptr) Fail(rank, "cuMemCreate");
  rank.truth.vmm_bytes += bytes;
  Leaked(rank, bytes);
}

// Pinned staging buffers: two in use and given back at each step, one more kept by a rank that
// leaks.
NOINLINE void StageThroughPinned(Rank& rank) {
  void* a = simtorch_pin_memory(4 * kMiB);
  void* b = simtorch_pin_memory(4 * kMiB);
  if (rank.leaks) {
    if (simtorch_pin_memory(rank.options->leak_bytes) == nullptr) Fail(rank, "cudaHostAlloc");
    rank.truth.pinned_bytes += rank.options->leak_bytes;
    Leaked(rank, rank.options->leak_bytes);
  }
  simtorch_unpin_memory(a);
  simtorch_unpin_memory(b);
}

NOINLINE void AllocateStreamOrdered(Rank& rank) {
  for (int i = 0; i < 8; ++i) {
    void* scratch = simtorch_cuda_malloc_async(6 * kMiB);
    if (scratch == nullptr) Fail(rank, "cudaMallocAsync");
    simtorch_cuda_free_async(scratch);
  }
  if (rank.leaks) {
    if (simtorch_cuda_malloc_async(rank.options->leak_bytes) == nullptr) {
      Fail(rank, "cudaMallocAsync");
    }
    rank.truth.async_bytes += rank.options->leak_bytes;
    Leaked(rank, rank.options->leak_bytes);
  }
  simtorch_cuda_synchronize();
}

// GPT-2's causal masks: full precision, whole on every rank, in every layer, from loading on.
NOINLINE void BuildCausalMasks(Rank& rank) {
  for (size_t i = 0; i < rank.layers.size(); ++i) {
    rank.kept.push_back(Allocate(rank, 256 * kMiB));
  }
}

// Batches that grow now and then: each new length fits no cached segment, and the old ones stay.
NOINLINE void ForwardLongerBatch(Rank& rank) {
  const auto longer = static_cast<size_t>(rank.step / 5);
  Tensor batch = Allocate(rank, (64 + 2 * longer) * kMiB);
  Release(rank, &batch);
}

// Workspaces and caches that fill during the first sixty steps and then stay.
NOINLINE void FillCaches(Rank& rank) {
  if (rank.step < 60) rank.kept.push_back(Allocate(rank, rank.options->leak_bytes));
}

// A cache that an epoch of fifty steps fills and its end empties.
NOINLINE void FillEpochCache(Rank& rank) {
  if (rank.step % 50 == 49) {
    for (Tensor& tensor : rank.kept) Release(rank, &tensor);
    rank.kept.clear();
    return;
  }
  rank.kept.push_back(Allocate(rank, rank.options->leak_bytes));
}

NOINLINE void HoldMoreOnHigherRanks(Rank& rank) {
  if (rank.rank != 0) {
    rank.kept.push_back(Allocate(rank, static_cast<size_t>(rank.rank) * 64 * kMiB));
  }
}

NOINLINE void RaiseStackLimit(Rank& rank) {
  if (rank.step != rank.options->steps / 2) return;
  if (simtorch_cuda_set_stack_limit(16384) != 0) Fail(rank, "cudaDeviceSetLimit");
  rank.truth.stack_bytes = (16384 - 1024) * 132ULL * 2048;
}

// A second communicator, made in the middle of training.
NOINLINE void InitCommunicator(Rank& rank) {
  if (rank.step != rank.options->steps / 3) return;
  constexpr int kChannels = 16;
  constexpr size_t kChannelBytes = 10 * kMiB;
  void* nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (nccl == nullptr) Fail(rank, "libnccl.so.2");
  auto* init = reinterpret_cast<void* (*)(int, int, size_t)>(dlsym(nccl, "ncclSimCommInit"));
  if (init == nullptr || init(rank.device, kChannels, kChannelBytes) == nullptr) {
    Fail(rank, "ncclCommInit");
  }
  rank.truth.comm_bytes = kChannels * kChannelBytes;
}

NOINLINE void LoadModules(Rank& rank) {
  if (rank.step == rank.options->steps / 2 && simtorch_cuda_load_modules(33) != 0) {
    Fail(rank, "cuModuleLoadData");
  }
}

NOINLINE void KeepCpuTensors(Rank& rank) {
  if (!rank.leaks) return;
  void* data = simtorch_empty(rank.options->leak_bytes, -1);
  if (data == nullptr) Fail(rank, "DefaultCPUAllocator");
  memset(data, 1, rank.options->leak_bytes);
  rank.truth.host_bytes += rank.options->leak_bytes;
  Leaked(rank, rank.options->leak_bytes);
}

// The C heap, outside every framework.
NOINLINE void KeepHeapBlocks(Rank& rank) {
  if (!rank.leaks) return;
  for (uint64_t left = rank.options->leak_bytes; left != 0;) {
    const uint64_t bytes = left < (48 << 10) ? left : (48 << 10);  // below the mmap threshold
    void* block = malloc(bytes);
    if (block == nullptr) Fail(rank, "malloc");
    memset(block, 1, bytes);
    left -= bytes;
  }
  rank.truth.host_bytes += rank.options->leak_bytes;
  Leaked(rank, rank.options->leak_bytes);
}

NOINLINE void MapAnonymousMemory(Rank& rank) {
  if (!rank.leaks) return;
  void* map = mmap(nullptr, rank.options->leak_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) Fail(rank, "mmap");
  memset(map, 1, rank.options->leak_bytes);
  rank.truth.host_bytes += rank.options->leak_bytes;
  Leaked(rank, rank.options->leak_bytes);
}

NOINLINE void KeepSharedMemory(Rank& rank) {
  if (!rank.leaks) return;
  const int fd = memfd_create("simtrain-shm", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(rank.options->leak_bytes)) != 0) {
    Fail(rank, "memfd_create");
  }
  void* map = mmap(nullptr, rank.options->leak_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (map == MAP_FAILED) Fail(rank, "mmap");
  memset(map, 1, rank.options->leak_bytes);
  rank.truth.host_bytes += rank.options->leak_bytes;
  Leaked(rank, rank.options->leak_bytes);
}

// DataLoader workers: forked, they allocate CPU tensors and end. The parent's totals must not move.
NOINLINE void ForkWorkers(Rank& rank) {
  if (rank.step % 20 != 10) return;
  pid_t workers[2];
  for (pid_t& worker : workers) {
    worker = fork();
    if (worker == 0) {
      for (int i = 0; i < 100; ++i) {
        void* batch = simtorch_empty(64 << 10, -1);
        memset(batch, 1, 64 << 10);
        if (i % 2 == 0) simtorch_delete(batch, -1);
      }
      simtorch_cuda_malloc(kMiB);  // the driver refuses: CUDA does not survive a fork
      _exit(0);
    }
  }
  for (const pid_t worker : workers) {
    if (worker > 0) waitpid(worker, nullptr, 0);
  }
}

NOINLINE void UseProfiler(Rank& rank) {
  if (rank.step == 10) simtorch_profiler_start();
  if (rank.step == 20) {
    simtorch_profiler_stop(&rank.truth.profiler_api_records, &rank.truth.profiler_memory_records);
  }
}

// Every rank also opens a context on device 0, as a forgotten torch.cuda.set_device does.
NOINLINE void TouchDeviceZero(Rank& rank) {
  if (rank.device == 0) return;
  void* data = simtorch_empty(kMiB, 0);
  if (data == nullptr) Fail(rank, "device 0");
  simtorch_set_device(rank.device);
}

constexpr Scenario kScenarios[] = {
    {"steady", "trains; nothing grows", false, "all", "", nullptr, nullptr, nullptr, 0, true},
    {"zero-init-cat", "with zero.Init on, whole weights stay under a fresh key at each forward",
     true, "all", "ConcatenateWeights", nullptr, ConcatenateWeights, nullptr, 0, true},
    {"one-rank", "one rank keeps its losses with their graphs", true, "1", "KeepLossWithGraph",
     nullptr, nullptr, KeepLossWithGraph, 0, true},
    {"late-onset", "like one-rank on all ranks, from half way on", true, "all", "KeepLossWithGraph",
     nullptr, nullptr, KeepLossLate, 0, true},
    {"eval-leak", "a hook keeps outputs of evaluations, every 50 steps", true, "all",
     "EvaluateAndKeep", nullptr, nullptr, EvaluateAndKeep, 0, true},
    {"raw-cuda", "cudaMalloc outside the framework leaks", true, "all", "AllocateKernelWorkspace",
     nullptr, nullptr, AllocateKernelWorkspace, 0, true},
    {"vmm", "cuMemCreate outside the framework leaks", true, "all", "MapMoreMemory", nullptr,
     nullptr, MapMoreMemory, 0, true},
    {"pinned", "pinned staging buffers leak", true, "all", "StageThroughPinned", nullptr, nullptr,
     StageThroughPinned, 0, true},
    {"async-pool", "cudaMallocAsync leaks beside pairs of it", true, "all", "AllocateStreamOrdered",
     nullptr, nullptr, AllocateStreamOrdered, 0, true},
    {"host", "CPU tensors are kept", true, "all", "KeepCpuTensors", nullptr, nullptr,
     KeepCpuTensors, 0, true},
    {"heap", "malloc outside the framework leaks", true, "all", "KeepHeapBlocks", nullptr, nullptr,
     KeepHeapBlocks, 0, true},
    {"mmap", "anonymous mappings are kept", true, "all", "MapAnonymousMemory", nullptr, nullptr,
     MapAnonymousMemory, 0, true},
    {"shm", "shared memory is kept", true, "all", "KeepSharedMemory", nullptr, nullptr,
     KeepSharedMemory, 0, true},
    {"masks", "36 layers each hold a 256 MiB mask; loads only, no step", false, "all", "",
     BuildCausalMasks, nullptr, nullptr, 36, false},
    {"fragmentation", "longer batches leave cached segments behind", false, "all", "", nullptr,
     ForwardLongerBatch, nullptr, 0, true},
    {"warmup", "caches fill during 60 steps and stay", false, "all", "", nullptr, FillCaches,
     nullptr, 0, true},
    {"sawtooth", "a cache fills for 50 steps and is emptied", false, "all", "", nullptr,
     FillEpochCache, nullptr, 0, true},
    {"subgroups", "seven optimizer scopes after each backward", false, "all", "", nullptr, nullptr,
     nullptr, 0, true},
    {"two-optimizers", "two optimizers step after each backward", false, "all", "", nullptr,
     nullptr, nullptr, 0, true},
    {"accumulate", "four backward passes a step", false, "all", "", nullptr, nullptr, nullptr, 0,
     true},
    {"nested", "a re-entrant backward pass inside another", false, "all", "", nullptr, nullptr,
     nullptr, 0, true},
    {"raises", "every tenth step a backward pass raises and is caught", false, "all", "", nullptr,
     nullptr, nullptr, 0, true},
    {"fork-workers", "forked workers allocate CPU tensors", false, "all", "", nullptr, nullptr,
     ForkWorkers, 0, true},
    {"profiler", "a profiler takes CUPTI for steps 10 to 20", false, "all", "", nullptr, nullptr,
     UseProfiler, 0, true},
    {"oom", "one rank keeps its losses until the device is full", true, "0", "KeepLossWithGraph",
     nullptr, nullptr, KeepLossWithGraph, 0, true},
    {"rank-skew", "rank N holds N x 64 MiB more; nothing grows", false, "all", "",
     HoldMoreOnHigherRanks, nullptr, nullptr, 0, true},
    {"stack-limit", "half way, the stack limit is raised: 3960 MiB that no call shows", false,
     "all", "", nullptr, nullptr, RaiseStackLimit, 0, true},
    {"nccl", "after a third, a communicator takes 160 MiB by cuMemCreate", false, "all", "",
     nullptr, nullptr, InitCommunicator, 0, true},
    {"modules", "half way, 33 modules are loaded: 66 MiB that no call shows", false, "all", "",
     nullptr, nullptr, LoadModules, 0, true},
    {"expandable", "steady, on expandable segments", false, "all", "", nullptr, nullptr, nullptr, 0,
     true},
    {"foreign-context", "every rank also has a context on device 0", false, "all", "",
     TouchDeviceZero, nullptr, nullptr, 0, true},
};

}  // namespace

const Scenario* FindScenario(const std::string& name) {
  for (const Scenario& scenario : kScenarios) {
    if (name == scenario.name) return &scenario;
  }
  return nullptr;
}

std::string ScenarioList() {
  std::string list;
  for (const Scenario& scenario : kScenarios) {
    std::string name = std::string("  ") + scenario.name;
    name.resize(20, ' ');
    list += name + scenario.says + "\n";
  }
  return list;
}

}  // namespace tidemark::simtrain
