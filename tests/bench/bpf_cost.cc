// What the probes cost, measured in pairs: each round runs the same loops with everything detached,
// with another process watched, and with this one watched. Prints per loop the time of one
// operation without probes, the median difference, and its 95 % interval over the rounds.
//
//   bpf_cost [ROUNDS]     (60)
//
// The clock is the thread's CPU time, which holds what probes add and not what neighbours take.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/source/bpf/bpf_source.h"
#include "tests/sim/cuda_api.h"

namespace tidemark {
namespace {

double CpuNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

struct Loop {
  const char* name;
  int operations;
  void (*run)(int operations);
};

void SystemCalls(int operations) {
  for (int i = 0; i < operations; ++i) syscall(SYS_getppid);
}

void Faults(int operations) {
  const size_t bytes = static_cast<size_t>(operations) * 4096;
  auto* block = static_cast<char*>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  madvise(block, bytes, MADV_NOHUGEPAGE);
  for (size_t at = 0; at < bytes; at += 4096) block[at] = 1;
  munmap(block, bytes);
}

void Mappings(int operations) {
  for (int i = 0; i < operations; ++i) {
    munmap(mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
           1 << 20);
  }
}

void SmallBlocks(int operations) {
  for (int i = 0; i < operations; ++i) {
    void* volatile block = malloc(64 + static_cast<size_t>(i) % 4096);
    free(block);
  }
}

void PinnedBlocks(int operations) {
  for (int i = 0; i < operations; ++i) {
    void* block = nullptr;
    if (cuMemHostAlloc(&block, 4096, 0) == CUDA_SUCCESS) cuMemFreeHost(block);
  }
}

void StreamOrderedBlocks(int operations) {
  for (int i = 0; i < operations; ++i) {
    CUdeviceptr block = 0;
    if (cuMemAllocAsync(&block, 4096, nullptr) == CUDA_SUCCESS) cuMemFreeAsync(block, nullptr);
  }
}

constexpr Loop kLoops[] = {
    {"getppid", 20000, SystemCalls},
    {"page fault", 2000, Faults},
    {"mmap + munmap", 1000, Mappings},
    {"malloc + free, small", 50000, SmallBlocks},
    {"cuMemHostAlloc + Free (simulated)", 200, PinnedBlocks},
    {"cuMemAllocAsync + FreeAsync (simulated)", 1000, StreamOrderedBlocks},
};
constexpr size_t kLoopCount = std::size(kLoops);

// The measured process: for each byte on its input, all loops once; their times go out.
void Child(int input, int output) {
  CUcontext context;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS) {
    _exit(1);
  }
  char byte;
  for (const Loop& loop : kLoops) loop.run(loop.operations / 10 + 1);  // warm
  if (write(output, "r", 1) != 1) _exit(1);
  while (read(input, &byte, 1) == 1) {
    double ns[kLoopCount];
    for (size_t i = 0; i < kLoopCount; ++i) {
      const double begin = CpuNs();
      kLoops[i].run(kLoops[i].operations);
      ns[i] = (CpuNs() - begin) / kLoops[i].operations;
    }
    if (write(output, ns, sizeof(ns)) != sizeof(ns)) break;
  }
  _exit(0);
}

using Times = std::vector<double>;  // by loop

struct Differences {
  std::vector<double> base, with;
};

// Median with the order statistics that hold it with 95 % confidence.
void Print(const char* name, const char* what, Differences d) {
  std::vector<double> difference, ratio;
  for (size_t i = 0; i < d.base.size(); ++i) {
    difference.push_back(d.with[i] - d.base[i]);
    ratio.push_back(d.with[i] / d.base[i]);
  }
  for (auto* values : {&difference, &ratio, &d.base}) std::sort(values->begin(), values->end());
  const size_t n = difference.size();
  const auto low = static_cast<size_t>(
      std::max(0.0, static_cast<double>(n) / 2 - 0.98 * std::sqrt(static_cast<double>(n))));
  const size_t high = n - 1 - low;
  printf("%-42s %-9s %9.1f ns %+9.1f ns (%+.1f to %+.1f)  ratio %.4f (%.4f to %.4f)\n", name, what,
         d.base[n / 2], difference[n / 2], difference[low], difference[high], ratio[n / 2],
         ratio[low], ratio[high]);
}

bool WaitFor(const std::function<bool()>& holds) {
  for (int i = 0; i < 2000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

int Main(int rounds) {
  int to[2], from[2];
  if (pipe(to) != 0 || pipe(from) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) Child(to[0], from[1]);
  char byte;
  if (read(from[0], &byte, 1) != 1) return 1;

  BpfConfig config;
  config.ring_bytes = 64u << 20;
  BpfSource source(config, ProcRoot());
  if (!source.Start().ok()) return 1;
  WaitFor([&] {
    return std::ranges::none_of(source.States(), [](const BpfFamilyState& family) {
      return family.reason == kBeingLoaded;
    });
  });
  for (const BpfFamilyState& family : source.States()) {
    if (!family.attached) {
      printf("%s: %s (%s)\n", family.name.c_str(), family.reason.c_str(), family.hint.c_str());
      return 1;
    }
  }

  auto measure = [&] {
    Times times(kLoopCount);
    if (write(to[1], "g", 1) != 1 || read(from[0], times.data(), sizeof(double) * kLoopCount) < 0) {
      exit(1);
    }
    return times;
  };
  auto watch = [&](pid_t pid, BpfWatch wanted) {
    source.SetProcess(pid, wanted);
    const bool done = WaitFor([&] {
      const BpfSnapshot snapshot = source.Collect();
      auto found = std::ranges::find(snapshot.processes, pid, &BpfProcess::pid);
      if (wanted == BpfWatch{}) return found == snapshot.processes.end();
      return found != snapshot.processes.end() &&
             (wanted.cuda == BpfMode::kOff || found->mode == wanted.cuda);
    });
    if (!done) exit(1);
    // Host probes go on in the same pass of the source's thread that shows the process.
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  };

  Differences unwatched[kLoopCount], watched[kLoopCount], witness[kLoopCount], ledger[kLoopCount];
  BpfWatch host, by_witness, by_ledger;
  host.host = true;
  by_witness.cuda = BpfMode::kWitness;
  by_ledger.cuda = BpfMode::kLedger;
  auto take = [](Differences* all, const Times& base, const Times& with) {
    for (size_t i = 0; i < kLoopCount; ++i) {
      all[i].base.push_back(base[i]);
      all[i].with.push_back(with[i]);
    }
  };
  for (int round = 0; round < rounds; ++round) {
    const Times base = measure();
    watch(getpid(), host);
    take(unwatched, base, measure());
    watch(getpid(), {});
    watch(child, host);
    take(watched, base, measure());
    watch(child, by_witness);
    take(witness, base, measure());
    watch(child, by_ledger);
    take(ledger, base, measure());
    watch(child, {});
  }

  printf("%d rounds; the difference is per operation\n", rounds);
  for (size_t i = 0; i < 4; ++i) {
    Print(kLoops[i].name, "unwatched", unwatched[i]);
    Print(kLoops[i].name, "watched", watched[i]);
  }
  for (size_t i = 4; i < kLoopCount; ++i) {
    Print(kLoops[i].name, "witness", witness[i]);
    Print(kLoops[i].name, "ledger", ledger[i]);
  }
  close(to[1]);
  waitpid(child, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) { return tidemark::Main(argc > 1 ? atoi(argv[1]) : 60); }
