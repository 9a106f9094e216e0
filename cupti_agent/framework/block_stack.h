// Which stack a framework allocation is booked under:
//
//   the thread's own Python frames, or
//   on a backward thread, which has none: the Python frames of the call that started the backward
//   pass, or
//   native frames, a limited number a second
#pragma once

#include "cupti_agent/stack/stack.h"

namespace tidemark::agent {

// False (count 0): none was to be had.
bool CaptureForBlock(Stack* stack);

// An outermost backward pass begins on this thread, with these Python frames.
void PublishBackwardStack(const Stack& stack);

// Whether the calling thread is one of the framework's backward threads, by its name.
bool IsBackwardThread();

}  // namespace tidemark::agent
