// What the processes of one rank contribute to a scrape.
#pragma once

#include <map>
#include <vector>

#include "daemon/serve/metric_families.h"
#include "daemon/snapshot/node_snapshot.h"

namespace tidemark::serve {

// Processes that share the labels of a rank: as a rule one, and its helpers.
struct RankProcesses {
  std::vector<const ProcessSnapshot*> owners;
  std::vector<const ProcessSnapshot*> helpers;
};

// Alive processes with a GPU context or a rank, by the values of kRankLabels; helpers with their
// owners.
std::map<LabelValues, RankProcesses> GroupByRank(const NodeSnapshot& snapshot);

SeriesMap RankSeries(const RankProcesses& processes, MetricsLevel level);

// "train.py:42 forward", "c10::cuda::Allocate (libc10_cuda.so)": the blamed frame for a label.
std::string SiteLabel(const SiteInfo& site);

// 16 hexadecimal digits; empty for 0.
std::string SiteIdLabel(uint64_t id);

}  // namespace tidemark::serve
