// From a growing series and what else is known of the process to the cause of the growth.
#pragma once

#include <string>
#include <vector>

#include "daemon/detect/process_judge.h"
#include "daemon/detect/series_detector.h"
#include "daemon/detect/verdict.h"

namespace tidemark::detect {

// How another series moved since the growth in question began.
struct Companion {
  SeriesId id;
  int64_t growth_bytes = 0;  // its floor now minus its floor then
};

struct CauseInput {
  SeriesId id;
  const SeriesFinding* finding = nullptr;
  int64_t growth_bytes = 0;  // of the series itself, since its onset
  std::vector<Companion> companions;
  ProcessFacts facts_then;  // at the onset
  ProcessFacts facts_now;
};

struct CauseChoice {
  Cause cause = Cause::kNone;
  std::vector<std::string> evidence;  // what spoke for it
  // Set when another series explains the growth: that one raises the alert, this one only follows.
  bool follows = false;
  SeriesId leader;
  int64_t releasable_bytes = 0;
};

CauseChoice ChooseCause(const CauseInput& input);

}  // namespace tidemark::detect
