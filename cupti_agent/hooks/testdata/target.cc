// The library whose functions the tests hook.
#include <execinfo.h>
#include <unwind.h>

#include <cstdarg>
#include <stdexcept>

extern "C" {

int hooktest_report(int x) { return x + 1; }

int hooktest_throws(int x) {
  if (x % 2 != 0) throw std::runtime_error("odd");
  return x;
}

// Every argument matters: integer registers, vector registers and the stack.
double hooktest_many(int a, double b, long c, float d, int e, double f, long g, double h, int i,
                     double j, long k, double l, short m, double n, long o, double p, double q,
                     unsigned long r, double s) {
  return a + 2 * b + 3 * static_cast<double>(c) + 4 * d + 5 * e + 6 * f +
         7 * static_cast<double>(g) + 8 * h + 9 * i + 10 * j + 11 * static_cast<double>(k) +
         12 * l + 13 * m + 14 * n + 15 * static_cast<double>(o) + 16 * p + 17 * q +
         18 * static_cast<double>(r) + 19 * s;
}

double hooktest_variadic(int count, ...) {
  va_list list;
  va_start(list, count);
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += va_arg(list, double);
  va_end(list);
  return sum;
}

void* hooktest_return_address() { return __builtin_return_address(0); }
}

namespace hooktest {
int Prefixed(unsigned long x) { return static_cast<int>(x) + 100; }
}  // namespace hooktest
