// The judgement of a job: compares the ranks of one role with each other and folds equal verdicts
// of many ranks into one, so that a job-wide leak is one verdict, not eight.
//
// Pure function of one moment's verdicts and totals; call it each tick after the processes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "daemon/detect/process_judge.h"
#include "daemon/detect/verdict.h"

namespace tidemark::detect {

struct RankState {
  int32_t rank = -1;
  std::string role;  // ranks are only compared within one role ("" = all alike)
  std::span<const Verdict> verdicts;
  std::span<const SeriesPoint> totals;  // this moment's bytes by series
  bool past_load = false;               // has finished loading: skew may be told
};

struct JobOptions {
  double skew_share = 0.10;          // of the median; what counts as a skew
  int64_t skew_bytes = 512ll << 20;  // and at least this much
};

// How the verdicts of a job spread over its ranks.
enum class RankSpread : uint8_t { kOneRank, kSubset, kAllRanks };
std::string_view ToString(RankSpread spread);  // "one_rank", "subset", "all_ranks"

struct JobVerdict {
  Verdict verdict;  // ranks = all that share it; slope = median over them; sites as most blame
  RankSpread spread = RankSpread::kAllRanks;
  bool job_wide = false;  // true: one alert for the job; false: one for each rank in verdict.ranks
};

// Ranks that differ by a constant come as state kSteady with cause kConstantSkew or kRankOutlier;
// every rank holding the same bytes as kSameBytesOnEveryRank (one run cannot show replication).
std::vector<JobVerdict> JudgeJob(std::span<const RankState> ranks, const JobOptions& options = {});

}  // namespace tidemark::detect
