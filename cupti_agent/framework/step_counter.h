// When a training step ends, from what the framework shows: outermost backward passes and scopes
// named Optimizer.step#... .
//
//   with scopes    a step ends at the first backward pass after one or more scopes: ZeRO-3 steps
//   its
//                  inner optimizer once per sub-group, some jobs have two optimizers, accumulation
//                  has several backward passes before the scopes
//   without        every `backward_per_step` passes, at the pass that begins the next step
//   explicit       tidemark_step() or a configured NVTX range; from its first call on, only that
//
// Threads: any; a few relaxed atomics, since jobs that train from two threads at once have no
// meaningful step anyway.
#pragma once

#include <atomic>
#include <cstdint>

namespace tidemark::agent {

class StepCounter {
 public:
  // Passes without any scope after which a job is taken to have no framework optimizer.
  static constexpr uint64_t kPassesWithoutScopes = 64;

  void SetBackwardPerStep(uint32_t passes) {
    if (passes != 0) backward_per_step_.store(passes, std::memory_order_relaxed);
  }
  // Whether scopes would be seen if there were any.
  void SetScopesVisible(bool visible) { scopes_visible_.store(visible, std::memory_order_relaxed); }

  // An outermost backward pass begins. True: a step ended before it.
  bool OnBackward();
  void OnOptimizerScope();
  // An explicit mark: always the end of a step.
  void OnExplicitStep();

  // The job ends. True: a step is complete that no further backward pass will end.
  bool OnEnd();

 private:
  bool CountsScopes() const;

  std::atomic<uint32_t> backward_per_step_{1};
  std::atomic<bool> scopes_visible_{false};
  std::atomic<bool> explicit_{false};
  std::atomic<uint64_t> scopes_{0};  // since the last boundary
  std::atomic<uint64_t> passes_{0};
  std::atomic<uint64_t> all_scopes_{0};
  std::atomic<uint64_t> all_passes_{0};
};

}  // namespace tidemark::agent
