// What the agent adds to one block allocation and free of the framework, beside the bare call in
// the same run: the injected library as it is shipped, its hook on c10::reportMemoryUsageToProfiler
// of the simulated libc10, no stack. Bare calls go to the function's address, the others through
// the import slot that the agent patched; the two alternate.
//
//   agent_bench            Google Benchmark's table of the ledger alone, then the cost of a pair
//   agent_bench --check    exit 1 when a pair costs 100 ns or more
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cupti_agent/ledger/ledger.h"
#include "tests/sim/torch/c10.h"

namespace {

using tidemark::agent::FrameworkBlock;
using tidemark::agent::Ledger;
using tidemark::agent::StackFrame;
using tidemark::agent::StackView;

Ledger* OpenLedger() {
  static Ledger* const ledger = [] {
    auto* made = new Ledger;
    if (made->Open({.sampling_interval_bytes = 1ull << 40}) != nullptr)
      return static_cast<Ledger*>(nullptr);
    return made;
  }();
  return ledger;
}

// Blocks as a training step makes them: a few hundred live at a time, freed in another order.
constexpr uint64_t kBlocks = 512;
uint64_t Address(uint64_t i) { return 0x7f0000000000 + i * 2097152 / 4; }

void LedgerPair(Ledger* ledger, uint64_t i) {
  const FrameworkBlock block{Address(i * 7 % kBlocks), 4096, 0, i, i};
  ledger->FrameworkFreed(block);
  const uint64_t estimate = ledger->Sample(block.bytes);
  ledger->FrameworkAllocated(block, estimate, nullptr);
}

void WithoutStack(benchmark::State& state) {
  Ledger* ledger = OpenLedger();
  for (uint64_t i = 0; i < kBlocks; ++i) {
    ledger->FrameworkAllocated({Address(i), 4096, 0, 0, 0}, 0, nullptr);
  }
  uint64_t i = 0;
  for (auto _ : state) LedgerPair(ledger, i++);
  for (uint64_t k = 0; k < kBlocks; ++k) ledger->FrameworkFreed({Address(k), 4096, 0, 0, 0});
}
BENCHMARK(WithoutStack);

void WithKnownSite(benchmark::State& state) {
  Ledger* ledger = OpenLedger();
  StackView stack;
  stack.hash = 12345;
  stack.count = 1;
  stack.resolve = [](const StackView&, uint16_t, StackFrame* frame) {
    frame->kind = tidemark::wire::FrameKind::kPython;
    frame->file = "train.py";
    frame->function = "forward";
    return true;
  };
  uint64_t i = 0;
  for (auto _ : state) {
    const FrameworkBlock block{Address(i++ % kBlocks), 4096, 0, i, i};
    ledger->FrameworkAllocated(block, 4096, &stack);
    ledger->FrameworkFreed(block);
  }
}
BENCHMARK(WithKnownSite);

void Sampling(benchmark::State& state) {
  Ledger* ledger = OpenLedger();
  for (auto _ : state) benchmark::DoNotOptimize(ledger->Sample(4096));
}
BENCHMARK(Sampling);

using Report = void (*)(void*, int64_t, size_t, size_t, c10::Device);
constexpr char kReportName[] = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";

template <typename Function>
void Pair(Function report, uint64_t i) {
  void* address = reinterpret_cast<void*>(Address(i * 7 % kBlocks));
  const c10::Device device = {c10::DeviceType::CUDA, 0};
  report(address, 4096, i, i, device);
  report(address, -4096, i, i, device);
}

// Loads the agent as the driver does. Stacks so rare that none is taken; no CUPTI.
bool Inject() {
  setenv("TIDEMARK_TAPS", "framework", 1);
  setenv("TIDEMARK_SAMPLING_BYTES", "1099511627776", 1);
  void* library = dlopen(AGENT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  auto* entry = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  return entry != nullptr && entry() == 1;
}

// The median of the paired differences: the machine's mood is then the same for both.
double PairCostNs(double* bare_ns) {
  const auto bare_report = reinterpret_cast<Report>(dlsym(RTLD_DEFAULT, kReportName));
  if (bare_report == nullptr || !Inject()) return -1;
  constexpr int kRounds = 101;
  constexpr uint64_t kPairs = 20000;
  using Clock = std::chrono::steady_clock;
  auto time_ns = [](auto body) {
    const auto start = Clock::now();
    for (uint64_t i = 0; i < kPairs; ++i) body(i);
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kPairs;
  };
  std::vector<double> differences, bares;
  for (int round = 0; round < kRounds; ++round) {
    const double bare = time_ns([&](uint64_t i) { Pair(bare_report, i); });
    const double agent = time_ns(
        [](uint64_t i) { Pair([](auto... a) { c10::reportMemoryUsageToProfiler(a...); }, i); });
    bares.push_back(bare);
    differences.push_back(agent - bare);
  }
  std::nth_element(bares.begin(), bares.begin() + kRounds / 2, bares.end());
  std::nth_element(differences.begin(), differences.begin() + kRounds / 2, differences.end());
  *bare_ns = bares[kRounds / 2];
  return differences[kRounds / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const bool check = argc == 2 && strcmp(argv[1], "--check") == 0;
  if (OpenLedger() == nullptr) {
    fprintf(stderr, "agent_bench: the region could not be made\n");
    return 1;
  }
  if (!check) {
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
  }
  double bare_ns = 0;
  const double cost_ns = PairCostNs(&bare_ns);
  if (cost_ns < 10) {
    fprintf(stderr, "agent_bench: the agent is not in the way (%.1f ns): no hook was set\n",
            cost_ns);
    return 1;
  }
  printf("block alloc + free without a stack: agent adds %.1f ns to %.1f ns of bare calls\n",
         cost_ns, bare_ns);
  return check && cost_ns >= 100 ? 1 : 0;
}
