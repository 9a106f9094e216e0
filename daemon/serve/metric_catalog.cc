#include "daemon/serve/metric_catalog.h"

namespace tidemark::serve {
namespace {

constexpr auto kGauge = MetricType::kGauge;
constexpr auto kCounter = MetricType::kCounter;
constexpr auto kBasic = MetricsLevel::kBasic;
constexpr auto kFull = MetricsLevel::kFull;

constexpr std::array<MetricSpec, kMetricCount> kCatalog = {{
    {Metric::kBuildInfo, "tidemark_build_info", kGauge, "", false, "version", kBasic, "1",
     "Always 1; the daemon's version."},
    {Metric::kNodeInfo, "tidemark_node_info", kGauge, "", false, "node", kBasic, "1",
     "Always 1; the node's name, to be joined on instance where an alert has to name it."},
    {Metric::kSnapshotTime, "tidemark_snapshot_timestamp_seconds", kGauge, "seconds", false, "",
     kBasic, "1", "When the snapshot was taken that this scrape shows, since the epoch."},
    {Metric::kTickDuration, "tidemark_tick_duration_seconds", kGauge, "seconds", false, "", kBasic,
     "1", "How long the last tick took."},
    {Metric::kDaemonMemory, "tidemark_daemon_resident_memory_bytes", kGauge, "bytes", false, "",
     kBasic, "1", "Resident memory of the daemon itself."},
    {Metric::kDaemonCpu, "tidemark_daemon_cpu_seconds_total", kCounter, "seconds", false, "",
     kBasic, "1", "Processor time of the daemon itself."},
    {Metric::kFeatureState, "tidemark_feature_state", kGauge, "", false, "feature,state,reason",
     kBasic, "1 a source or probe family",
     "Always 1; whether a source or probe family of the node is on, off, yielded or unavailable, "
     "and why."},
    {Metric::kProcessCoverage, "tidemark_process_coverage", kGauge, "", false,
     "witness,state,reason", kBasic, "64",
     "GPU processes and ranks by what observes them; state unobserved says why nothing does."},
    {Metric::kLosses, "tidemark_losses_total", kCounter, "", false, "cause", kBasic, "64",
     "Node-wide losses by cause: refused agents, full rings, unreadable files."},
    {Metric::kProcessLosses, "tidemark_process_losses", kGauge, "", false, "cause", kBasic, "64",
     "Losses by cause inside processes that are alive now: full tables, dropped records, refused "
     "hooks."},
    {Metric::kLostBytes, "tidemark_process_lost_bytes", kGauge, "bytes", false, "cause", kBasic,
     "64", "Bytes behind tidemark_process_losses where they are known."},
    {Metric::kWitnessMissingCalls, "tidemark_witness_missing_calls", kGauge, "", false,
     "witness,window", kBasic, "4",
     "Driver calls of processes alive now that this witness (cupti, bpf) did not count and the "
     "other did, of the time both counted; window is minute or total."},
    {Metric::kWitnessMissingBytes, "tidemark_witness_missing_bytes", kGauge, "bytes", false,
     "witness,window", kBasic, "4",
     "Requested bytes that this witness did not count and the other did, by entry point, then "
     "summed."},
    {Metric::kRequests, "tidemark_requests_total", kCounter, "", false, "api", kBasic, "2",
     "Requests to the daemon over grpc and http."},
    {Metric::kRefusedRequests, "tidemark_refused_requests_total", kCounter, "", false, "cause",
     kBasic, "10", "Requests and connections the daemon refused, by cause."},
    {Metric::kSeriesOmitted, "tidemark_series_omitted", kGauge, "", false, "", kBasic, "1",
     "Series this scrape left out to keep the bound of series a rank."},
    {Metric::kDeviceInfo, "tidemark_device_info", kGauge, "", false, "device,uuid,model,mig",
     kBasic, "1 a device", "Always 1; which device an ordinal stands for."},
    {Metric::kDeviceCapacity, "tidemark_device_capacity_bytes", kGauge, "bytes", false, "device",
     kBasic, "1 a device", "Memory of the device."},
    {Metric::kDeviceUsed, "tidemark_device_used_bytes", kGauge, "bytes", false, "device", kBasic,
     "1 a device", "Device memory in use by all processes, as NVML tells it."},
    {Metric::kDeviceReserved, "tidemark_device_driver_reserved_bytes", kGauge, "bytes", false,
     "device", kBasic, "1 a device", "Device memory the driver keeps for itself."},
    {Metric::kNodeMemory, "tidemark_node_memory_bytes", kGauge, "bytes", false, "kind", kBasic, "6",
     "Host memory of the node: total, available, free, page_cache, kernel, shmem."},

    {Metric::kRankInfo, "tidemark_rank_info", kGauge, "", true, "launcher", kBasic, "1 a rank",
     "Always 1; how the rank was started."},
    {Metric::kWorldSize, "tidemark_world_size", kGauge, "", true, "attempt", kBasic, "1 a rank",
     "Ranks the job should have, as this rank was told; attempt is the launcher's restart count."},
    {Metric::kVerdict, "tidemark_verdict", kGauge, "", true, "device,class,site,state,cause,leak",
     kBasic, "2 a rank",
     "Always 1; a judgement other than steady and warming_up. leak says whether the cause is one; "
     "site is empty when no single site explains it."},
    {Metric::kGrowth, "tidemark_growth_bytes_per_step", kGauge, "bytes per step", true,
     "device,class", kBasic, "1 a verdict", "Slope of the step floor behind a verdict."},
    {Metric::kOutOfMemory, "tidemark_out_of_memory_seconds", kGauge, "seconds", true,
     "device,class", kBasic, "1 a verdict", "Time until out of memory at the present slope."},
    {Metric::kReleasable, "tidemark_releasable_bytes", kGauge, "bytes", true, "device,class",
     kBasic, "1 a verdict",
     "What emptying a cache, trimming or reclaim could give back; only where a verdict says so."},
    {Metric::kProcessDevice, "tidemark_process_device_bytes", kGauge, "bytes", true, "device",
     kBasic, "1 a device of the rank",
     "The device figure of the rank's processes, as NVML tells it; absent where it cannot."},
    {Metric::kSteps, "tidemark_steps_total", kCounter, "", true, "", kBasic, "1 a rank",
     "Training steps completed."},
    {Metric::kStepFloor, "tidemark_step_floor_bytes", kGauge, "bytes", true, "device", kBasic,
     "1 a device of the rank",
     "Smallest live bytes within the last complete step, of the framework's allocator or, without "
     "one, of driver allocations."},
    {Metric::kSiteLive, "tidemark_site_live_bytes", kGauge, "bytes", true,
     "device,class,site,where", kBasic, "3 a rank (level full: 20)",
     "Live bytes of an allocation site: those that a verdict blames, then the largest, the "
     "framework's blocks before the driver's allocations, which hold them."},
    {Metric::kMemory, "tidemark_memory_bytes", kGauge, "bytes", true, "device,class", kBasic,
     "12 a device and 11 of host memory",
     "Bytes held now, by class. The device classes of one device add up to "
     "tidemark_process_device_bytes; unattributed may be negative."},
    {Metric::kMemoryPeak, "tidemark_memory_peak_bytes", kGauge, "bytes", true, "device,side",
     kBasic, "4 a device",
     "High-water mark since the process began: framework, driver_device, pinned, host_framework."},
    {Metric::kCgroupMemory, "tidemark_cgroup_memory_bytes", kGauge, "bytes", true, "kind", kBasic,
     "2 a rank", "Memory cgroup of the rank: current and limit; absent without one."},
    {Metric::kUntracked, "tidemark_untracked_bytes", kGauge, "bytes", true, "", kBasic, "1 a rank",
     "Allocated bytes that found no room in the agent's table: live bytes may be higher by up to "
     "this."},

    {Metric::kWitnessLive, "tidemark_witness_live_bytes", kGauge, "bytes", true,
     "device,class,witness,before_attach", kFull, "1 a class, device and witness",
     "Bytes held now as each witness counts them."},
    {Metric::kAllocatedBytes, "tidemark_allocated_bytes_total", kCounter, "bytes", true,
     "device,class,witness", kFull, "1 a class, device and witness",
     "Bytes allocated since the process began."},
    {Metric::kFreedBytes, "tidemark_freed_bytes_total", kCounter, "bytes", true,
     "device,class,witness", kFull, "1 a class, device and witness",
     "Bytes freed since the process began."},
    {Metric::kAllocations, "tidemark_allocations_total", kCounter, "", true, "device,class,witness",
     kFull, "1 a class, device and witness", "Successful allocations since the process began."},
    {Metric::kFailedCalls, "tidemark_failed_calls_total", kCounter, "", true,
     "device,class,witness", kFull, "1 a class, device and witness",
     "Allocation calls that failed."},
    {Metric::kEntryPointCalls, "tidemark_entry_point_calls_total", kCounter, "", true,
     "entry_point,witness", kFull, "1 an entry point and witness",
     "Calls of a memory entry point as each witness counted them."},
    {Metric::kEntryPointBytes, "tidemark_entry_point_requested_bytes_total", kCounter, "bytes",
     true, "entry_point,witness", kFull, "1 an entry point and witness",
     "Bytes those calls asked for, failed calls included."},
    {Metric::kGrowthLow, "tidemark_growth_low_bytes_per_step", kGauge, "bytes per step", true,
     "device,class", kFull, "1 a verdict",
     "Lower end of the 95 % interval of tidemark_growth_bytes_per_step."},
    {Metric::kGrowthHigh, "tidemark_growth_high_bytes_per_step", kGauge, "bytes per step", true,
     "device,class", kFull, "1 a verdict",
     "Upper end of the 95 % interval of tidemark_growth_bytes_per_step."},
    {Metric::kGrown, "tidemark_grown_bytes", kGauge, "bytes", true, "device,class", kFull,
     "1 a verdict", "Growth since the onset."},
    {Metric::kPhaseDelta, "tidemark_phase_delta_bytes", kGauge, "bytes", true,
     "device,class,phase,delta", kFull, "2 a phase, class and device",
     "Per phase: alloc = live at its end - at its start; peaked = what its peak rose above its "
     "end."},
}};

constexpr bool InOrder() {
  for (size_t i = 0; i < kCatalog.size(); ++i) {
    if (kCatalog[i].metric != static_cast<Metric>(i)) return false;
  }
  return true;
}
static_assert(InOrder(), "SpecOf indexes the catalog by Metric");

void AppendTable(std::string* page, bool of_rank, MetricsLevel level) {
  *page += "| name | type | unit | own labels | series | meaning |\n|---|---|---|---|---|---|\n";
  for (const MetricSpec& spec : kCatalog) {
    if (spec.of_rank != of_rank || spec.level != level) continue;
    const auto add = [&](std::string_view cell) { *page += std::string(cell) + " | "; };
    *page += "| `" + std::string(spec.name) + "` | ";
    add(spec.type == kCounter ? "counter" : "gauge");
    add(spec.unit.empty() ? "-" : spec.unit);
    add(spec.labels.empty() ? "-" : spec.labels);
    add(spec.bound);
    *page += std::string(spec.help) + " |\n";
  }
}

}  // namespace

const std::array<MetricSpec, kMetricCount>& MetricCatalog() { return kCatalog; }

const MetricSpec& SpecOf(Metric metric) { return kCatalog[static_cast<size_t>(metric)]; }

std::string MetricsPage() {
  std::string page =
      "# Metrics\n\n"
      "Printed by `metrics_page` from the catalog the exporter uses; do not edit by hand:\n"
      "`ninja -C build metrics_page && build/bin/metrics_page > docs/metrics.md`.\n\n"
      "The daemon serves them in Prometheus' text format at `http://127.0.0.1:9470/metrics`, "
      "built\nfrom the latest snapshot when the scrape comes: what is dead is gone from the next "
      "scrape on, and a\nscrape never waits for a tick.\n\n"
      "## Who gets series\n\n"
      "Processes that are alive and have a GPU context or a rank. A rank's helpers (DataLoader "
      "workers\nand other children) are counted with the rank: `anon`, `swap` and `locked` are "
      "summed; `file` and\n`shmem` are shared between them, so the largest is taken. Series carry "
      "no pid: processes with the\nsame labels are one series, summed.\n\n"
      "Labels of a rank: ";
  for (size_t i = 0; i < kRankLabels.size(); ++i) {
    page += (i == 0 ? "`" : ", `") + std::string(kRankLabels[i]) + "`";
  }
  page +=
      ". They are chosen so that none\ncollides with a label that a scrape configuration adds. "
      "An empty label means: not known. `device` is\nthe ordinal on the node; empty = host.\n\n"
      "## Bounds\n\n"
      "| what | level basic (default) | level full |\n|---|---|---|\n";
  page += "| series a rank, at most | " + std::to_string(kMaxBasicSeriesOfRank) + " | " +
          std::to_string(kMaxFullSeriesOfRank) + " |\n";
  page += "| sites a rank | " + std::to_string(kBasicSites) + " | " + std::to_string(kFullSites) +
          " |\n";
  page += "| verdicts a rank | " + std::to_string(kMaxVerdictsOfRank) + " | all |\n\n";
  page +=
      "What a bound leaves out is counted in `tidemark_series_omitted`; the order of the table "
      "below is the\norder in which series are kept. Node families keep at most " +
      std::to_string(kMaxSeriesOfNodeFamily) +
      " series; further\nreasons and causes are summed under `other`.\n\n"
      "## The node\n\n";
  AppendTable(&page, false, kBasic);
  page += "\n## A rank\n\n";
  AppendTable(&page, true, kBasic);
  page += "\n## A rank, level full only\n\n";
  AppendTable(&page, true, kFull);
  page +=
      "\n## Words\n\n"
      "- `class`, on a device: `device` (cuMemAlloc, pitch), `pool` (stream-ordered), `vmm`, "
      "`managed`,\n  `array`, `graph`, `ipc` (imported, not owned), `context`, `fw_live` and "
      "`fw_cache` (the framework's\n  allocator, inside the driver's memory), `observer` "
      "(Tidemark's own), `unattributed`.\n"
      "- `class`, pinned: `pinned` (allocated by CUDA), `registered`, `pinned_other` (RDMA, "
      "io_uring).\n"
      "- `class`, on the host: `anon`, `file`, `shmem`, `swap`, `lazyfree`, `locked`, `fw_host` "
      "(CPU tensors,\n  inside `anon`), `observer`.\n"
      "- `witness`: `cupti` (in the process), `bpf` (probes on libcuda), `torch` (the allocator's "
      "own word),\n  `nvml`, `proc`.\n"
      "- `site`: a hash of the frames' names in 16 hexadecimal digits, the same on every rank and "
      "node;\n  `where` is the blamed frame as a person reads it, with the file's base name only.\n"
      "- `state` and `cause` of a verdict: docs/runbooks/ has a page a cause.\n";
  return page;
}

}  // namespace tidemark::serve
