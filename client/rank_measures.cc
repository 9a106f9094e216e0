#include "client/rank_measures.h"

#include <algorithm>

#include "client/rank_view.h"

namespace tidemark::client {
namespace {

std::optional<int64_t> GpuFigure(const v1::Process& process) {
  std::optional<int64_t> sum;
  for (const v1::Waterfall& waterfall : process.waterfalls()) {
    if (waterfall.figure_known() && !waterfall.device_wide()) {
      sum = sum.value_or(0) + waterfall.figure_bytes();
    }
  }
  return sum;
}

std::optional<int64_t> HostAnon(const v1::Process& process) {
  if (!process.host().known()) return std::nullopt;
  return process.host().anon_bytes();
}

const RankMeasure kMeasures[] = {
    {"GPU live", "gpu_live_bytes", GpuLiveBytes},
    {"GPU cache", "gpu_cache_bytes", [](const v1::Process& p) { return LiveBytes(p, "fw_cache"); }},
    {"GPU figure", "gpu_figure_bytes", GpuFigure},
    {"host anon", "host_anon_bytes", HostAnon},
    {"pinned", "pinned_bytes", [](const v1::Process& p) { return LiveBytes(p, "pinned"); }},
};

}  // namespace

std::span<const RankMeasure> RankMeasures() { return kMeasures; }

std::optional<int64_t> MedianOf(std::vector<int64_t> values) {
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::map<std::string, std::vector<const v1::Process*>> RanksByJob(const v1::Snapshot& snapshot) {
  std::map<std::string, std::vector<const v1::Process*>> jobs;
  for (const v1::Process* process : ByRank(snapshot)) {
    if (IsRank(*process)) jobs[process->identity().training_job()].push_back(process);
  }
  return jobs;
}

}  // namespace tidemark::client
