#include "cupti_agent/stack/native_unwind.h"

#include <unwind.h>

#include <cstring>

#include "cupti_agent/stack/module_table.h"
#include "cupti_agent/stack/python_walk.h"

namespace tidemark::agent {
namespace {

struct Progress {
  Stack* stack;
  bool stop_at_interpreter;
  bool inside_agent;
  uint32_t own_module;
  bool unknown_module = false;
};

_Unwind_Reason_Code OnFrame(_Unwind_Context* context, void* data) {
  auto* progress = static_cast<Progress*>(data);
  Stack* stack = progress->stack;
  uint64_t address = _Unwind_GetIP(context);
  if (address == 0) return _URC_END_OF_STACK;
  uint32_t module = ModuleContaining(address);
  if (module == kNoModule) progress->unknown_module = true;
  if (progress->inside_agent) {
    if (module == progress->own_module) return _URC_NO_REASON;
    if (module != kNoModule && ModuleAt(module).is_cupti) return _URC_NO_REASON;
    progress->inside_agent = false;
  }
  if (progress->stop_at_interpreter && IsInterpreterCode(address)) return _URC_END_OF_STACK;
  if (stack->count == wire::kMaxFrames) {
    stack->flags |= wire::kSiteTruncated;
    return _URC_END_OF_STACK;
  }
  stack->frames[stack->count++] = {address, kNativePosition};
  stack->flags |= wire::kSiteNative;
  return _URC_NO_REASON;
}

}  // namespace

void AppendNativeFrames(Stack* stack, bool stop_at_interpreter) {
  uint32_t own = OwnModule();
  Progress progress = {stack, stop_at_interpreter, own != kNoModule, own};
  _Unwind_Backtrace(OnFrame, &progress);
  // A module may have been loaded since the agent's thread last looked. Unwinding asked the loader
  // for its list too, so this waits for nothing that it did not.
  if (progress.unknown_module) RefreshModuleTable();
}

const char* CommunicatorIn(const Stack& stack) {
  for (uint16_t i = 0; i < stack.count; ++i) {
    if (stack.frames[i].position != kNativePosition) return nullptr;
    const uint32_t index = ModuleContaining(stack.frames[i].code - 1);
    if (index == kNoModule || !ModuleAt(index).is_communicator) continue;
    const char* slash = strrchr(ModuleAt(index).path, '/');
    return slash == nullptr ? ModuleAt(index).path : slash + 1;
  }
  return nullptr;
}

bool ResolveNativeFrame(const RawFrame& raw, StackFrame* frame) {
  // The call, not what follows it: that may be another line, or another function.
  uint64_t address = raw.code - 1;
  frame->kind = wire::FrameKind::kNative;
  uint32_t index = ModuleContaining(address);
  if (index == kNoModule) {
    frame->module_path = "?";
    frame->offset = static_cast<uint32_t>(address);
    return true;
  }
  const StackModule& module = ModuleAt(index);
  frame->module_path = module.path;
  frame->build_id = module.build_id;
  frame->build_id_bytes = module.build_id_bytes;
  frame->module_base = module.base;
  frame->offset = static_cast<uint32_t>(address - module.base);
  return true;
}

}  // namespace tidemark::agent
