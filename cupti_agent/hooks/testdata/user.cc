// A library that calls the target through its import slots. Built several times: lazily bound,
// bound at load, without a PLT, with full RELRO.
#include <dlfcn.h>

#include <stdexcept>

namespace hooktest {
int Prefixed(unsigned long x);
}

extern "C" {
int hooktest_report(int x);
int hooktest_throws(int x);
double hooktest_many(int, double, long, float, int, double, long, double, int, double, long, double,
                     short, double, long, double, double, unsigned long, double);
double hooktest_variadic(int count, ...);
void* hooktest_return_address();

int (*user_pointer)(int) = hooktest_report;  // R_X86_64_64: the program's own data

int user_report(int x) { return hooktest_report(x); }
int user_report_by_pointer(int x) { return user_pointer(x); }
int user_prefixed(int x) { return hooktest::Prefixed(static_cast<unsigned long>(x)); }

int user_catches(int x) {
  try {
    return hooktest_throws(x);
  } catch (const std::runtime_error&) {
    return -1;
  }
}

double user_many() {
  return hooktest_many(1, 2.5, 3, 4.25f, 5, 6.5, 7, 8.5, 9, 10.5, 11, 12.5, 13, 14.5, 15, 16.5,
                       17.5, 18, 19.5);
}

double user_variadic() { return hooktest_variadic(9, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0); }

void* user_return_address() {
  void* address = hooktest_return_address();
  asm volatile("" ::: "memory");  // keep the call from becoming a tail call
  return address;
}

void* user_lookup(void* handle, const char* name) { return dlsym(handle, name); }
void* user_lookup_next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  asm volatile("" ::: "memory");
  return found;
}
void* user_load(const char* path) { return dlopen(path, RTLD_LAZY | RTLD_LOCAL); }
}
