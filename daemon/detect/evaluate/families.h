// Random training jobs whose truth is known, for false-alarm and recall figures.
//
// A job is the sum of parts; each part knows what kind of memory it is, so that the same job can be
// shown to the judgement as a bare series, or split into classes and sites as the daemon has them.
// Ten families are healthy, nine leak. Parameters are drawn from the seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark::detect::evaluate {

enum class PartKind : uint8_t {
  kWeights,      // constant from the start
  kNoise,        // what differs from step to step
  kWarmUp,       // saturating: caches, pools, workspaces
  kLogarithmic,  // ever slower
  kTransient,    // rises and is given back: saw-teeth, evaluation peaks
  kOneTime,      // a step up at some moment
  kWalk,         // goes up and down between limits
  kCopyOnWrite,  // un-sharing of host pages: a ramp that ends
  kEpochCache,   // a smaller addition at each epoch
  kLeak,
};

struct Part {
  PartKind kind = PartKind::kWeights;
  std::vector<double> mib;  // by step
};

struct Job {
  std::string family;
  std::vector<Part> parts;
  std::optional<uint64_t> onset;  // step where the leak begins; absent = healthy
  double rate_mib = 0;            // per step, of the leak
  double noise_mib = 0;           // standard deviation
  double noise_memory = 0;        // correlation of neighbours
};

struct FamilyOptions {
  uint64_t steps = 20000;
  double rate_mib = 0.5;
  double noise_factor = 1.0;
};

const std::vector<std::string_view>& HealthyFamilies();
const std::vector<std::string_view>& LeakFamilies();

Job DrawJob(std::string_view family, uint64_t seed, const FamilyOptions& options);

// The bytes of all parts, by step; never negative.
std::vector<int64_t> SumOf(const Job& job);

}  // namespace tidemark::detect::evaluate
