// The Python frames of the current thread, read as memory.
//
//   none -> unchecked -> on          unchecked: the interpreter is known, its layout is assumed
//                   \--> off         on, off: decided once, by comparing what the layout leads to
//                                    with what must be there (see CheckLayout)
//
// Threads: any. The checks run once; the walk takes no lock and writes nothing shared.
#pragma once

#include <cstdint>

#include "cupti_agent/stack/python_layout.h"
#include "cupti_agent/stack/stack.h"

namespace tidemark::agent {

// Looks for an interpreter among the loaded modules and attaches to it. Does nothing when one is
// attached. `starting` = this is start-up, on a thread of the job: the public API may be asked.
void FindPython(bool starting);

// The second half of FindPython: the interpreter whose _PyRuntime is at `runtime`, laid out as
// `layout`. Begins anew when one is attached.
void AttachPython(const PythonLayout& layout, uint64_t runtime, bool starting);

wire::FeatureState PythonState(const char** reason, uint32_t* version);

// Appends this thread's frames to `stack` from stack->count on, innermost first, and sets the
// flags. Returns how many. The hash is left to the caller's HashFrames.
uint16_t AppendPythonFrames(Stack* stack);

// Names of one frame; text goes to stack's buffers. False when it cannot be read.
bool ResolvePythonFrame(const RawFrame& raw, Stack* stack, StackFrame* frame);

// Whether `address` lies in the interpreter's own code.
bool IsInterpreterCode(uint64_t address);

}  // namespace tidemark::agent
