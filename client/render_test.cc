// What people see, whole: each command's text for snapshots made by hand is compared with a file in
// testdata/. After a change that is meant, look at the new text and write it with
// TIDEMARK_WRITE_GOLDEN=1.
#include "client/commands/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "client/commands/diff_text.h"
#include "client/commands/holders.h"
#include "client/report.h"
#include "client/testing/fixture.h"

namespace tidemark::client {
namespace {

using ::testing::HasSubstr;
using testing::kGiB;
using testing::kMiB;

void ExpectGolden(const std::string& name, const std::string& text) {
  const std::string path = std::string(TESTDATA) + "/" + name + ".txt";
  if (std::getenv("TIDEMARK_WRITE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(file), {})) << path;
}

// A rank that died, one that cannot be seen, and what was lost.
v1::Snapshot TroubledSnapshot() {
  v1::Snapshot snapshot = testing::LeakingSnapshot(3);
  v1::Process& dead = *snapshot.mutable_processes(0);
  dead.set_liveness("killed");
  dead.set_exit_reason("killed by the OOM killer");
  v1::Process& blind = *snapshot.mutable_processes(1);
  blind.clear_verdicts();
  v1::Feature* feature = blind.add_features();
  feature->set_name("cupti_callbacks");
  feature->set_state("yielded");
  feature->set_reason("libkineto");
  v1::Loss* loss = blind.add_losses();
  loss->set_cause("live_table_full");
  loss->set_count(12);
  loss->set_bytes(48 * kMiB);
  blind.mutable_totals(2)->set_untracked_bytes(48 * kMiB);
  v1::Process& unseen = *snapshot.mutable_processes(2);
  unseen.clear_verdicts();
  unseen.clear_sites();
  unseen.clear_totals();
  unseen.set_observed(false);
  unseen.set_not_observed_reason("injected by nsight; attach is off");
  v1::Feature* source = snapshot.add_sources();
  source->set_name("bpf_pinned");
  source->set_state("unavailable");
  source->set_reason("CAP_BPF is missing: run tidemarkd as root");
  source = snapshot.add_sources();
  source->set_name("procfs");
  source->set_state("on");
  v1::Loss* refused = snapshot.add_losses();
  refused->set_cause("refused_seals");
  refused->set_count(2);
  return snapshot;
}

TEST(Render, TheReportOfALeak) {
  v1::Recording recording = testing::RecordingOf(testing::LeakingSnapshot());
  (*recording.mutable_tags())["zero_init"] = "on";
  ExpectGolden("report_leak", ReportText(recording, Ink()));
  ExpectGolden("report_leak_markdown", ReportMarkdown(recording));
}

TEST(Render, TheReportOfASteadyJob) {
  ExpectGolden("report_steady", ReportText(testing::RecordingOf(testing::SteadySnapshot()), Ink()));
}

TEST(Render, TheReportOfAJobThatOnlyLoads) {
  ExpectGolden("report_masks", ReportText(testing::RecordingOf(testing::MasksSnapshot(4)), Ink()));
}

TEST(Render, TheReportOfATroubledJob) {
  ExpectGolden("report_troubled", ReportText(testing::RecordingOf(TroubledSnapshot(), 137), Ink()));
}

TEST(Render, AnEmptyReportSaysSo) {
  EXPECT_THAT(ReportText(testing::RecordingOf(testing::EmptySnapshot()), Ink()),
              HasSubstr("No process of this job was observed."));
}

TEST(Render, TheReportsNumbersInJsonAreExact) {
  const Json json = ReportJson(testing::RecordingOf(testing::LeakingSnapshot()));
  EXPECT_EQ(json["leak"], true);
  EXPECT_EQ(json["ranks"].size(), 4u);
  const Json& memory = json["ranks"][3]["memory"][0];
  EXPECT_EQ(memory["side"], "framework");
  EXPECT_EQ(memory["load_bytes"], kGiB);
  EXPECT_EQ(memory["last_step_bytes"], kGiB + 960 * kMiB);
  EXPECT_EQ(json["ranks"][3]["phases"][1]["memory"][0]["alloc_delta_bytes"], 960 * kMiB);
  EXPECT_EQ(json["ranks"][3]["phases"][1]["memory"][0]["peaked_delta_bytes"], 512 * kMiB);
}

TEST(Render, Ps) { ExpectGolden("ps", PsText(TroubledSnapshot(), Ink())); }

TEST(Render, Where) {
  v1::Snapshot snapshot = testing::LeakingSnapshot(1);
  snapshot.mutable_memory()->set_total_bytes(64 * kGiB);
  snapshot.mutable_memory()->set_available_bytes(50 * kGiB);
  snapshot.mutable_memory()->set_free_bytes(40 * kGiB);
  snapshot.mutable_memory()->set_page_cache_bytes(12 * kGiB);
  snapshot.mutable_memory()->set_kernel_bytes(2 * kGiB);
  v1::Device* device = snapshot.add_devices();
  device->set_used_bytes(3 * kGiB);
  device->set_total_bytes(80 * kGiB);
  device->set_reserved_bytes(600 * kMiB);
  device->set_name("H200");
  ExpectGolden("where", WhereText(snapshot, Ink()));
  ExpectGolden("where_reconcile", ReconcileText(snapshot, Ink()));
  ExpectGolden("where_torch", TorchSummaryText(snapshot, Ink()));
}

TEST(Render, AWaterfallWithoutAFigureSaysWhy) {
  v1::Snapshot snapshot = testing::SteadySnapshot(1);
  v1::Waterfall* waterfall = snapshot.mutable_processes(0)->mutable_waterfalls(0);
  waterfall->set_figure_known(false);
  waterfall->set_figure_source("NVML does not show processes of this pid namespace");
  EXPECT_THAT(WhereText(snapshot, Ink()),
              HasSubstr("rank 0, GPU 0; no device figure (NVML does not show processes of this pid "
                        "namespace)\n"));
}

TEST(Render, AWaterfallThatDoesNotAddUpIsNotHidden) {
  v1::Snapshot snapshot = testing::SteadySnapshot(1);
  v1::Waterfall* waterfall = snapshot.mutable_processes(0)->mutable_waterfalls(0);
  waterfall->set_figure_bytes(waterfall->figure_bytes() + 5 * kMiB);
  EXPECT_THAT(WhereText(snapshot, Ink()), HasSubstr("5 MiB  off"));
}

TEST(Render, Sites) {
  ExpectGolden("sites", SitesText(testing::LeakingSnapshot(), SitesView(), Ink()));
  SitesView view;
  view.frames = true;
  view.under = "forward";
  view.at = At::kPeak;
  ExpectGolden("sites_frames", SitesText(testing::LeakingSnapshot(1), view, Ink()));
}

TEST(Render, SitesCanBeChosenByFrameClassAndId) {
  const v1::Snapshot snapshot = testing::LeakingSnapshot(1);
  const auto count = [&](const SitesView& view) {
    return SitesJson(snapshot, view)["sites"].size();
  };
  SitesView view;
  EXPECT_EQ(count(view), 2u);
  view.under = "model.py:41";
  EXPECT_EQ(count(view), 1u);
  view.under = "";
  view.memory_class = "pinned";
  EXPECT_EQ(count(view), 0u);
  view.memory_class = "";
  view.site_id = testing::kWeightsSite;
  EXPECT_EQ(SitesJson(snapshot, view)["sites"][0]["id"], "000000000000beef");
}

TEST(Render, AtLoadOnlyWhatWasLoadedIsThere) {
  SitesView view;
  view.at = At::kLoad;
  const Json sites = SitesJson(testing::LeakingSnapshot(1), view)["sites"];
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_EQ(sites[0]["bytes"], kGiB);
  EXPECT_EQ(sites[0]["allocated_at"], "model.py:12 __init__");
}

TEST(Render, MoreSitesThanTheLimitAreCountedNotDropped) {
  SitesView view;
  view.limit = 1;
  EXPECT_THAT(SitesText(testing::MasksSnapshot(2), view, Ink()),
              HasSubstr("and 1 more with 8.00 GiB in all (--limit 0 shows them)\n"));
}

TEST(Render, Steps) {
  v1::Snapshot snapshot = testing::LeakingSnapshot(2);
  testing::AddRank(snapshot, 2, 3);
  ExpectGolden("steps", StepsText(snapshot, 3, Ink()));
  EXPECT_EQ(StepsJson(snapshot, 3)["ranks"][0]["steps"][2]["delta_bytes"]["device"], 8 * kMiB);
}

TEST(Render, Leaks) {
  ExpectGolden("leaks", LeaksText(testing::LeakingSnapshot(), Ink()));
  ExpectGolden("leaks_steady", LeaksText(testing::SteadySnapshot(), Ink()));
  ExpectGolden("leaks_troubled", LeaksText(TroubledSnapshot(), Ink()));
}

TEST(Render, EveryLeakSaysThatAllocatingIsNotHolding) {
  const std::string text = LeaksText(testing::LeakingSnapshot(), Ink());
  EXPECT_THAT(text, HasSubstr("allocated here: model.py:41 forward"));
  EXPECT_THAT(text, HasSubstr("who holds it: tidemark sites --holders"));
}

TEST(Render, ALeakOfAProcessThatFreedAllOnItsWayOutShowsItsLastStep) {
  v1::Snapshot snapshot = testing::LeakingSnapshot();
  EXPECT_THAT(LeaksText(snapshot, Ink()), HasSubstr("120 x 8 MiB live"));
  for (v1::Process& process : *snapshot.mutable_processes()) {
    for (v1::Site& site : *process.mutable_sites()) site.clear_live();
  }
  EXPECT_THAT(LeaksText(snapshot, Ink()), HasSubstr("120 x 8 MiB at the last step"));
}

TEST(Render, LeaksInJsonNameSiteAndMembers) {
  const Json json = LeaksJson(testing::LeakingSnapshot());
  EXPECT_EQ(json["leak"], true);
  ASSERT_EQ(json["verdicts"].size(), 1u);
  EXPECT_EQ(json["verdicts"][0]["allocated_at"], "model.py:41 forward");
  EXPECT_EQ(json["verdicts"][0]["members"].size(), 4u);
  EXPECT_EQ(json["verdicts"][0]["members"][2]["gpu_live_bytes"], kGiB + 960 * kMiB);
}

TEST(Render, Job) {
  v1::Snapshot snapshot = testing::LeakingSnapshot();
  snapshot.mutable_processes(2)->mutable_totals(0)->set_live_bytes(4 * kGiB);
  ExpectGolden("job", JobText(snapshot, Ink()));
  const Json json = JobJson(snapshot);
  EXPECT_EQ(json["jobs"][0]["ranks"][2]["gpu_live_bytes"], 4 * kGiB);
  EXPECT_EQ(json["jobs"][0]["medians"]["gpu_live_bytes"], kGiB + 960 * kMiB);
}

TEST(Render, Doctor) { ExpectGolden("doctor", DoctorText(TroubledSnapshot(), Ink())); }

TEST(Render, WitnessesThatDisagreeAreShownByDoctorAndThoseThatAgreeByReconcileToo) {
  v1::Snapshot snapshot = testing::SteadySnapshot(1);
  const auto add = [&](const char* name, int64_t calls, int64_t bytes) {
    v1::WitnessDifference* row = snapshot.mutable_processes(0)->add_witness_differences();
    row->set_entry_point(name);
    row->set_compared_calls(1500);
    row->set_calls(calls);
    row->set_bytes(bytes);
    row->set_calls_last_minute(calls);
  };
  add("cuMemAlloc", 0, 0);
  EXPECT_THAT(DoctorText(snapshot, Ink()), ::testing::Not(HasSubstr("disagree")));
  EXPECT_THAT(ReconcileText(snapshot, Ink()),
              HasSubstr("rank 0: agent and eBPF agree on 1,500 calls of 1 entry points"));
  add("cuMemHostAlloc", 2, 3 * kMiB);
  add("cuMemMap", -1, -kMiB);
  for (const std::string& text : {DoctorText(snapshot, Ink()), ReconcileText(snapshot, Ink())}) {
    EXPECT_THAT(text, HasSubstr("rank 0 cuMemHostAlloc: the agent counted 2 calls and 3 MiB more "
                                "than eBPF (in the last minute 2 calls, "));
    EXPECT_THAT(text, HasSubstr("rank 0 cuMemMap: eBPF counted 1 calls and 1 MiB more than the "
                                "agent (in the last minute -1 calls, "));
  }
  EXPECT_EQ(ReconcileJson(snapshot)["processes"][0]["witness_differences"][1]["calls"], 2);
}

std::string Diff(const v1::Recording& a, const v1::Recording& b) {
  return DiffText(a, b, CompareRuns(a, b, std::nullopt), {"a.tdm", "b.tdm"}, 15, Ink());
}

TEST(Diff, NamesTheLineThatGrowsInOneRunOnly) {
  v1::Recording on = testing::RecordingOf(testing::LeakingSnapshot());
  v1::Recording off = testing::RecordingOf(testing::SteadySnapshot());
  (*on.mutable_tags())["zero_init"] = "on";
  (*off.mutable_tags())["zero_init"] = "off";
  ExpectGolden("diff_leak", Diff(on, off));
  EXPECT_TRUE(CompareRuns(on, off, std::nullopt).AnyGrowsInOneOnly());
  EXPECT_TRUE(CompareRuns(off, on, std::nullopt).AnyGrowsInOneOnly());
}

TEST(Diff, ALeakInBothRunsIsNoDifference) {
  const v1::Recording run = testing::RecordingOf(testing::LeakingSnapshot());
  EXPECT_FALSE(CompareRuns(run, run, std::nullopt).AnyGrowsInOneOnly());
}

TEST(Diff, GrowthIsFoundWithoutAnyVerdict) {
  v1::Snapshot unjudged = testing::LeakingSnapshot();
  for (v1::Process& process : *unjudged.mutable_processes()) process.clear_verdicts();
  EXPECT_TRUE(CompareRuns(testing::RecordingOf(unjudged),
                          testing::RecordingOf(testing::SteadySnapshot()), std::nullopt)
                  .AnyGrowsInOneOnly());
}

TEST(Diff, BetweenWorldSizesReplicatedIsToldFromSharded) {
  const v1::Recording one = testing::RecordingOf(testing::MasksSnapshot(1));
  const v1::Recording four = testing::RecordingOf(testing::MasksSnapshot(4));
  ExpectGolden("diff_masks", Diff(one, four));
  const RunDifference difference = CompareRuns(one, four, std::nullopt);
  EXPECT_EQ(difference.at, At::kPeak) << "no step was made";
  ASSERT_EQ(difference.sites.size(), 2u);
  for (const SiteDifference& site : difference.sites) {
    EXPECT_EQ(site.spread,
              site.site().id() == testing::kMaskSite ? Spread::kReplicated : Spread::kSharded);
  }
  EXPECT_EQ(SpreadText(Spread::kSharded, 1, 4), "sharded 1/4");
}

TEST(Diff, OneWorldSizeShowsNeither) {
  const v1::Recording four = testing::RecordingOf(testing::MasksSnapshot(4));
  for (const SiteDifference& site : CompareRuns(four, four, std::nullopt).sites) {
    EXPECT_EQ(site.spread, Spread::kUnknown);
  }
}

TEST(Diff, TwoEmptyRunsAreEqual) {
  const v1::Recording empty = testing::RecordingOf(testing::EmptySnapshot());
  EXPECT_THAT(Diff(empty, empty), HasSubstr("No site grows in one run only."));
}

TEST(Holders, TheSnippetListsTheBlocksAndIsPython) {
  const v1::Snapshot snapshot = testing::LeakingSnapshot(1);
  v1::ListHoldersResponse blocks;
  blocks.set_blocks_total(120);
  auto* block = blocks.add_blocks();
  block->set_address(0x7f0000001000);
  block->set_bytes(8 * kMiB);
  block->set_step(3);
  const std::string snippet =
      HoldersSnippet(snapshot.processes(0), snapshot.processes(0).sites(1), blocks);
  EXPECT_THAT(snippet, HasSubstr("# Who holds what model.py:41 forward allocated (rank 0, pid 1000)"
                                 ": 120 live blocks, the oldest 1"));
  EXPECT_THAT(snippet, HasSubstr("    0x7f0000001000: (8388608, 3),\n"));
  const std::string path = ::testing::TempDir() + "/holders.py";
  std::ofstream(path) << snippet;
  EXPECT_EQ(std::system(("python3 -m py_compile " + path).c_str()), 0);
}

}  // namespace
}  // namespace tidemark::client
