#include "cupti_agent/framework/framework.h"

#include <atomic>

#include "cupti_agent/framework/allocator_tap.h"
#include "cupti_agent/framework/backward_tap.h"
#include "cupti_agent/framework/nvtx_tap.h"
#include "cupti_agent/framework/optimizer_scopes.h"
#include "cupti_agent/framework/phase_namer.h"
#include "cupti_agent/hooks/import_hooks.h"
#include "cupti_agent/ledger/ledger.h"
#include "cupti_agent/stack/stack.h"

namespace tidemark::agent {
namespace {

using wire::Feature;
using wire::FeatureState;

struct Hooks {
  HookId block_report = kNoHook;
  HookId out_of_memory = kNoHook;
  HookId cpu_new = kNoHook;
  HookId cpu_delete = kNoHook;
  HookId execute = kNoHook;
  HookId range_push = kNoHook;
  HookId range_push_ex = kNoHook;
  HookId domain_range_push_ex = kNoHook;
};

constinit Hooks hooks;
constinit bool allocator_on = false;
constinit bool steps_on = false;
constinit std::atomic<uint64_t> described_generation{UINT64_MAX};

void ShowHook(Ledger* ledger, Feature feature, HookId id) {
  switch (GetHookStatus(id).state) {
    case HookState::kOn:
      return ledger->SetFeature(feature, FeatureState::kOn, "");
    case HookState::kNotLoaded:
      return ledger->SetFeature(feature, FeatureState::kOff, "not loaded");
    case HookState::kNoImport:
      return ledger->SetFeature(feature, FeatureState::kUnavailable, "no import");
    case HookState::kRefused:
      return ledger->SetFeature(feature, FeatureState::kUnavailable,
                                "import slots cannot be made writable");
    case HookState::kDetached:
      return ledger->SetFeature(feature, FeatureState::kOff, "detached");
  }
}

void ShowNvtx(Ledger* ledger) {
  if (!HasStepRange()) {
    return ledger->SetFeature(Feature::kNvtx, FeatureState::kOff, "no range configured");
  }
  // Any one of the three will do.
  for (HookId id : {hooks.range_push_ex, hooks.domain_range_push_ex}) {
    if (GetHookStatus(id).state == HookState::kOn) return ShowHook(ledger, Feature::kNvtx, id);
  }
  ShowHook(ledger, Feature::kNvtx, hooks.range_push);
}

}  // namespace

void StartFramework(const FrameworkConfig& config) {
  allocator_on = config.allocator;
  steps_on = config.steps;
  g_step_counter.SetBackwardPerStep(config.backward_per_step);
  SetStepRange(config.step_range);
  if (allocator_on) {
    hooks.block_report = AddHook({kReportName, true, OnBlockReport, "libc10.so"});
    hooks.out_of_memory = AddHook({kOutOfMemoryName, true, OnOutOfMemory, "libc10.so"});
    hooks.cpu_new = AddHook({kCpuNewName, false, OnCpuNew});
    hooks.cpu_delete = AddHook({kCpuDeleteName, false, OnCpuDelete});
  }
  if (steps_on) {
    hooks.execute = AddHook({kExecuteName, true, OnExecute, "libtorch_cpu.so"});
    hooks.range_push = AddHook({"nvtxRangePushA", false, OnRangePush});
    hooks.range_push_ex = AddHook({"nvtxRangePushEx", false, OnRangePushEx});
    hooks.domain_range_push_ex = AddHook({"nvtxDomainRangePushEx", false, OnDomainRangePushEx});
  }
}

void RefreshFramework() {
  Ledger* ledger = Active();
  if (ledger == nullptr) return;
  RefreshModules();
  // The scopes' library is complete once the slot of its importer has been patched.
  if (steps_on && GetHookStatus(hooks.execute).state == HookState::kOn) TakeOptimizerScopes();
  const char* reason = "switched off";
  FeatureState scopes = steps_on ? OptimizerScopesState(&reason) : FeatureState::kOff;
  ledger->SetFeature(Feature::kStepScopes, scopes, reason);

  // Saying why a hook is not on searches the modules: only when they changed.
  uint64_t generation = ScanGeneration();
  if (described_generation.exchange(generation) == generation) return;
  if (allocator_on) {
    ShowHook(ledger, Feature::kFrameworkAllocator, hooks.block_report);
    ShowHook(ledger, Feature::kOutOfMemory, hooks.out_of_memory);
    ShowHook(ledger, Feature::kCpuTensors, hooks.cpu_new);
  } else {
    for (Feature feature :
         {Feature::kFrameworkAllocator, Feature::kOutOfMemory, Feature::kCpuTensors}) {
      ledger->SetFeature(feature, FeatureState::kOff, "switched off");
    }
  }
  if (steps_on) {
    ShowHook(ledger, Feature::kBackward, hooks.execute);
    ShowNvtx(ledger);
  } else {
    ledger->SetFeature(Feature::kBackward, FeatureState::kOff, "switched off");
    ledger->SetFeature(Feature::kNvtx, FeatureState::kOff, "switched off");
  }
}

void ConfigureFramework(const FrameworkConfig& config) {
  g_step_counter.SetBackwardPerStep(config.backward_per_step);
  if (config.step_range[0] != '\0') SetStepRange(config.step_range);
  if (allocator_on && !config.allocator) {
    for (HookId id : {hooks.block_report, hooks.out_of_memory, hooks.cpu_new, hooks.cpu_delete}) {
      DetachHook(id);
    }
    allocator_on = false;
  }
  if (steps_on && !config.steps) {
    for (HookId id :
         {hooks.execute, hooks.range_push, hooks.range_push_ex, hooks.domain_range_push_ex}) {
      DetachHook(id);
    }
    GiveBackOptimizerScopes();
    steps_on = false;
  }
  described_generation.store(UINT64_MAX);
  RefreshFramework();
}

void StopFramework() { GiveBackOptimizerScopes(); }

namespace {

// A step whose work is done when the job exits, which no further backward pass will end.
__attribute__((destructor)) void CloseLastStep() {
  Ledger* ledger = Active();
  if (ledger != nullptr && g_step_counter.OnEnd()) ledger->CloseLastStep();
}

}  // namespace
}  // namespace tidemark::agent

extern "C" {

void tidemark_step(void) { tidemark::agent::EndStep(); }

void tidemark_phase(const char* name) {
  using namespace tidemark::agent;
  g_phase_namer.OnExplicitPhase();
  Ledger* ledger = Active();
  if (ledger != nullptr && name != nullptr) ledger->PhaseBegin(name);
}
}
