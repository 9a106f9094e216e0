// What the agent adds to one block allocation and free of the framework, beside the bare call in
// the same run. The bare call is an indirect call of an empty report function, as libc10_cuda makes
// it with no profiler on.
//
//   agent_bench            Google Benchmark's table, then the ratio and the cost of a pair
//   agent_bench --check    exit 1 when a pair without a stack costs 100 ns or more
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "cupti_agent/ledger/ledger.h"

namespace {

using tidemark::agent::FrameworkBlock;
using tidemark::agent::Ledger;
using tidemark::agent::StackFrame;
using tidemark::agent::StackView;

__attribute__((noinline)) void BareReport(void* address, int64_t bytes, size_t, size_t) {
  benchmark::DoNotOptimize(address);
  benchmark::DoNotOptimize(bytes);
}
void (*volatile g_report)(void*, int64_t, size_t, size_t) = BareReport;

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

void BarePair(uint64_t i) {
  void* address = reinterpret_cast<void*>(Address(i % kBlocks));
  g_report(address, 4096, i, i);
  g_report(address, -4096, i, i);
}

void AgentPair(Ledger* ledger, uint64_t i) {
  const FrameworkBlock block{Address(i * 7 % kBlocks), 4096, 0, i, i};
  ledger->FrameworkFreed(block);
  const uint64_t estimate = ledger->Sample(block.bytes);
  ledger->FrameworkAllocated(block, estimate, nullptr);
  BarePair(i);
}

void Bare(benchmark::State& state) {
  uint64_t i = 0;
  for (auto _ : state) BarePair(i++);
}
BENCHMARK(Bare);

void WithoutStack(benchmark::State& state) {
  Ledger* ledger = OpenLedger();
  for (uint64_t i = 0; i < kBlocks; ++i) {
    ledger->FrameworkAllocated({Address(i), 4096, 0, 0, 0}, 0, nullptr);
  }
  uint64_t i = 0;
  for (auto _ : state) AgentPair(ledger, i++);
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

// Alternates bare and agent in one run and takes the median of the paired differences: the
// machine's mood is then the same for both.
double PairCostNs(double* bare_ns) {
  Ledger* ledger = OpenLedger();
  for (uint64_t i = 0; i < kBlocks; ++i) {
    ledger->FrameworkAllocated({Address(i), 4096, 0, 0, 0}, 0, nullptr);
  }
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
    const double bare = time_ns(BarePair);
    const double agent = time_ns([&](uint64_t i) { AgentPair(ledger, i); });
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
  printf("block alloc + free without a stack: agent adds %.1f ns to %.1f ns of bare calls\n",
         cost_ns, bare_ns);
  return check && cost_ns >= 100 ? 1 : 0;
}
