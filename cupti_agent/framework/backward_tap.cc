#include "cupti_agent/framework/backward_tap.h"

#include <unwind.h>

#include "cupti_agent/framework/block_stack.h"
#include "cupti_agent/framework/phase_namer.h"
#include "cupti_agent/ledger/ledger.h"

namespace tidemark::agent {

constinit StepCounter g_step_counter;

namespace {

// The last outermost call on this thread.
struct OuterCall {
  uint64_t stack_pointer;  // where its return address lies; 0 = none yet
  uint64_t return_address;
};
[[gnu::tls_model("initial-exec")]] thread_local OuterCall outer_call = {0, 0};

// Whether some frame of this thread was called from the place `outer_call` describes: its canonical
// frame address is the word above its return address.
bool OuterCallIsOnStack() {
  bool found = false;
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void* data) {
        uint64_t address = _Unwind_GetCFA(context);
        *static_cast<bool*>(data) |= address == outer_call.stack_pointer + 8;
        return address > outer_call.stack_pointer ? _URC_END_OF_STACK : _URC_NO_REASON;
      },
      &found);
  return found;
}

}  // namespace

// A deeper stack pointer alone does not mean nested: the next step may call from a deeper function.
// The word where the outer call's return address was tells most cases, since later calls overwrite
// it; where it still stands, unwinding decides.
bool IsNestedCall(uint64_t stack_pointer, uint64_t return_address) {
  if (outer_call.stack_pointer != 0 && stack_pointer < outer_call.stack_pointer) {
    uint64_t word = *reinterpret_cast<const volatile uint64_t*>(outer_call.stack_pointer);
    if (word == outer_call.return_address && OuterCallIsOnStack()) return true;
  }
  outer_call = {stack_pointer, return_address};
  return false;
}

void OnExecute(const HookCall& call) {
  Ledger* ledger = Active();
  // On a backward thread a pass is always part of the one that feeds the thread.
  if (ledger == nullptr || IsBackwardThread()) return;
  if (IsNestedCall(call.StackPointer(), call.return_address)) return;
  if (g_step_counter.OnBackward()) ledger->StepBoundary();
  ledger->BackwardBegan();
  Stack stack;
  if (CapturePython(&stack)) PublishBackwardStack(stack);
  g_phase_namer.OnBackward(&stack, ledger);
}

void EndStep() {
  g_step_counter.OnExplicitStep();
  if (Ledger* ledger = Active()) ledger->StepBoundary();
}

}  // namespace tidemark::agent
