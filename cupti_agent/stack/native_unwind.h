// The native frames of the current thread, by the call frame information of the loaded modules.
//
// libgcc's unwinder, linked statically, asks _dl_find_object for each frame's module. Ours (hidden)
// answers from the module table, so that unwinding takes no lock of the loader and works where
// glibc is older than 2.35. A frame in a module that the table does not know yet ends the stack.
#pragma once

#include "cupti_agent/stack/stack.h"

namespace tidemark::agent {

// Appends return addresses to `stack`, innermost first, leaving out the agent's own frames; stops
// at the interpreter's code when `stop_at_interpreter`.
void AppendNativeFrames(Stack* stack, bool stop_at_interpreter);

bool ResolveNativeFrame(const RawFrame& raw, StackFrame* frame);

}  // namespace tidemark::agent
