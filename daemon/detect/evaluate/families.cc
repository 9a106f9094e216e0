#include "daemon/detect/evaluate/families.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace tidemark::detect::evaluate {
namespace {

constexpr double kMib = 1024.0 * 1024.0;

// The distributions of <random> differ between libraries; these give the same job everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  double Uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
  }
  int64_t Integer(int64_t low, int64_t high) {  // both included
    return low + static_cast<int64_t>(Uniform(0, 1) * static_cast<double>(high - low + 1));
  }
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform(0, 1)));
    return radius * std::cos(6.283185307179586 * Uniform(0, 1));
  }

 private:
  std::mt19937_64 engine_;
};

template <typename F>
Part Make(PartKind kind, uint64_t steps, F value) {
  Part part{kind, std::vector<double>(steps)};
  for (uint64_t t = 0; t < steps; ++t) part.mib[t] = value(t);
  return part;
}

Part WarmUp(Random& random, uint64_t n) {
  const double height = random.Uniform(50, 4000);
  const double tau = random.Uniform(20, static_cast<double>(n) / 12);
  return Make(PartKind::kWarmUp, n,
              [&](uint64_t t) { return height * (1 - std::exp(-static_cast<double>(t) / tau)); });
}

Part Logarithmic(Random& random, uint64_t n) {
  const double scale = random.Uniform(20, 300);
  const double unit = random.Uniform(5, 100);
  return Make(PartKind::kLogarithmic, n,
              [&](uint64_t t) { return scale * std::log1p(static_cast<double>(t) / unit); });
}

Part SawTooth(Random& random, uint64_t n) {
  const double height = random.Uniform(50, 4000);
  const auto period = static_cast<uint64_t>(random.Integer(40, 800));
  return Make(PartKind::kTransient, n, [&](uint64_t t) {
    return height * static_cast<double>(t % period) / static_cast<double>(period);
  });
}

Part EvaluationPeaks(Random& random, uint64_t n) {
  const double height = random.Uniform(200, 6000);
  const auto every = static_cast<uint64_t>(random.Integer(200, 2000));
  const auto width = static_cast<uint64_t>(random.Integer(5, 60));
  return Make(PartKind::kTransient, n,
              [&](uint64_t t) { return t >= every && t % every < width ? height : 0.0; });
}

Part LevelSteps(Random& random, uint64_t n) {
  struct Step {
    uint64_t at;
    double height;
  };
  std::vector<Step> steps(static_cast<size_t>(random.Integer(1, 3)));
  for (Step& step : steps) {
    step.at = static_cast<uint64_t>(random.Integer(0, static_cast<int64_t>(n) - 1));
    step.height = random.Uniform(50, 3000);
  }
  return Make(PartKind::kOneTime, n, [&](uint64_t t) {
    double sum = 0;
    for (const Step& step : steps) sum += t >= step.at ? step.height : 0;
    return sum;
  });
}

Part BoundedWalk(Random& random, uint64_t n) {
  const double limit = random.Uniform(100, 1500);
  const double deviation = random.Uniform(2, 25);
  double level = 0;
  return Make(PartKind::kWalk, n, [&](uint64_t) {
    level = std::clamp(level + random.Normal() * deviation, 0.0, limit);
    return level;
  });
}

Part CopyOnWriteRamp(Random& random, uint64_t n) {
  const auto steps = static_cast<int64_t>(n);
  const auto length = static_cast<double>(random.Integer(steps / 40, steps / 5));
  const double height = random.Uniform(200, 8000);
  const auto start = static_cast<double>(random.Integer(0, steps / 4));
  return Make(PartKind::kCopyOnWrite, n, [&](uint64_t t) {
    return height * std::clamp((static_cast<double>(t) - start) / length, 0.0, 1.0);
  });
}

Part EpochCache(Random& random, uint64_t n) {
  const auto steps = static_cast<int64_t>(n);
  const auto epoch = static_cast<uint64_t>(random.Integer(steps / 20, steps / 6));
  const double first = random.Uniform(100, 2000);
  const double decay = random.Uniform(0.2, 0.6);
  return Make(PartKind::kEpochCache, n, [&](uint64_t t) {
    return first * (1 - std::pow(decay, static_cast<double>(t / epoch + 1))) / (1 - decay);
  });
}

Part Linear(uint64_t n, double rate, uint64_t onset) {
  return Make(PartKind::kLeak, n,
              [&](uint64_t t) { return t > onset ? rate * static_cast<double>(t - onset) : 0.0; });
}

Part InEvaluation(Random& random, uint64_t n, double rate, uint64_t* onset) {
  const auto every = static_cast<uint64_t>(random.Integer(200, 800));
  const auto width = static_cast<uint64_t>(random.Integer(10, 60));
  *onset = every;
  double level = 0;
  return Make(PartKind::kLeak, n, [&](uint64_t t) {
    if (t >= every && t % every < width) {
      level += rate * static_cast<double>(every) / static_cast<double>(width);
    }
    return level;
  });
}

Part Sporadic(Random& random, uint64_t n, double rate) {
  double level = 0;
  return Make(PartKind::kLeak, n, [&](uint64_t) {
    if (random.Uniform(0, 1) < 0.01) level += 100 * rate;
    return level;
  });
}

// A caching allocator turns small leaks into stairs of 2 or 20 MiB.
Part Segments(Random& random, uint64_t n, double rate) {
  const double block = random.Uniform(0, 1) < 0.5 ? 2 : 20;
  return Make(PartKind::kLeak, n, [&](uint64_t t) {
    return block * std::floor(rate * static_cast<double>(t) / block);
  });
}

uint64_t SeedOf(std::string_view family, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (char c : family) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash ^ (seed * 0x9e3779b97f4a7c15);
}

}  // namespace

const std::vector<std::string_view>& HealthyFamilies() {
  static const std::vector<std::string_view> families = {
      "flat",        "warm_up",      "logarithmic", "saw_tooth",   "eval_peaks",
      "level_steps", "bounded_walk", "cow_ramp",    "epoch_cache", "mixed"};
  return families;
}

const std::vector<std::string_view>& LeakFamilies() {
  static const std::vector<std::string_view> families = {
      "linear", "linear_warm_up", "linear_saw_tooth", "linear_mixed", "linear_bounded_walk",
      "late",   "in_eval",        "sporadic",         "segments"};
  return families;
}

Job DrawJob(std::string_view family, uint64_t seed, const FamilyOptions& options) {
  Random random(SeedOf(family, seed));
  const uint64_t n = options.steps;
  Job job;
  job.family = family;
  const double base = random.Uniform(2, 60) * 1024;
  job.parts.push_back(Make(PartKind::kWeights, n, [&](uint64_t) { return base; }));
  job.noise_mib =
      std::pow(10, random.Uniform(std::log10(0.5), std::log10(20))) * options.noise_factor;
  job.noise_memory = random.Uniform(0, 0.8);

  const auto add = [&](Part part) { job.parts.push_back(std::move(part)); };
  const auto mixed = [&] {
    add(WarmUp(random, n));
    add(SawTooth(random, n));
    add(EvaluationPeaks(random, n));
    add(LevelSteps(random, n));
  };
  uint64_t onset = 0;
  bool leaks = true;
  if (family == "linear") {
    add(Linear(n, options.rate_mib, 0));
  } else if (family == "linear_warm_up") {
    add(WarmUp(random, n));
    add(Linear(n, options.rate_mib, 0));
  } else if (family == "linear_saw_tooth") {
    add(SawTooth(random, n));
    add(Linear(n, options.rate_mib, 0));
  } else if (family == "linear_mixed") {
    mixed();
    add(Linear(n, options.rate_mib, 0));
  } else if (family == "linear_bounded_walk") {
    add(BoundedWalk(random, n));
    add(Linear(n, options.rate_mib, 0));
  } else if (family == "late") {
    add(WarmUp(random, n));
    onset = static_cast<uint64_t>(
        random.Integer(static_cast<int64_t>(n / 3), static_cast<int64_t>(n / 2)));
    add(Linear(n, options.rate_mib, onset));
  } else if (family == "in_eval") {
    add(InEvaluation(random, n, options.rate_mib, &onset));
  } else if (family == "sporadic") {
    add(Sporadic(random, n, options.rate_mib));
  } else if (family == "segments") {
    add(WarmUp(random, n));
    add(Segments(random, n, options.rate_mib));
  } else {
    leaks = false;
    if (family == "warm_up") add(WarmUp(random, n));
    if (family == "logarithmic") add(Logarithmic(random, n));
    if (family == "saw_tooth") add(SawTooth(random, n));
    if (family == "eval_peaks") add(EvaluationPeaks(random, n));
    if (family == "level_steps") add(LevelSteps(random, n));
    if (family == "bounded_walk") add(BoundedWalk(random, n));
    if (family == "cow_ramp") add(CopyOnWriteRamp(random, n));
    if (family == "epoch_cache") add(EpochCache(random, n));
    if (family == "mixed") mixed();
  }
  if (leaks) {
    job.onset = onset;
    job.rate_mib = options.rate_mib;
  }
  double noise = 0;
  const double fresh = job.noise_mib * std::sqrt(1 - job.noise_memory * job.noise_memory);
  add(Make(PartKind::kNoise, n, [&](uint64_t) {
    noise = job.noise_memory * noise + random.Normal() * fresh;
    return noise;
  }));
  return job;
}

std::vector<int64_t> SumOf(const Job& job) {
  std::vector<int64_t> bytes(job.parts.front().mib.size());
  for (size_t t = 0; t < bytes.size(); ++t) {
    double sum = 0;
    for (const Part& part : job.parts) sum += part.mib[t];
    bytes[t] = std::max<int64_t>(0, std::llround(sum * kMib));
  }
  return bytes;
}

}  // namespace tidemark::detect::evaluate
