// Phases without user code. A job trains when it runs backward passes and optimizer scopes; a gap
// in which it allocates from functions that training steps do not run through is a phase of its
// own, with the name of the outermost such function: `evaluate`, `save_checkpoint`.
//
// What belongs to training is learned: the frames above the backward pass, and every function seen
// in an interval between two backward passes of the usual length. A function that has not been
// learned begins a gap when its name says what it is (evaluate, validate, save...), else when no
// backward pass or scope came for twice the usual interval. The next backward pass ends the gap.
//
// Threads: any, but only stacks of the thread that ran the last outermost backward pass count.
#pragma once

#include <atomic>
#include <cstdint>

#include "cupti_agent/hooks/bounded_lock.h"
#include "cupti_agent/ledger/ledger.h"
#include "cupti_agent/stack/stack.h"

namespace tidemark::agent {

class PhaseNamer {
 public:
  // An outermost backward pass begins, after the ledger was told.
  void OnBackward(Stack* stack, Ledger* ledger);
  void OnOptimizerScope();
  // A sampled allocation with Python frames.
  void OnStack(Stack* stack, Ledger* ledger);
  // tidemark_phase(): from the first call on nothing is guessed.
  void OnExplicitPhase();

  // The clock, in nanoseconds; for tests.
  uint64_t (*now_ns)() = nullptr;

 private:
  static constexpr uint32_t kMaxFunctions = 1024;  // a power of two
  static constexpr uint32_t kLearnAfterSteps = 3;

  struct Function {
    uint64_t code;         // 0 = empty
    uint32_t seen_step;    // pass in which it was last seen
    uint16_t usual_steps;  // usual intervals in which it was seen
    bool names_a_gap;      // evaluate and its like: learned only after several usual intervals
    bool train_path;       // stood above the last backward pass
  };

  Function* Find(uint64_t code, bool insert);
  bool Known(const Function& function) const;
  void Learn(bool usual);
  uint64_t Now() const;

  // Stacks of which every function is known to belong to training: nearly all, and skipped at the
  // cost of one load. Indexed by the hash's low bits.
  static constexpr uint32_t kKnownStacks = 512;
  std::atomic<uint64_t> known_stacks_[kKnownStacks] = {};

  BoundedLock lock_;
  Function functions_[kMaxFunctions] = {};
  uint32_t function_count_ = 0;
  uint32_t pass_ = 0;
  uint64_t thread_ = 0;
  uint64_t last_backward_ns_ = 0;
  uint64_t last_activity_ns_ = 0;
  uint64_t usual_interval_ns_ = 0;
  uint64_t gap_code_ = 0;  // the function of the gap under way
  bool explicit_ = false;
};

extern PhaseNamer g_phase_namer;

}  // namespace tidemark::agent
