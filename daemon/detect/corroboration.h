// Puts together what the floor of a series says and what its allocation sites say.
//
//   series \ sites   none growing        one grows             no sites known
//   steady           steady              suspect, confirmed    steady
//   suspect          suspect             suspect, confirmed    suspect
//   confirmed        suspect (held)      confirmed             confirmed
//
// A site is quicker than the series (it has no noise); the series keeps a site honest (what a step
// gives back at its end never shows in the floor). A series that is confirmed while a complete site
// table shows nobody who retains is held at suspect, and only confirmed, by layer, when it has gone
// on for kHeld times as long.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/detect/series_detector.h"
#include "daemon/detect/site_watch.h"
#include "daemon/detect/verdict.h"

namespace tidemark::detect {

struct SiteWord {
  const SiteGrowth* growth = nullptr;     // flagged site of the series, fastest first
  bool growth_slows = false;              // its cohorts get smaller and smaller
  std::optional<bool> generations_alive;  // sites retain half of the slope or more; absent when
                                          // that cannot be told
};

class Corroboration {
 public:
  struct Word {
    VerdictState state = VerdictState::kWarmingUp;
    bool by_site = false;  // the site knew before the series: slope and onset are the site's
    uint64_t since = 0;
    int64_t since_ns = 0;
    uint64_t confirmed_at = 0;
  };

  const Word& Update(const SeriesDetector& series, const SiteWord& sites, uint64_t step,
                     int64_t now_ns);
  const Word& word() const { return word_; }

 private:
  Word word_;
};

}  // namespace tidemark::detect
