// Which allocations get a stack, and what each of them then stands for.
//
// Every byte is a sample point with the same small chance 1/R (R = mean interval in bytes), so an
// allocation of Z bytes is picked with probability p = 1 - exp(-Z/R) and, when picked, stands for
// Z / p bytes: its expected share is p * Z/p = Z, whatever Z is, so sums over sites are unbiased
// before any summing. From Z = R up every allocation is picked and stands for itself.
//
//   Z / R       p        stands for (in Z)
//   1/1024      0.00098  1024.5
//   1/16        0.0606   16.5
//   1/4         0.221    4.52
//   1/2         0.393    2.54
//   >= 1        1        1
//
// The distance to the next sample point is exponential, hence memoryless: it does not matter which
// of several countdowns an allocation is charged to, as long as nobody looks before choosing. They
// are picked by thread, so threads share none, by a hash instead of thread_local: see LedgerLock.
#pragma once

#include <atomic>
#include <cstdint>

namespace tidemark::agent {

class Sampler {
 public:
  // `interval_bytes` 1 = every allocation.
  void Init(uint64_t interval_bytes, uint64_t seed);
  void SetInterval(uint64_t interval_bytes);
  uint64_t interval_bytes() const { return interval_bytes_.load(std::memory_order_relaxed); }

  // 0 = not picked; else the bytes that this allocation stands for.
  uint64_t Sample(uint64_t bytes) {
    const uint64_t interval = interval_bytes_.load(std::memory_order_relaxed);
    if (bytes >= interval) return bytes;
    Countdown& countdown = ForThisThread();
    const int64_t left =
        countdown.bytes.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed) -
        static_cast<int64_t>(bytes);
    if (left > 0) return 0;
    Rearm(countdown, interval);
    return Estimate(bytes, interval);
  }

  // Z / (1 - exp(-Z/R)), rounded to whole bytes; `bytes` < `interval`.
  static uint64_t Estimate(uint64_t bytes, uint64_t interval);

 private:
  struct alignas(64) Countdown {
    std::atomic<int64_t> bytes;
    std::atomic<uint64_t> random;
  };
  static constexpr uint32_t kCountdowns = 64;

  Countdown& ForThisThread();
  static void Rearm(Countdown& countdown, uint64_t interval);

  std::atomic<uint64_t> interval_bytes_{1};
  Countdown countdowns_[kCountdowns] = {};
};

}  // namespace tidemark::agent
