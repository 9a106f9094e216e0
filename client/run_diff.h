// Two runs compared: by side of memory, by site and by rank. Pure; pointers live as long as the
// recordings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/rank_view.h"
#include "client/site_view.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

// How a site's bytes on a rank depend on the number of ranks. Only two world sizes can show it.
enum class Spread {
  kUnknown,
  kReplicated,  // the same bytes on every rank, however many there are
  kSharded,     // the job's bytes are the same, split over the ranks
};

// One run's side of a site.
struct SiteSide {
  const v1::Site* site = nullptr;  // as the first rank has it; null = not in this run
  int64_t bytes = 0;               // median over the ranks that hold it
  int64_t count = 0;               // of that rank
  size_t ranks = 0;
  bool grows = false;  // on any rank: by a verdict, or by the age of what it holds
};

struct SiteDifference {
  SiteSide a;
  SiteSide b;
  Spread spread = Spread::kUnknown;

  const v1::Site& site() const { return a.site != nullptr ? *a.site : *b.site; }
  int64_t Delta() const { return b.bytes - a.bytes; }
  bool GrowsInOneOnly() const { return a.grows != b.grows; }
};

// Medians over the ranks of one side of memory.
struct SideDifference {
  Side side = Side::kFramework;
  Moments a;
  Moments b;
};

struct RunDifference {
  int world_a = 0;
  int world_b = 0;
  At at = At::kLastStep;  // the moment that the sites are compared at
  std::vector<SideDifference> sides;
  std::vector<SiteDifference> sites;  // growing in one only first, then by size of difference
  bool AnyGrowsInOneOnly() const;
};

// `at` absent: the end of the last step where both made one, else the end of loading.
RunDifference CompareRuns(const v1::Recording& a, const v1::Recording& b, std::optional<At> at);

// "replicated", "sharded 1/4"; empty for kUnknown.
std::string SpreadText(Spread spread, int world_a, int world_b);

}  // namespace tidemark::client
