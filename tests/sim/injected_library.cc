// What driver_test.cc has injected: says that it ran, calls the driver, returns what it is told to.
#include <cstdio>
#include <cstdlib>

#pragma GCC visibility push(default)
#include "tests/sim/cuda_api.h"
#pragma GCC visibility pop

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  fprintf(stderr, "InitializeInjection: cuInit gives %d\n", cuInit(0));
  const char* result = getenv("SIM_INJECTED_RESULT");
  return result == nullptr ? 1 : atoi(result);
}
