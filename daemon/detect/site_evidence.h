// Which allocation site explains the growth of a series: by the generations of its live blocks.
//
// A site's live bytes are kept by birth step in 16 cohorts. A healthy site holds the first cohort
// (weights) or the last (activations); a leaking one holds something of every cohort since the leak
// began. The histogram alone tells the two apart, at any moment, without a history of each site.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/detect/process_judge.h"
#include "daemon/detect/verdict.h"

namespace tidemark::detect {

struct SiteQuestion {
  SeriesId id;
  uint64_t onset_step = 0;  // of the growth
  uint64_t now_step = 0;
  double slope = 0;  // of the series, bytes a step
};

struct BlameAnswer {
  std::vector<SiteBlame> sites;
  bool can_tell = false;   // rows of the series with cohorts, and two cohorts since the onset
  int64_t live_bytes = 0;  // of all rows of the series: how much of it the table covers
};

// Sites of that series that retain from generation to generation, most bytes a step first, at most
// five. Shares are of the slope and may sum to more or less than one.
BlameAnswer BlameSites(const SiteTable& sites, const SiteQuestion& question);

// Bytes of the newer half of the complete cohorts since the onset over those of the older half; 1
// while there are fewer than four.
double LateToEarly(const SitePoint& site, uint64_t onset_step, uint64_t now_step);

// What one site retains of the generations born in (onset_step, now_step).
SiteBlame RetainedBy(const SitePoint& site, uint64_t onset_step, uint64_t now_step);

}  // namespace tidemark::detect
