#include "cupti_agent/framework/phase_namer.h"

#include <pthread.h>

#include <string_view>

#include "cupti_agent/ledger/monotonic.h"

namespace tidemark::agent {

constinit PhaseNamer g_phase_namer;

namespace {

constexpr uint64_t kPatienceNs = 20'000;
constexpr uint64_t kShortestGapNs = 50'000'000;
constexpr uint64_t kUsualFactor = 3;  // an interval up to so many times the mean is usual

// Functions of the framework itself do not name a gap: torch.utils.checkpoint is part of training.
bool NamesAGap(std::string_view file, std::string_view function) {
  if (file.find("/torch/") != std::string_view::npos) return false;
  size_t dot = function.rfind('.');
  if (dot != std::string_view::npos) function.remove_prefix(dot + 1);
  while (!function.empty() && function.front() == '_') function.remove_prefix(1);
  for (std::string_view begin : {"eval", "valid", "test", "save", "predict", "generat", "infer"}) {
    if (function.substr(0, begin.size()) == begin) return true;
  }
  return false;
}

}  // namespace

uint64_t PhaseNamer::Now() const { return now_ns != nullptr ? now_ns() : MonotonicNs(); }

PhaseNamer::Function* PhaseNamer::Find(uint64_t code, bool insert) {
  uint32_t i = static_cast<uint32_t>((code >> 4) * 0x9e3779b97f4a7c15 >> 32) % kMaxFunctions;
  for (uint32_t probe = 0; probe < kMaxFunctions; ++probe, i = (i + 1) % kMaxFunctions) {
    if (functions_[i].code == code) return &functions_[i];
    if (functions_[i].code != 0) continue;
    if (!insert || function_count_ >= kMaxFunctions * 3 / 4) return nullptr;
    ++function_count_;
    functions_[i].code = code;
    return &functions_[i];
  }
  return nullptr;
}

bool PhaseNamer::Known(const Function& function) const {
  if (function.train_path) return true;
  return function.usual_steps >= (function.names_a_gap ? kLearnAfterSteps : 1);
}

// What was seen in the interval that ends now belongs to training, when the interval was usual.
void PhaseNamer::Learn(bool usual) {
  for (Function& function : functions_) {
    if (function.code == 0) continue;
    bool seen = function.seen_step == pass_;
    if (usual && seen && function.usual_steps < UINT16_MAX) ++function.usual_steps;
    function.train_path = false;
  }
}

void PhaseNamer::OnBackward(Stack* stack, Ledger* ledger) {
  if (!lock_.Acquire(kPatienceNs)) return;
  uint64_t now = Now();
  bool was_gap = gap_code_ != 0;
  if (last_backward_ns_ != 0) {
    uint64_t interval = now - last_backward_ns_;
    bool usual =
        !was_gap && (usual_interval_ns_ == 0 || interval <= kUsualFactor * usual_interval_ns_);
    Learn(usual);
    if (usual) {
      usual_interval_ns_ =
          usual_interval_ns_ == 0 ? interval : (7 * usual_interval_ns_ + interval) / 8;
    }
  }
  ++pass_;
  thread_ = static_cast<uint64_t>(pthread_self());
  last_backward_ns_ = last_activity_ns_ = now;
  gap_code_ = 0;
  for (uint16_t i = 0; i < stack->count; ++i) {
    Function* function = Find(stack->frames[i].code, /*insert=*/true);
    if (function != nullptr) function->train_path = true;
  }
  bool back_to_train = was_gap && !explicit_;
  lock_.Release();
  if (back_to_train) ledger->PhaseBegin("train");
}

void PhaseNamer::OnOptimizerScope() {
  if (!lock_.Acquire(kPatienceNs)) return;
  last_activity_ns_ = Now();
  lock_.Release();
}

void PhaseNamer::OnStack(Stack* stack, Ledger* ledger) {
  if ((stack->flags & wire::kSiteTruncated) != 0) return;  // the outermost frames are missing
  std::atomic<uint64_t>& known_stack = known_stacks_[stack->hash % kKnownStacks];
  if (known_stack.load(std::memory_order_relaxed) == stack->hash) return;
  if (!lock_.Acquire(kPatienceNs)) return;
  char name[64];
  size_t name_bytes = 0;
  if (last_backward_ns_ != 0 && !explicit_ && static_cast<uint64_t>(pthread_self()) == thread_) {
    uint64_t quiet_ns = Now() - last_activity_ns_;
    bool quiet =
        usual_interval_ns_ != 0 && quiet_ns > 2 * usual_interval_ns_ && quiet_ns > kShortestGapNs;
    StackView view = stack->View();
    bool decided = false;
    bool all_known = true;
    for (uint16_t i = stack->count; i-- > 0;) {
      uint64_t code = stack->frames[i].code;
      Function* function = Find(code, /*insert=*/false);
      StackFrame frame;
      if (function == nullptr) {
        if (!view.resolve(view, i, &frame)) continue;
        function = Find(code, /*insert=*/true);
        if (function == nullptr) break;
        function->names_a_gap = NamesAGap(frame.file, frame.function);
      }
      function->seen_step = pass_;
      bool known = Known(*function);
      all_known &= known;
      if (decided || known) continue;
      if (!function->names_a_gap && !quiet) continue;
      decided = true;
      if (gap_code_ == code || !view.resolve(view, i, &frame)) continue;
      gap_code_ = code;
      size_t dot = frame.function.rfind('.');
      if (dot != std::string_view::npos) frame.function.remove_prefix(dot + 1);
      name_bytes = frame.function.copy(name, sizeof(name));
    }
    if (all_known) known_stack.store(stack->hash, std::memory_order_relaxed);
  }
  lock_.Release();
  if (name_bytes != 0) ledger->PhaseBegin(std::string_view(name, name_bytes));
}

void PhaseNamer::OnExplicitPhase() {
  if (!lock_.Acquire(kPatienceNs)) return;
  explicit_ = true;
  lock_.Release();
}

}  // namespace tidemark::agent
