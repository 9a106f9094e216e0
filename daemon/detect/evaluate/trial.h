// One job through the judgement, and what came of it.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/detect/evaluate/families.h"
#include "daemon/detect/series_detector.h"

namespace tidemark::detect::evaluate {

struct Trial {
  bool leaks = false;  // the truth
  bool confirmed_at_end = false;
  bool confirmed_ever = false;
  bool confirmed_before_onset = false;
  bool suspect_ever = false;
  uint32_t alarms = 0;  // times a leak was confirmed that was none, or not yet one
  std::optional<uint64_t> suspect_after;  // steps from the onset
  std::optional<uint64_t> confirmed_after;
  std::optional<uint64_t> retracted_after;  // steps from a false confirmation to its retraction
  std::optional<bool> right_site;           // of leaks confirmed at the end, with sites
};

Trial RunSeries(const Job& job, const DetectorOptions& options);
Trial RunLive(const Job& job, uint64_t seed);

}  // namespace tidemark::detect::evaluate
