#include "cupti_agent/ledger/sampler.h"

#include <cstring>

#include "cupti_agent/ledger/ledger_lock.h"
#include "cupti_agent/ledger/private_memory.h"

namespace tidemark::agent {
namespace {

// log and exp of our own: libm's carry symbol versions newer than the agent's floor of glibc 2.28.

constexpr double kLn2 = 0.69314718055994530942;

// Natural logarithm of x in (0, 1], within 1e-12: x = m * 2^e, ln m from the series of atanh.
double Log(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof(bits));
  const int exponent = static_cast<int>(bits >> 52) - 1022;
  bits = (bits & 0x000fffffffffffffull) | 0x3fe0000000000000ull;
  double mantissa;  // in [0.5, 1)
  memcpy(&mantissa, &bits, sizeof(mantissa));
  const double t = (mantissa - 1) / (mantissa + 1);
  const double t2 = t * t;
  double term = t;
  double sum = 0;
  for (int k = 1; k < 40; k += 2) {
    sum += term / k;
    term *= t2;
  }
  return 2 * sum + exponent * kLn2;
}

// 1 - exp(-x) for x in (0, 1), without the cancellation that 1 - exp(-x) has for a small x.
double OneMinusExp(double x) {
  double term = x;
  double sum = 0;
  for (int k = 2; k < 22; ++k) {
    sum += term;
    term *= -x / k;
  }
  return sum;
}

// Uniform in (0, 1] (xorshift64*).
double Uniform(uint64_t* state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return static_cast<double>(((*state * 0x2545f4914f6cdd1dull) >> 11) + 1) * 0x1p-53;
}

}  // namespace

void Sampler::Init(uint64_t interval_bytes, uint64_t seed) {
  for (uint32_t i = 0; i < kCountdowns; ++i) {
    countdowns_[i].random.store(Scatter(seed + i) | 1, std::memory_order_relaxed);
  }
  SetInterval(interval_bytes);
}

void Sampler::SetInterval(uint64_t interval_bytes) {
  if (interval_bytes == 0) interval_bytes = 1;
  interval_bytes_.store(interval_bytes, std::memory_order_relaxed);
  for (Countdown& countdown : countdowns_) {
    countdown.bytes.store(0, std::memory_order_relaxed);
    Rearm(countdown, interval_bytes);
  }
}

Sampler::Countdown& Sampler::ForThisThread() {
  return countdowns_[Scatter(ThisThread()) % kCountdowns];
}

void Sampler::Rearm(Countdown& countdown, uint64_t interval) {
  uint64_t random = countdown.random.load(std::memory_order_relaxed);
  do {
    // Capped at 64 intervals (chance 1e-28) so that the sum cannot overflow.
    double distance = -Log(Uniform(&random));
    if (distance > 64) distance = 64;
    countdown.bytes.fetch_add(static_cast<int64_t>(distance * static_cast<double>(interval)) + 1,
                              std::memory_order_relaxed);
  } while (countdown.bytes.load(std::memory_order_relaxed) <= 0);
  countdown.random.store(random, std::memory_order_relaxed);
}

uint64_t Sampler::Estimate(uint64_t bytes, uint64_t interval) {
  if (bytes == 0) return 0;
  const double z = static_cast<double>(bytes);
  return static_cast<uint64_t>(z / OneMinusExp(z / static_cast<double>(interval)) + 0.5);
}

}  // namespace tidemark::agent
