// The tables of a report, shared by its text and its Markdown.
#pragma once

#include <string>
#include <vector>

#include "client/site_view.h"
#include "client/table.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

// A row per rank and side: load, last step, peak, exit. Ranks with equal rows share one.
Table MomentsTable(const std::vector<const v1::Process*>& processes);

// A row per phase, rank and side: before, alloc_delta, peaked_delta on GPU and host.
Table PhasesTable(const std::vector<const v1::Process*>& processes);

// The largest sites at a moment, at most `limit` rows of at least `min_share` of a rank's bytes.
Table SitesTable(const std::vector<SiteRow>& rows, size_t limit);

// Whose peak is made of the same sites, with these sites.
struct PeakComposition {
  std::vector<const v1::Process*> processes;
  std::vector<SiteRow> rows;  // of the side that the peak belongs to, largest first
  int64_t peak_bytes = 0;     // of the first process
  uint64_t peak_step = 0;
  std::string side_title;
};
std::vector<PeakComposition> PeakCompositions(const std::vector<const v1::Process*>& processes);

// What the reader should know about what was not seen, a sentence each: unobserved processes,
// features that are not on, losses.
std::vector<std::string> BlindSpots(const v1::Snapshot& snapshot);

}  // namespace tidemark::client
