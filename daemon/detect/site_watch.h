// Watches the live bytes of allocation sites for steady growth, within a fixed budget a tick.
//
// Why beside the series: a site has no noise. One that keeps 1 MiB a step shows it within some
// twenty steps, where the process's floor needs hundreds to rise out of its own noise.
//
// Budget. The table is read on a rota, kRota rows a tick; the sites that grew when last read are
// read every tick (the hot ones, at most kHot). So a tick costs the same for 100 sites and 100,000,
// and a leaking site is followed closely from the second look on.
//
// A site grows while the smallest of each part of some steps exceeds the last one's, almost without
// exception: what goes up and down is no leak. And it has to rise well above all it ever held: what
// is filled and flushed again and again is remembered.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "daemon/detect/process_judge.h"

namespace tidemark::detect {

struct SiteGrowth {
  size_t row = 0;
  SeriesId id;
  uint64_t since_step = 0;    // where the growth began
  uint64_t last_step = 0;     // where it was last seen to go on
  uint64_t flagged_step = 0;  // where it was first told
  int64_t since_ns = 0;       // clock at since_step
  int64_t grown_bytes = 0;
  double per_step = 0;
  bool flagged = false;  // long and large enough to be suspect
};

class SiteWatch {
 public:
  static constexpr size_t kRota = 12;
  static constexpr size_t kHot = 4;
  static_assert(kRota + kHot == ProcessJudge::kSitesPerTick);

  // Reads its share of the table. `step` is the number of completed steps.
  void Tick(const SiteTable& sites, uint64_t step, int64_t now_ns);

  // The fastest growing flagged site of a series; nothing when there is none.
  const SiteGrowth* FastestOf(const SeriesId& id) const;

  size_t MemoryBytes() const { return tracks_.capacity() * sizeof(Track) + sizeof(*this); }

 private:
  struct Track {
    uint64_t site_id = 0;
    SeriesId id;
    int64_t part_floor = 0;  // smallest of the part under way
    uint64_t part_began = 0;
    int64_t last_floor = 0;  // of the part before
    int64_t record = 0;      // highest floor before the growth
    int64_t base = 0;        // floor where the growth began
    uint64_t since_step = 0;
    int64_t since_ns = 0;
    uint64_t last_rise = 0;  // step
    uint32_t rises = 0;
    uint32_t falls = 0;
    bool started = false;
  };

  void Look(const SiteTable& sites, size_t row, uint64_t step, int64_t now_ns);
  void EndPart(Track& track, size_t row, uint64_t step, int64_t now_ns);
  void Publish(const Track& track, size_t row, uint64_t step);
  int ScoreOf(size_t row) const;
  void Drop(size_t row);

  std::vector<Track> tracks_;
  std::vector<SiteGrowth> growing_;  // at most kHot, the hot ones
  size_t next_row_ = 0;
};

}  // namespace tidemark::detect
