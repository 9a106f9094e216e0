#include "cupti_agent/stack/stack.h"

#include "cupti_agent/stack/module_table.h"
#include "cupti_agent/stack/native_unwind.h"
#include "cupti_agent/stack/python_walk.h"

namespace tidemark::agent {
namespace {

// 64-bit multiply-and-fold; two stacks of one process meet with probability 2^-64 times the number
// of pairs.
void HashFrames(Stack* stack) {
  uint64_t hash = 0x9e3779b97f4a7c15 ^ stack->count;
  auto mix = [&hash](uint64_t value) {
    __extension__ using Wide = unsigned __int128;
    Wide product = static_cast<Wide>(hash ^ value) * 0xd6e8feb86659fd93;
    hash = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  for (uint16_t i = 0; i < stack->count; ++i) {
    mix(stack->frames[i].code);
    mix(stack->frames[i].position + 0x9e3779b97f4a7c15);
  }
  stack->hash = hash;
}

bool Resolve(const StackView& view, uint16_t index, StackFrame* frame) {
  // View() is the only maker of such views, from a Stack that is not const.
  auto* stack = static_cast<Stack*>(const_cast<void*>(view.frames));
  if (index >= stack->count) return false;
  const RawFrame& raw = stack->frames[index];
  if (raw.position == kNativePosition) return ResolveNativeFrame(raw, frame);
  return ResolvePythonFrame(raw, stack, frame);
}

}  // namespace

StackView Stack::View() {
  StackView view;
  view.hash = hash;
  view.count = count;
  view.flags = flags;
  view.frames = this;
  view.resolve = Resolve;
  return view;
}

void InitStacks() {
  RefreshModuleTable();
  FindPython(/*starting=*/true);
}

void RefreshModules() {
  if (!RefreshModuleTable()) return;
  FindPython(/*starting=*/false);
}

StackStatus GetStackStatus() {
  StackStatus status = {};
  status.python = PythonState(&status.python_reason, &status.python_version);
  bool own = OwnModule() != kNoModule;
  status.native = own ? wire::FeatureState::kOn : wire::FeatureState::kUnavailable;
  status.native_reason = own ? "" : "the module table is empty";
  return status;
}

bool CapturePython(Stack* stack) {
  stack->count = 0;
  stack->flags = 0;
  bool any = AppendPythonFrames(stack) > 0;
  HashFrames(stack);
  return any;
}

bool CaptureNative(Stack* stack) {
  // Walk Python first, to know whether there is anything to replace the interpreter's frames with.
  stack->count = 0;
  stack->flags = 0;
  bool python = AppendPythonFrames(stack) > 0;
  stack->count = 0;
  stack->flags = 0;
  AppendNativeFrames(stack, /*stop_at_interpreter=*/python);
  if (python) AppendPythonFrames(stack);
  HashFrames(stack);
  return stack->count > 0;
}

}  // namespace tidemark::agent
