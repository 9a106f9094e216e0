// A job as the daemon would see it: split into classes, with a site table, one tick a step.
//
// How the parts map (what a real job's allocator would show):
//   weights            a site, all bytes of the first cohort
//   noise              activations: a site whose bytes are all of the step under way
//   warm-up, log       by seed: half the jobs in the allocator's pool (fw_cache), half as live
//                      tensors of a cache that fills (a site with ever smaller cohorts)
//   transient          a site that is filled and emptied
//   one-time, epochs   a site that allocates at those steps
//   walk               a site that frees its oldest blocks
//   copy-on-write      anon of the host, with private dirty pages that rise while RSS does not
//   leak               a site
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "daemon/detect/evaluate/families.h"
#include "daemon/detect/process_judge.h"

namespace tidemark::detect::evaluate {

// One simulated site with the agent's cohort histogram.
class LiveSite {
 public:
  LiveSite(uint64_t id, SeriesId series) {
    point_.site_id = id;
    point_.id = series;
  }
  // Brings the live bytes to `bytes` at `step`: allocates the difference now, or frees.
  void SetByGrowing(uint64_t step, int64_t bytes, bool newest_first);
  // Frees everything and allocates `bytes` anew.
  void Replace(uint64_t step, int64_t bytes);
  const SitePoint& point() const { return point_; }

 private:
  void Age(uint64_t step);
  SitePoint point_;
};

class LiveJob : public SiteTable {
 public:
  static constexpr uint64_t kLeakSite = 1;

  LiveJob(const Job& job, uint64_t seed);

  // The tick after step `step` (0-based); valid until the next call.
  const ProcessTick& TickAt(uint64_t step);

  size_t size() const override { return sites_.size(); }
  SitePoint At(size_t row) const override { return sites_[row].point(); }

 private:
  const Job& job_;
  bool pool_ = false;  // warm-ups lie in the allocator's pool
  std::vector<LiveSite> sites_;
  std::vector<size_t> site_of_part_;
  std::vector<StepPoint> steps_;
  std::vector<SeriesPoint> totals_;
  ProcessTick tick_;
};

}  // namespace tidemark::detect::evaluate
