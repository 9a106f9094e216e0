// The stack walks as a library that a Python program loads with ctypes: the test's own injected
// library. Linked as the agent is: static libgcc, nothing visible but these functions.
#include <pthread.h>
#include <time.h>

#include <cstdio>
#include <cstring>

#include "cupti_agent/hooks/import_hooks.h"
#include "cupti_agent/stack/python_walk.h"
#include "cupti_agent/stack/stack.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

using namespace tidemark::agent;

namespace {

// One frame a line: file, line, function, or module, offset, "". Returns the number of frames.
int Print(Stack* stack, char* to, size_t capacity) {
  size_t used = 0;
  StackView view = stack->View();
  to[0] = '\0';
  for (uint16_t i = 0; i < view.count; ++i) {
    StackFrame frame;
    if (!view.resolve(view, i, &frame)) return -1;
    int wrote;
    if (frame.kind == tidemark::wire::FrameKind::kPython) {
      wrote = snprintf(to + used, capacity - used, "%.*s\t%u\t%.*s\n",
                       static_cast<int>(frame.file.size()), frame.file.data(), frame.line,
                       static_cast<int>(frame.function.size()), frame.function.data());
    } else {
      wrote = snprintf(to + used, capacity - used, "%.*s\t%u\t%d\n",
                       static_cast<int>(frame.module_path.size()), frame.module_path.data(),
                       frame.offset, frame.build_id_bytes);
    }
    used += static_cast<size_t>(wrote);
    if (used >= capacity) return -2;
  }
  return view.count;
}

}  // namespace

EXPORTED void stacktest_start() { InitStacks(); }

// 1 = on. The reason of the Python walk goes to `to`.
EXPORTED int stacktest_status(char* to, size_t capacity) {
  StackStatus status = GetStackStatus();
  snprintf(to, capacity, "%s", status.python_reason);
  return status.python == tidemark::wire::FeatureState::kOn ? 1 : 0;
}

EXPORTED int stacktest_version() { return static_cast<int>(GetStackStatus().python_version); }

EXPORTED int stacktest_python(char* to, size_t capacity) {
  Stack stack;
  CapturePython(&stack);
  return Print(&stack, to, capacity);
}

EXPORTED int stacktest_native(char* to, size_t capacity) {
  Stack stack;
  CaptureNative(&stack);
  return Print(&stack, to, capacity);
}

EXPORTED int stacktest_flags() {
  Stack stack;
  CapturePython(&stack);
  return stack.flags;
}

EXPORTED unsigned long stacktest_hash() {
  Stack stack;
  CapturePython(&stack);
  return stack.hash;
}

// The frames of a thread that Python does not know.
EXPORTED int stacktest_foreign_thread() {
  pthread_t thread;
  void* count = nullptr;
  auto run = [](void*) -> void* {
    Stack stack;
    CapturePython(&stack);
    return reinterpret_cast<void*>(static_cast<long>(stack.count));
  };
  if (pthread_create(&thread, nullptr, run, nullptr) != 0) return -1;
  pthread_join(thread, &count);
  return static_cast<int>(reinterpret_cast<long>(count));
}

// Attaches with one field of the layout moved by `delta` bytes.
EXPORTED int stacktest_attach_wrong(const char* field, int delta) {
  PythonLayout layout;
  const char* reason = "";
  auto runtime = reinterpret_cast<uint64_t>(FindDefinition("_PyRuntime"));
  uint16_t version = static_cast<uint16_t>(stacktest_version());
  if (!FindPythonLayout(version, runtime, &layout, &reason)) return -1;
  auto move = [&](const char* name, uint16_t* value) {
    if (strcmp(field, name) == 0) *value = static_cast<uint16_t>(*value + delta);
  };
  move("thread_frame", &layout.thread_frame);
  move("thread_id", &layout.thread_id);
  move("frame_code", &layout.frame_code);
  move("frame_previous", &layout.frame_previous);
  move("frame_position", &layout.frame_position);
  move("code_filename", &layout.code_filename);
  move("code_name", &layout.code_name);
  move("code_first_line", &layout.code_first_line);
  move("code_line_table", &layout.code_line_table);
  move("code_qualified_name", &layout.code_qualified_name);
  AttachPython(layout, runtime, /*starting=*/true);
  return 0;
}

// Nanoseconds of one walk of the caller's stack.
EXPORTED double stacktest_walk_ns(int walks) {
  timespec begin, end;
  uint64_t sum = 0;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 0; i < walks; ++i) {
    Stack stack;
    CapturePython(&stack);
    sum += stack.hash;
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  volatile uint64_t keep = sum;
  (void)keep;
  return (static_cast<double>(end.tv_sec - begin.tv_sec) * 1e9 +
          static_cast<double>(end.tv_nsec - begin.tv_nsec)) /
         walks;
}
