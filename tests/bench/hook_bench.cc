// What the whole tap adds to one block allocation and free: the import hook's thunk, the observer
// and the ledger, beside the same calls past the hook in the same run.
//
//   hook_bench            the figures
//   hook_bench --check    exit 1 when a pair without a stack costs 100 ns or more
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "cupti_agent/framework/framework.h"
#include "cupti_agent/hooks/import_hooks.h"
#include "cupti_agent/ledger/alive.h"
#include "cupti_agent/ledger/ledger.h"
#include "cupti_agent/stack/stack.h"

namespace {

using namespace tidemark::agent;  // NOLINT

constexpr int kPairs = 20000;
constexpr int kRounds = 60;

double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double PairNs(void (*pairs)(int)) {
  double begin = Now();
  pairs(kPairs);
  return (Now() - begin) / kPairs;
}

}  // namespace

int main(int argc, char** argv) {
  void* framework = dlopen(HOOK_BENCH_FRAMEWORK, RTLD_NOW | RTLD_LOCAL);
  if (framework == nullptr) return fprintf(stderr, "hook_bench: %s\n", dlerror()), 1;
  auto through_slot = reinterpret_cast<void (*)(int)>(dlsym(framework, "bench_pairs"));
  auto past_hook = reinterpret_cast<void (*)(int)>(dlsym(framework, "bench_pairs_by_pointer"));

  if (g_ledger.Open({.sampling_interval_bytes = 1ull << 60}) != nullptr || !BecomeAlive()) return 1;
  InitHooks(g_alive);
  InitStacks();
  StartFramework({});
  ScanForNewModules();

  // Alternating, and the least of each: this measures the code, not the machine's other work.
  double bare = 1e9, tapped = 1e9;
  for (int i = 0; i < kRounds; ++i) {
    bare = std::min(bare, PairNs(past_hook));
    tapped = std::min(tapped, PairNs(through_slot));
  }
  uint64_t frees = 0;
  for (uint64_t i = 0; i < g_ledger.region().Entry(tidemark::wire::Section::kTotals).used; ++i) {
    frees += g_ledger.region()
                 .Rows<tidemark::wire::TotalsRow>(tidemark::wire::Section::kTotals)[i]
                 .frees;
  }
  if (frees < static_cast<uint64_t>(kPairs) * kRounds) {
    return fprintf(stderr, "hook_bench: the hook did not see the calls\n"), 1;
  }
  double cost = tapped - bare;
  printf("pair past the hook %.1f ns, through it %.1f ns: %.1f ns added, ratio %.1f\n", bare,
         tapped, cost, tapped / bare);
  double unwound = 1e9;
  for (int i = 0; i < kRounds; ++i) {
    double begin = Now();
    for (int k = 0; k < 100; ++k) {
      Stack stack;
      CaptureNative(&stack);
    }
    unwound = std::min(unwound, (Now() - begin) / 100);
  }
  printf("one native stack %.0f ns\n", unwound);
  bool check = argc > 1 && strcmp(argv[1], "--check") == 0;
  return check && cost >= 100 ? 1 : 0;
}
