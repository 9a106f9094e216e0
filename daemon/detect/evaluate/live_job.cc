#include "daemon/detect/evaluate/live_job.h"

#include <algorithm>
#include <cmath>

namespace tidemark::detect::evaluate {
namespace {

constexpr double kMib = 1024.0 * 1024.0;
constexpr SeriesId kLive{MemoryClass::kFwLive, 0};
constexpr SeriesId kCache{MemoryClass::kFwCache, 0};
constexpr SeriesId kAnon{MemoryClass::kAnon, -1};
// Sites that only hold what was allocated at the start: layers, buffers.
constexpr size_t kStaticSites = 40;
constexpr int64_t kHostBytes = int64_t{20} << 30;
constexpr int64_t kSecond = 1'000'000'000;

int64_t Bytes(double mib) { return static_cast<int64_t>(std::llround(mib * kMib)); }

bool InPool(const Part& part, bool pool) {
  return pool && (part.kind == PartKind::kWarmUp || part.kind == PartKind::kLogarithmic);
}

}  // namespace

void LiveSite::Age(uint64_t step) {
  while ((step >> point_.cohort_shift) >= kCohorts) {
    for (size_t i = 0; i < kCohorts / 2; ++i) {
      point_.cohort_bytes[i] = point_.cohort_bytes[2 * i] + point_.cohort_bytes[2 * i + 1];
    }
    std::fill(point_.cohort_bytes.begin() + kCohorts / 2, point_.cohort_bytes.end(), 0);
    ++point_.cohort_shift;
  }
}

void LiveSite::SetByGrowing(uint64_t step, int64_t bytes, bool newest_first) {
  Age(step);
  if (bytes >= point_.live_bytes) {
    point_.cohort_bytes[step >> point_.cohort_shift] += bytes - point_.live_bytes;
  } else {
    int64_t left = point_.live_bytes - bytes;
    for (size_t i = 0; i < kCohorts && left > 0; ++i) {
      int64_t& cohort = point_.cohort_bytes[newest_first ? kCohorts - 1 - i : i];
      const int64_t taken = std::min(left, cohort);
      cohort -= taken;
      left -= taken;
    }
  }
  point_.live_bytes = bytes;
}

void LiveSite::Replace(uint64_t step, int64_t bytes) {
  Age(step);
  point_.cohort_bytes = {};
  point_.cohort_bytes[step >> point_.cohort_shift] = bytes;
  point_.live_bytes = bytes;
}

LiveJob::LiveJob(const Job& job, uint64_t seed) : job_(job), pool_(seed % 2 == 0) {
  for (const Part& part : job.parts) {
    site_of_part_.push_back(sites_.size());
    sites_.emplace_back(part.kind == PartKind::kLeak ? kLeakSite : 100 + sites_.size(), kLive);
  }
  for (size_t i = 0; i < kStaticSites; ++i) {
    sites_.emplace_back(1000 + i, kLive);
    sites_.back().SetByGrowing(0, int64_t{64} << 20, true);
  }
}

const ProcessTick& LiveJob::TickAt(uint64_t step) {
  double live = static_cast<double>(kStaticSites) * 64;
  double cache = 200;
  double copied = 0;
  double host_noise = 0;
  for (size_t i = 0; i < job_.parts.size(); ++i) {
    const Part& part = job_.parts[i];
    const double mib = part.mib[step];
    LiveSite& site = sites_[site_of_part_[i]];
    if (InPool(part, pool_)) {
      cache += mib;
      continue;
    }
    switch (part.kind) {
      case PartKind::kNoise: {
        const double activations = std::max(0.0, mib + 8 * job_.noise_mib);
        site.Replace(step, Bytes(activations));
        live += activations;
        host_noise = mib;
        break;
      }
      case PartKind::kCopyOnWrite:
        copied += mib;
        break;
      case PartKind::kTransient:
        site.SetByGrowing(step, Bytes(mib), true);
        live += mib;
        break;
      case PartKind::kWeights:
      case PartKind::kWarmUp:
      case PartKind::kLogarithmic:
      case PartKind::kOneTime:
      case PartKind::kWalk:
      case PartKind::kEpochCache:
      case PartKind::kLeak:
        site.SetByGrowing(step, Bytes(mib), false);
        live += mib;
        break;
    }
  }
  const int64_t now = static_cast<int64_t>(step + 1) * kSecond;
  steps_ = {{step + 1, now, {{kLive, Bytes(live), Bytes(live + 4096)}, {kCache, Bytes(cache), 0}}}};
  const int64_t anon = kHostBytes + Bytes(copied + host_noise);
  totals_ = {{kAnon, anon, 0}};
  tick_.now_ns = now;
  tick_.rank = 0;
  tick_.new_steps = steps_;
  tick_.totals = totals_;
  tick_.sites = this;
  tick_.current_step = step + 1;
  tick_.facts.rss_bytes = kHostBytes;
  tick_.facts.private_dirty_bytes = kHostBytes / 2 + Bytes(copied);
  tick_.facts.forked_workers_share = copied > 0;
  return tick_;
}

}  // namespace tidemark::detect::evaluate
