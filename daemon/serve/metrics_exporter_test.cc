#include "daemon/serve/metrics_exporter.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <set>

#include "daemon/serve/rank_metrics.h"
#include "daemon/serve/testing_snapshot.h"

namespace tidemark::serve {
namespace {

constexpr double kMiB = 1 << 20;

class MetricsTest : public ::testing::Test {
 protected:
  // "name{a="b"}" -> value. A series that comes twice fails the test: Prometheus would refuse it.
  std::map<std::string, double> Scrape(NodeSnapshot node,
                                       MetricsLevel level = MetricsLevel::kBasic) {
    SnapshotHub hub;
    hub.Publish(testing::Share(std::move(node)));
    return Scrape(hub, level);
  }
  std::map<std::string, double> Scrape(const SnapshotHub& hub,
                                       MetricsLevel level = MetricsLevel::kBasic) {
    const MetricsExporter exporter(hub, counters_, level, "1.2.3");
    std::map<std::string, double> out;
    for (const auto& family : exporter.Collect()) {
      for (const auto& series : family.metric) {
        std::string key = family.name + "{";
        for (const auto& label : series.label) {
          if (!key.ends_with('{')) key += ",";
          key += label.name + "=\"" + label.value + "\"";
        }
        const double value = family.type == prometheus::MetricType::Counter ? series.counter.value
                                                                            : series.gauge.value;
        EXPECT_TRUE(out.emplace(key + "}", value).second) << "twice: " << key;
      }
    }
    return out;
  }

  static size_t SeriesOfRank(const std::map<std::string, double>& scrape, int rank) {
    const std::string label = ",rank=\"" + std::to_string(rank) + "\"";
    size_t count = 0;
    for (const auto& [key, value] : scrape) count += key.find(label) != std::string::npos;
    return count;
  }

  ServeCounters counters_;
};

constexpr const char* kRank0 = "training_job=\"gpt-7b\",rank=\"0\",local_rank=\"0\"";
std::string OfRank0(const std::string& name, const std::string& labels = "") {
  return name + "{" + kRank0 + (labels.empty() ? "" : "," + labels) + "}";
}

TEST_F(MetricsTest, BeforeTheFirstTickThereIsTheDaemonAlone) {
  const auto scrape = Scrape(SnapshotHub());
  EXPECT_EQ(scrape.at("tidemark_build_info{version=\"1.2.3\"}"), 1);
  EXPECT_FALSE(scrape.contains("tidemark_node_info{node=\"node-7\"}"));
}

TEST_F(MetricsTest, TheClassesOfADeviceAddUpToItsFigure) {
  const auto scrape = Scrape(testing::MakeNode(1));
  double sum = 0;
  for (const char* c : {"context", "fw_live", "fw_cache", "device", "pool", "vmm", "array", "graph",
                        "observer", "unattributed"}) {
    sum += scrape.at(
        OfRank0("tidemark_memory_bytes", "device=\"0\",class=\"" + std::string(c) + "\""));
  }
  EXPECT_EQ(sum, scrape.at(OfRank0("tidemark_process_device_bytes", "device=\"0\"")));
  EXPECT_EQ(sum, 1500 * kMiB);
}

TEST_F(MetricsTest, MemoryOutsideTheFigureIsToldByTheNearestWitness) {
  const auto scrape = Scrape(testing::MakeNode(1));
  EXPECT_EQ(scrape.at(OfRank0("tidemark_memory_bytes", "class=\"pinned\"")), 64 * kMiB);
  EXPECT_EQ(scrape.at(OfRank0("tidemark_memory_bytes", "class=\"registered\"")), 32 * kMiB);
  EXPECT_EQ(scrape.at(OfRank0("tidemark_memory_bytes", "class=\"fw_host\"")), 16 * kMiB);
  EXPECT_EQ(scrape.at(OfRank0("tidemark_memory_bytes", "device=\"0\",class=\"managed\"")),
            5 * kMiB);
}

TEST_F(MetricsTest, ADeviceWithoutWaterfallIsToldByItsTotals) {
  NodeSnapshot node = testing::MakeNode(1);
  node.processes[0].waterfalls.clear();
  const auto scrape = Scrape(std::move(node));
  EXPECT_EQ(scrape.at(OfRank0("tidemark_memory_bytes", "device=\"0\",class=\"device\"")),
            900 * kMiB);
  EXPECT_EQ(scrape.at(OfRank0("tidemark_memory_bytes", "device=\"0\",class=\"fw_live\"")),
            600 * kMiB);
  EXPECT_FALSE(scrape.contains(OfRank0("tidemark_process_device_bytes", "device=\"0\"")));
}

TEST_F(MetricsTest, TheDeadVanish) {
  NodeSnapshot node = testing::MakeNode(2);
  node.processes[0].liveness = Liveness::kKilled;
  const auto scrape = Scrape(std::move(node));
  EXPECT_EQ(SeriesOfRank(scrape, 0), 0u);
  EXPECT_GT(SeriesOfRank(scrape, 1), 10u);
}

TEST_F(MetricsTest, OnlyProcessesWithAGpuContextOrARankGetSeries) {
  NodeSnapshot node = testing::MakeNode(1);
  ProcessSnapshot shell;
  shell.key.pid = 7;
  shell.host.known = true;
  shell.host.anon_bytes = 1;
  node.processes.push_back(shell);
  ProcessSnapshot rank_without_gpu = shell;
  rank_without_gpu.identity.training_job = "cpu-job";
  rank_without_gpu.identity.rank = 5;
  node.processes.push_back(rank_without_gpu);
  ProcessSnapshot gpu_without_rank = shell;
  gpu_without_rank.waterfalls = {{0, true, false, "nvml", 10, {{MemoryClass::kContext, 10, ""}}}};
  node.processes.push_back(gpu_without_rank);
  const auto scrape = Scrape(std::move(node));
  EXPECT_EQ(scrape.at("tidemark_memory_bytes{training_job=\"cpu-job\",rank=\"5\",class=\"anon\"}"),
            1);
  EXPECT_EQ(scrape.at("tidemark_memory_bytes{device=\"0\",class=\"context\"}"), 10);
  EXPECT_EQ(scrape.at("tidemark_memory_bytes{class=\"anon\"}"), 1);
}

TEST_F(MetricsTest, ProcessesWithTheSameLabelsAreOneSeries) {
  NodeSnapshot node = testing::MakeNode(1);
  node.processes.push_back(testing::MakeRank(4000, 0, 1000));
  const auto scrape = Scrape(std::move(node));
  EXPECT_EQ(scrape.at(OfRank0("tidemark_process_device_bytes", "device=\"0\"")), 3000 * kMiB);
  EXPECT_EQ(scrape.at(OfRank0("tidemark_steps_total")), 41);
}

TEST_F(MetricsTest, HelpersCountWithTheirRankAndSharedPagesOnce) {
  NodeSnapshot node = testing::MakeNode(1);
  ProcessSnapshot worker;
  worker.key.pid = 1500;
  worker.identity.helper_of = 1000;
  worker.identity.rank = 0;  // inherited environment
  worker.host.known = true;
  worker.host.anon_bytes = 100;
  worker.host.shmem_bytes = 50;
  node.processes.push_back(worker);
  const auto scrape = Scrape(std::move(node));
  EXPECT_EQ(scrape.at(OfRank0("tidemark_memory_bytes", "class=\"anon\"")), 3000 * kMiB + 100);
  EXPECT_EQ(scrape.at(OfRank0("tidemark_memory_bytes", "class=\"shmem\"")), 100 * kMiB);
}

TEST_F(MetricsTest, AVerdictNamesClassSiteAndCause) {
  const auto scrape = Scrape(testing::MakeNode(1));
  EXPECT_EQ(scrape.at(OfRank0("tidemark_verdict",
                              "device=\"0\",class=\"fw_live\",site=\"0000000000001000\","
                              "state=\"confirmed\",cause=\"tensors_kept\",leak=\"true\"")),
            1);
  const std::string labels = "device=\"0\",class=\"fw_live\"";
  EXPECT_EQ(scrape.at(OfRank0("tidemark_growth_bytes_per_step", labels)), 8 * kMiB);
  EXPECT_EQ(scrape.at(OfRank0("tidemark_out_of_memory_seconds", labels)), 2000);
}

TEST_F(MetricsTest, SteadyAndWarmingUpAreNoSeries) {
  NodeSnapshot node = testing::MakeNode(1);
  node.processes[0].verdicts[0].state = detect::VerdictState::kSteady;
  for (const auto& [key, value] : Scrape(std::move(node))) {
    EXPECT_FALSE(key.starts_with("tidemark_verdict")) << key;
  }
}

TEST_F(MetricsTest, TheBlamedSiteComesFirstThenTheLargest) {
  const auto scrape = Scrape(testing::MakeNode(1, 10));
  std::set<std::string> sites;
  for (const auto& [key, value] : scrape) {
    if (key.starts_with("tidemark_site_live_bytes")) sites.insert(key.substr(key.find("site=")));
  }
  EXPECT_EQ(sites,
            (std::set<std::string>{"site=\"0000000000001000\",where=\"model.py:10 forward\"}",
                                   "site=\"0000000000001008\",where=\"model.py:18 forward\"}",
                                   "site=\"0000000000001009\",where=\"model.py:19 forward\"}"}));
}

TEST_F(MetricsTest, TheSegmentsOfTheFrameworkComeAfterItsBlocks) {
  NodeSnapshot node = testing::MakeNode(1, 3);
  auto sites = std::make_shared<SiteList>(*node.processes[0].sites);
  auto segment = std::make_shared<SiteView>(*testing::MakeSite(0x9000, 1LL << 40, 99));
  segment->memory_class = MemoryClass::kDevice;
  sites->push_back(std::move(segment));
  node.processes[0].sites = std::move(sites);
  for (const auto& [key, value] : Scrape(std::move(node))) {
    EXPECT_EQ(key.find("site=\"0000000000009000\""), std::string::npos) << key;
  }
}

TEST_F(MetricsTest, ASiteLabelHoldsNoDirectories) {
  const std::string label = SiteLabel(*testing::MakeSite(1, 1, 42)->info);
  EXPECT_EQ(label, "model.py:42 forward");
  SiteInfo native;
  EXPECT_EQ(SiteLabel(native), "no stack");
  native.frames = {{wire::FrameKind::kNative, "f(int)", "/opt/secret/libf.so", 0}};
  EXPECT_EQ(SiteLabel(native), "f(int) (libf.so)");
  native.frames[0].function = std::string(500, 'x');
  EXPECT_LE(SiteLabel(native).size(), kMaxWhereBytes);
}

TEST_F(MetricsTest, SixteenRanksKeepTheBoundOfSeries) {
  NodeSnapshot node = testing::MakeNode(16, 1000);
  for (ProcessSnapshot& process : node.processes) {
    // Every rank with contexts on all devices: far more than the bound.
    for (int device = 0; device < 16; ++device) {
      Waterfall waterfall = process.waterfalls[0];
      waterfall.device = 100 + device;
      process.waterfalls.push_back(waterfall);
    }
  }
  const auto scrape = Scrape(std::move(node));
  for (int rank = 0; rank < 16; ++rank) {
    EXPECT_EQ(SeriesOfRank(scrape, rank), kMaxBasicSeriesOfRank) << rank;
  }
  EXPECT_GT(scrape.at("tidemark_series_omitted{}"), 1000);
  EXPECT_TRUE(
      scrape.contains(OfRank0("tidemark_growth_bytes_per_step", "device=\"0\",class=\"fw_live\"")));
}

TEST_F(MetricsTest, AnOrdinaryRankLosesNothingToTheBound) {
  const auto scrape = Scrape(testing::MakeNode(16));
  EXPECT_EQ(scrape.at("tidemark_series_omitted{}"), 0);
  EXPECT_LE(SeriesOfRank(scrape, 3), kMaxBasicSeriesOfRank);
}

TEST_F(MetricsTest, MadeUpJobsCannotFillTheScrape) {
  NodeSnapshot node = testing::MakeNode(1);
  for (int i = 0; i < 1000; ++i) {
    ProcessSnapshot process;
    process.key.pid = 10'000 + i;
    process.identity.training_job = "job-" + std::to_string(i) + std::string(1000, 'x');
    process.identity.rank = 0;
    process.observed = false;
    process.not_observed_reason = "reason " + std::to_string(i);
    node.processes.push_back(std::move(process));
  }
  const auto scrape = Scrape(std::move(node));
  EXPECT_LT(scrape.size(), MetricsExporter::kMaxRanks * kMaxBasicSeriesOfRank);
  EXPECT_EQ(scrape.at("tidemark_series_omitted{}"), 1001 - double{MetricsExporter::kMaxRanks});
  double processes = 0;
  size_t series = 0;
  for (const auto& [key, value] : scrape) {
    EXPECT_LT(key.size(), 700u);
    if (!key.starts_with("tidemark_process_coverage{witness=\"none\"") &&
        !key.starts_with("tidemark_process_coverage{witness=\"other\"")) {
      continue;
    }
    processes += value;
    ++series;
  }
  EXPECT_LE(series, kMaxSeriesOfNodeFamily);
  EXPECT_GE(processes, 1000);
}

TEST_F(MetricsTest, CoverageSaysWhatObservesAndWhyNot) {
  NodeSnapshot node = testing::MakeNode(2);
  node.processes[1].observed = false;
  node.processes[1].not_observed_reason = "TIDEMARK=off";
  const auto scrape = Scrape(std::move(node));
  const std::string name = "tidemark_process_coverage";
  EXPECT_EQ(scrape.at(name + "{witness=\"cupti\",state=\"on\"}"), 1);
  EXPECT_EQ(scrape.at(name + "{witness=\"torch\",state=\"on\"}"), 1);
  EXPECT_EQ(scrape.at(name + "{witness=\"nvml\",state=\"on\"}"), 1);
  EXPECT_EQ(scrape.at(name + "{witness=\"bpf\",state=\"unavailable\",reason=\"bpf(2) denied; add "
                             "CAP_BPF\"}"),
            1);
  EXPECT_EQ(scrape.at(name + "{witness=\"none\",state=\"unobserved\",reason=\"TIDEMARK=off\"}"), 1);
}

TEST_F(MetricsTest, WhatOneWitnessLacksIsToldAndDifferencesNeverCancel) {
  NodeSnapshot node = testing::MakeNode(1);
  node.processes[0].witness_differences = {{"cuMemAlloc", 9, 2, 4096, 0, 0},
                                           {"cuMemMap", 9, -3, 0, -1, 0}};
  const auto scrape = Scrape(std::move(node));
  const std::string calls = "tidemark_witness_missing_calls";
  EXPECT_EQ(scrape.at(calls + "{witness=\"bpf\",window=\"total\"}"), 2);
  EXPECT_EQ(scrape.at(calls + "{witness=\"cupti\",window=\"total\"}"), 3);
  EXPECT_EQ(scrape.at(calls + "{witness=\"cupti\",window=\"minute\"}"), 1);
  EXPECT_EQ(scrape.at(calls + "{witness=\"bpf\",window=\"minute\"}"), 0);
  EXPECT_EQ(scrape.at("tidemark_witness_missing_bytes{witness=\"bpf\",window=\"total\"}"), 4096);
}

TEST_F(MetricsTest, LossesAreSummedByCause) {
  counters_.Refuse(Refusal::kNotYours);
  const auto scrape = Scrape(testing::MakeNode(2));
  EXPECT_EQ(scrape.at("tidemark_losses_total{cause=\"handshake_refused\"}"), 2);
  EXPECT_EQ(scrape.at("tidemark_process_losses{cause=\"records_dropped\"}"), 6);
  EXPECT_EQ(scrape.at("tidemark_process_lost_bytes{cause=\"records_dropped\"}"), 8192);
  EXPECT_EQ(scrape.at("tidemark_refused_requests_total{cause=\"not_yours\"}"), 1);
}

TEST_F(MetricsTest, TheStepFloorIsTheFrameworksOrTheDrivers) {
  NodeSnapshot node = testing::MakeNode(2);
  auto step = std::make_shared<StepView>(*node.processes[1].steps->back());
  step->groups.erase(step->groups.begin());
  node.processes[1].steps = std::make_shared<StepList>(StepList{step});
  const auto scrape = Scrape(std::move(node));
  EXPECT_EQ(scrape.at(OfRank0("tidemark_step_floor_bytes", "device=\"0\"")), 500 * kMiB);
  EXPECT_EQ(scrape.at("tidemark_step_floor_bytes{training_job=\"gpt-7b\",rank=\"1\",local_rank="
                      "\"1\",device=\"1\"}"),
            900 * kMiB);
}

TEST_F(MetricsTest, LevelFullAddsWitnessesAndBasicHasNone) {
  const std::string key = OfRank0("tidemark_witness_live_bytes",
                                  "class=\"pinned\",witness=\"bpf\",before_attach=\"false\"");
  EXPECT_FALSE(Scrape(testing::MakeNode(1)).contains(key));
  const auto full = Scrape(testing::MakeNode(1, 100), MetricsLevel::kFull);
  EXPECT_EQ(full.at(key), 63 * kMiB);
  EXPECT_EQ(full.at(OfRank0("tidemark_allocated_bytes_total", "class=\"pinned\",witness=\"bpf\"")),
            189 * kMiB);
  EXPECT_LE(SeriesOfRank(full, 0), kMaxFullSeriesOfRank);
}

TEST_F(MetricsTest, NamesAndUnitsFollowTheRules) {
  std::set<std::string_view> names;
  for (const MetricSpec& spec : MetricCatalog()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_TRUE(spec.name.starts_with("tidemark_")) << spec.name;
    EXPECT_EQ(spec.name.ends_with("_total"), spec.type == MetricType::kCounter) << spec.name;
    EXPECT_FALSE(spec.help.empty() || spec.bound.empty()) << spec.name;
    EXPECT_TRUE(spec.help.ends_with('.')) << spec.name;
    std::string_view stem = spec.name;
    if (stem.ends_with("_total")) stem.remove_suffix(6);
    EXPECT_TRUE(spec.unit != "bytes" || stem.ends_with("_bytes")) << spec.name;
    EXPECT_TRUE(spec.unit != "seconds" || stem.ends_with("_seconds")) << spec.name;
    EXPECT_TRUE(spec.unit != "bytes per step" || stem.ends_with("_bytes_per_step")) << spec.name;
  }
}

TEST_F(MetricsTest, NoLabelCollidesWithAScrapesOwn) {
  for (const MetricSpec& spec : MetricCatalog()) {
    const std::string labels = "," + std::string(spec.labels) + ",";
    for (const char* taken : {",job,", ",instance,", ",namespace,", ",pod,", ",container,"}) {
      EXPECT_EQ(labels.find(taken), std::string::npos) << spec.name;
    }
  }
}

}  // namespace
}  // namespace tidemark::serve
