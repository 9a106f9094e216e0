// A framework allocator's report and its caller, under the real name.
#include <cstddef>
#include <cstdint>

namespace c10 {
struct Device {
  int8_t type;
  int8_t index;
};
[[gnu::noinline]] void reportMemoryUsageToProfiler(void* block, int64_t, size_t, size_t, Device) {
  asm volatile("" ::"r"(block) : "memory");
}
}  // namespace c10

namespace {
using Report = void (*)(void*, int64_t, size_t, size_t, c10::Device);
Report volatile by_pointer = c10::reportMemoryUsageToProfiler;  // data: never hooked

// A step's blocks: a few hundred live at a time, freed in another order.
template <typename Call>
void Pairs(int pairs, Call report) {
  constexpr int kLive = 512;
  static char memory[kLive];
  const c10::Device device = {1, 0};
  for (int i = 0; i < pairs; ++i) {
    report(memory + i % kLive, 4096, 4096, 1 << 20, device);
    report(memory + i % kLive, -4096, 0, 1 << 20, device);
  }
}
}  // namespace

extern "C" {
void bench_pairs(int pairs) {
  Pairs(pairs, [](void* block, int64_t bytes, size_t live, size_t cached, c10::Device device) {
    c10::reportMemoryUsageToProfiler(block, bytes, live, cached, device);
  });
}
void bench_pairs_by_pointer(int pairs) { Pairs(pairs, by_pointer); }
}
