// The framework's taps: PyTorch's own allocator reports, backward passes, optimizer scopes, and the
// steps and phases made of them. Observes through import hooks (cupti_agent/hooks) and one
// USER_SCOPE callback; books into the ledger.
//
//   c10::reportMemoryUsageToProfiler       -> FrameworkAllocated / FrameworkFreed
//   c10::reportOutOfMemoryToProfiler       -> OutOfMemory
//   c10::ProfiledCPUMemoryReporter::New    -> HostTensorAllocated, Delete -> HostTensorFreed
//   torch::autograd::Engine::execute       -> outermost backward passes
//   at::addGlobalCallback, USER_SCOPE      -> scopes named Optimizer.step#...
//   nvtxRangePushA, nvtxDomainRangePushEx  -> ranges named by the configuration
//
// Whether the framework is loaded before the agent, after it, or never does not matter: hooks are
// registered once and patched when ScanForNewModules() finds the importing module.
#pragma once

#include <cstdint>

namespace tidemark::agent {

struct FrameworkConfig {
  bool allocator = true;           // wire::kTapFramework
  bool steps = true;               // wire::kTapSteps
  uint32_t backward_per_step = 1;  // where optimizer scopes cannot be had; 0 = leave as it is
  const char* step_range = "";     // NVTX range that marks a step; empty = none; copied
};

// Once, after InitHooks and InitStacks and before the first ScanForNewModules. Registers the hooks
// of the taps that are on.
void StartFramework(const FrameworkConfig& config);

// After every ScanForNewModules and at every tick of the agent's thread: refreshes the stacks'
// modules, takes the USER_SCOPE callback when the framework has appeared, and writes the feature
// rows. Cheap when nothing was loaded.
void RefreshFramework();

// The daemon's configuration, any time: a tap turned off is detached for good.
void ConfigureFramework(const FrameworkConfig& config);

// Detach: gives the USER_SCOPE callback back. The slots are DetachHooks()'s.
void StopFramework();

}  // namespace tidemark::agent

// Entry points that the library exports for jobs that know their own steps. Either overrides
// everything above from its first call on. Callable from any thread; `name` is UTF-8.
extern "C" {
__attribute__((visibility("default"))) void tidemark_step(void);
__attribute__((visibility("default"))) void tidemark_phase(const char* name);
}
