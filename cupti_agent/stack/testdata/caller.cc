// The job's side of the native stack tests: two named frames, and as many more as asked for.
extern "C" {

using Capture = bool (*)(void*);

[[gnu::noinline]] void stacktest_inner(Capture capture, void* stack) {
  capture(stack);
  asm volatile("" ::: "memory");  // no tail call
}

[[gnu::noinline]] void stacktest_outer(Capture capture, void* stack, int depth) {
  if (depth > 0) {
    stacktest_outer(capture, stack, depth - 1);
  } else {
    stacktest_inner(capture, stack);
  }
  asm volatile("" ::: "memory");
}
}
