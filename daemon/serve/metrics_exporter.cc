#include "daemon/serve/metrics_exporter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "daemon/serve/metric_families.h"
#include "daemon/serve/rank_metrics.h"

namespace tidemark::serve {
namespace {

double Number(auto value) { return static_cast<double>(value); }
double Seconds(uint64_t ns) { return Number(ns) / 1e9; }
std::string Reason(const std::string& text) { return LabelText(text, kMaxReasonBytes); }

// Which of a process's features stand for a witness.
struct WitnessFeatures {
  std::string_view witness;
  std::string_view prefix;
};
constexpr std::array<WitnessFeatures, 3> kWitnessFeatures = {
    {{"cupti", "cupti_callbacks"}, {"torch", "framework_allocator"}, {"bpf", "bpf_"}}};

void AddCoverage(const ProcessSnapshot& process, SeriesMap* out) {
  if (!process.observed) {
    out->Add(Metric::kProcessCoverage, 1,
             {"none", "unobserved", Reason(process.not_observed_reason)});
    return;
  }
  for (const auto& [witness, prefix] : kWitnessFeatures) {
    const FeatureView* told = nullptr;
    for (const FeatureView& feature : process.features) {
      if (!feature.name.starts_with(prefix)) continue;
      if (told == nullptr || feature.state == "on") told = &feature;
    }
    if (told == nullptr) continue;
    out->Add(Metric::kProcessCoverage, 1,
             {std::string(witness), LabelText(told->state), Reason(told->reason)});
  }
  for (const Waterfall& waterfall : process.waterfalls) {
    const bool own = waterfall.figure_known && !waterfall.device_wide;
    out->Add(Metric::kProcessCoverage, 1,
             {"nvml", own ? "on" : "unavailable",
              own                     ? ""
              : waterfall.device_wide ? "only the device's own figure is to be had"
                                      : Reason(waterfall.figure_source)});
    break;  // one row a process
  }
}

// Zeros too: two witnesses that agree are worth seeing. A difference counts against the one that
// has less; differences of several entry points and processes add up and never cancel.
void AddWitnesses(const ProcessSnapshot& process, SeriesMap* out) {
  auto add = [out](Metric metric, const char* window, int64_t agent_has_more) {
    out->Add(metric, Number(std::max<int64_t>(0, -agent_has_more)), {"cupti", window});
    out->Add(metric, Number(std::max<int64_t>(0, agent_has_more)), {"bpf", window});
  };
  for (const WitnessDifferenceView& difference : process.witness_differences) {
    add(Metric::kWitnessMissingCalls, "minute", difference.calls_last_minute);
    add(Metric::kWitnessMissingCalls, "total", difference.calls);
    add(Metric::kWitnessMissingBytes, "minute", difference.bytes_last_minute);
    add(Metric::kWitnessMissingBytes, "total", difference.bytes);
  }
}

void AddNodeState(const NodeSnapshot& snapshot, SeriesMap* out) {
  out->Max(Metric::kNodeInfo, 1, {LabelText(snapshot.node)});
  out->Max(Metric::kSnapshotTime, Seconds(snapshot.unix_ns));
  out->Max(Metric::kTickDuration, Seconds(snapshot.tick_ns));
  out->Max(Metric::kDaemonMemory, Number(snapshot.daemon_rss_bytes));
  out->Max(Metric::kDaemonCpu, snapshot.daemon_cpu_seconds);
  for (const FeatureView& source : snapshot.sources) {
    out->Max(Metric::kFeatureState, 1,
             {LabelText(source.name), LabelText(source.state), Reason(source.reason)});
  }
  for (const LossView& loss : snapshot.losses) {
    out->Add(Metric::kLosses, Number(loss.count), {LabelText(loss.cause)});
  }
  for (const DeviceView& device : snapshot.devices) {
    const std::string index = std::to_string(device.index);
    out->Max(
        Metric::kDeviceInfo, 1,
        {index, LabelText(device.uuid), LabelText(device.name), device.mig ? "true" : "false"});
    out->Max(Metric::kDeviceCapacity, Number(device.total_bytes), {index});
    out->Max(Metric::kDeviceUsed, Number(device.used_bytes), {index});
    out->Max(Metric::kDeviceReserved, Number(device.reserved_bytes), {index});
  }
  const NodeMemory& memory = snapshot.memory;
  const std::pair<const char*, int64_t> kinds[] = {
      {"total", memory.total_bytes},   {"available", memory.available_bytes},
      {"free", memory.free_bytes},     {"page_cache", memory.page_cache_bytes},
      {"kernel", memory.kernel_bytes}, {"shmem", memory.shmem_bytes}};
  for (const auto& [kind, bytes] : kinds) out->Max(Metric::kNodeMemory, Number(bytes), {kind});
}

}  // namespace

std::vector<prometheus::MetricFamily> MetricsExporter::Collect() const {
  MetricFamilies families(level_);
  SeriesMap node;
  node.Max(Metric::kBuildInfo, 1, {version_});
  node.Max(Metric::kRequests, Number(counters_.grpc_requests.load()), {"grpc"});
  node.Max(Metric::kRequests, Number(counters_.http_requests.load()), {"http"});
  for (size_t i = 0; i < kRefusalNames.size(); ++i) {
    node.Max(Metric::kRefusedRequests, Number(counters_.refusals[i].load()),
             {std::string(kRefusalNames[i])});
  }
  if (const SnapshotHub::Pointer snapshot = hub_.Latest()) {
    AddNodeState(*snapshot, &node);
    size_t ranks = 0;
    for (const auto& [labels, processes] : GroupByRank(*snapshot)) {
      for (const ProcessSnapshot* process : processes.owners) {
        AddCoverage(*process, &node);
        AddWitnesses(*process, &node);
        for (const LossView& loss : process->losses) {
          node.Add(Metric::kProcessLosses, Number(loss.count), {LabelText(loss.cause)});
          if (loss.bytes != 0) {
            node.Add(Metric::kLostBytes, Number(loss.bytes), {LabelText(loss.cause)});
          }
        }
      }
      if (ranks++ < kMaxRanks) {
        families.AddRank(labels, RankSeries(processes, level_));
      } else {
        families.OmitRank();
      }
    }
  }
  families.AddNode(node);
  return families.Take();
}

}  // namespace tidemark::serve
