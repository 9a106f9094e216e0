#include "cupti_agent/framework/step_counter.h"

namespace tidemark::agent {

bool StepCounter::CountsScopes() const {
  if (!scopes_visible_.load(std::memory_order_relaxed)) return false;
  return all_scopes_.load(std::memory_order_relaxed) != 0 ||
         all_passes_.load(std::memory_order_relaxed) < kPassesWithoutScopes;
}

bool StepCounter::OnBackward() {
  bool ended = OnEnd();
  if (ended) {
    scopes_.store(0, std::memory_order_relaxed);
    passes_.store(0, std::memory_order_relaxed);
  }
  passes_.fetch_add(1, std::memory_order_relaxed);
  all_passes_.fetch_add(1, std::memory_order_relaxed);
  return ended;
}

void StepCounter::OnOptimizerScope() {
  scopes_.fetch_add(1, std::memory_order_relaxed);
  all_scopes_.fetch_add(1, std::memory_order_relaxed);
}

void StepCounter::OnExplicitStep() { explicit_.store(true, std::memory_order_relaxed); }

bool StepCounter::OnEnd() {
  if (explicit_.load(std::memory_order_relaxed)) return false;
  uint64_t passes = passes_.load(std::memory_order_relaxed);
  if (CountsScopes()) return passes > 0 && scopes_.load(std::memory_order_relaxed) > 0;
  return passes >= backward_per_step_.load(std::memory_order_relaxed);
}

}  // namespace tidemark::agent
