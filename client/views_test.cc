// Ranks, sites, verdicts and steps as rows and words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/rank_view.h"
#include "client/site_view.h"
#include "client/step_rows.h"
#include "client/testing/fixture.h"
#include "client/verdict_view.h"

namespace tidemark::client {
namespace {

using testing::kGiB;
using testing::kMiB;

TEST(RankView, RanksComeInOrderAndProcessesWithoutOneLast) {
  v1::Snapshot snapshot = testing::EmptySnapshot();
  testing::AddRank(snapshot, -1, -1)->set_pid(5);
  testing::AddRank(snapshot, 1, 2);
  testing::AddRank(snapshot, 0, 2);
  std::vector<std::string> names;
  for (const auto* process : ByRank(snapshot)) names.push_back(ProcessName(*process));
  EXPECT_THAT(names, ::testing::ElementsAre("rank 0", "rank 1", "pid 5 (python3)"));
}

TEST(RankView, AKilledProcessSaysByWhomOnce) {
  v1::Process process;
  process.set_liveness("killed");
  process.set_exit_reason("killed by the OOM killer");
  EXPECT_EQ(LivenessText(process), "killed by the OOM killer");
  process.set_exit_reason("signal 9");
  EXPECT_EQ(LivenessText(process), "killed: signal 9");
  process.set_liveness("exited");
  process.set_exit_reason("exited");
  EXPECT_EQ(LivenessText(process), "exited");
}

TEST(RankView, MomentsAreLoadLastStepPeakAndExit) {
  const v1::Snapshot snapshot = testing::LeakingSnapshot(1);
  const std::vector<Moments> moments = MomentsOf(snapshot.processes(0));
  ASSERT_EQ(moments.size(), 3u);
  EXPECT_EQ(moments[0].side, Side::kFramework);
  EXPECT_EQ(moments[0].load, kGiB);
  EXPECT_EQ(moments[0].last_step, kGiB + 960 * kMiB);
  EXPECT_EQ(moments[0].peak, kGiB + 960 * kMiB + 512 * kMiB);
  EXPECT_EQ(moments[0].exit, kGiB + 960 * kMiB);
  EXPECT_EQ(moments[1].side, Side::kDriver);
  EXPECT_EQ(moments[1].load, std::nullopt) << "the phase does not list the driver's bytes";
  EXPECT_EQ(moments[2].side, Side::kAnon);
  EXPECT_EQ(moments[2].load, 2 * kGiB);
  EXPECT_EQ(moments[2].peak, 3 * kGiB);
}

TEST(RankView, TheSameBytesOfTwoWitnessesCountOnce) {
  v1::Snapshot snapshot = testing::EmptySnapshot();
  v1::Process& process = *testing::AddRank(snapshot, 0, 1);
  testing::AddTotal(process, "device", "bpf", 7 * kMiB, 7 * kMiB);
  testing::AddTotal(process, "device", "cupti", 8 * kMiB, 8 * kMiB);
  EXPECT_EQ(LiveBytes(process, "device"), 8 * kMiB) << "the agent's count is preferred";
  EXPECT_EQ(LiveBytes(process, "pool"), std::nullopt);
}

TEST(RankView, WhatWasThereBeforeIsNotCountedAsLive) {
  v1::Snapshot snapshot = testing::EmptySnapshot();
  v1::Process& process = *testing::AddRank(snapshot, 0, 1);
  testing::AddTotal(process, "device", "bpf", kGiB, kGiB)->set_before_attach(true);
  EXPECT_EQ(GpuLiveBytes(process), std::nullopt);
}

TEST(SiteView, APythonFrameIsFileLineFunction) {
  v1::Frame frame;
  frame.set_kind("python");
  frame.set_file("/home/me/model.py");
  frame.set_line(41);
  frame.set_function("forward");
  EXPECT_EQ(FrameText(frame), "model.py:41 forward");
}

TEST(SiteView, ANativeFrameIsFunctionAndModule) {
  v1::Frame frame;
  frame.set_kind("native");
  frame.set_file("/opt/lib/libgather.so");
  frame.set_function("gather(int)");
  EXPECT_EQ(FrameText(frame), "gather(int) (libgather.so)");
  frame.set_function("libgather.so+0x12");
  EXPECT_EQ(FrameText(frame), "libgather.so+0x12");
}

TEST(SiteView, ABlamedFrameOutOfRangeIsNoStack) {
  v1::Site site;
  site.set_blamed_frame(4);
  EXPECT_EQ(SiteText(site), "(no stack)");
  site.set_blamed_frame(-1);
  EXPECT_EQ(SiteTextWithCallee(site), "(no stack)");
}

TEST(SiteView, EqualSitesOfAllRanksAreOneRow) {
  const v1::Snapshot snapshot = testing::MasksSnapshot(4);
  const std::vector<SiteRow> rows = FoldSites(ByRank(snapshot), At::kLoad);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].each.bytes(), 9 * kGiB);
  EXPECT_EQ(RanksText(rows[0].processes), "0-3");
  EXPECT_EQ(BlocksText(*rows[0].site, rows[0].each), "36 x 256 MiB");
}

TEST(SiteView, ARankThatHoldsMoreHasARowOfItsOwn) {
  v1::Snapshot snapshot = testing::MasksSnapshot(4);
  snapshot.mutable_processes(2)->mutable_sites(0)->mutable_live()->set_bytes(10 * kGiB);
  const std::vector<SiteRow> rows = FoldSites(ByRank(snapshot), At::kNow);
  EXPECT_EQ(RanksText(rows[0].processes), "2");
  EXPECT_EQ(RanksText(rows[1].processes), "0,1,3");
}

TEST(SiteView, AgeTellsLoadFromSteps) {
  const v1::Snapshot snapshot = testing::LeakingSnapshot(1);
  const v1::Site* weights = FindSite(snapshot.processes(0), testing::kWeightsSite);
  const v1::Site* leak = FindSite(snapshot.processes(0), testing::kLeakingSite);
  EXPECT_EQ(AgeText(*weights), "load");
  EXPECT_EQ(AgeText(*leak), "steps 1-120");
}

TEST(SiteView, ASiteWhoseEveryGenerationLivesGrows) {
  const v1::Snapshot snapshot = testing::LeakingSnapshot(1);
  EXPECT_TRUE(GrowsByAge(*FindSite(snapshot.processes(0), testing::kLeakingSite), 120));
  EXPECT_FALSE(GrowsByAge(*FindSite(snapshot.processes(0), testing::kWeightsSite), 120));
}

TEST(SiteView, AbsurdCohortShiftsDoNotCrash) {
  v1::Site site;
  site.set_cohort_shift(4'000'000'000u);
  site.set_first_step(1);
  site.set_last_step(2);
  site.add_cohort_bytes(1);
  EXPECT_EQ(AgeText(site), "steps 1-2");
  EXPECT_FALSE(GrowsByAge(site, 100));
}

TEST(VerdictView, OneLeakOnFourRanksIsOneGroup) {
  const v1::Snapshot snapshot = testing::LeakingSnapshot();
  const std::vector<VerdictGroup> groups = GroupVerdicts(ByRank(snapshot));
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].weight, Weight::kLeak);
  EXPECT_EQ(groups[0].members.size(), 4u);
  EXPECT_EQ(Headline(groups[0], 4, Ink()), "LEAK: tensors kept, on all 4 ranks (fw_live)");
}

TEST(VerdictView, ALeakOnOneRankNamesIt) {
  v1::Snapshot snapshot = testing::LeakingSnapshot();
  for (const int rank : {0, 1, 3}) snapshot.mutable_processes(rank)->clear_verdicts();
  const std::vector<VerdictGroup> groups = GroupVerdicts(ByRank(snapshot));
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(Headline(groups[0], 4, Ink()), "LEAK: tensors kept, on rank 2 of 4 (fw_live)");
}

TEST(VerdictView, TheStrongestMemberDecidesTheGroup) {
  v1::Snapshot snapshot = testing::LeakingSnapshot();
  snapshot.mutable_processes(0)->mutable_verdicts(0)->set_state("suspect");
  EXPECT_EQ(GroupVerdicts(ByRank(snapshot))[0].weight, Weight::kLeak);
}

TEST(VerdictView, ASuspectIsNoConfirmedLeak) {
  v1::Snapshot snapshot = testing::LeakingSnapshot(1);
  EXPECT_TRUE(AnyConfirmedLeak(ByRank(snapshot)));
  snapshot.mutable_processes(0)->mutable_verdicts(0)->set_state("suspect");
  EXPECT_FALSE(AnyConfirmedLeak(ByRank(snapshot)));
  EXPECT_EQ(GroupVerdicts(ByRank(snapshot))[0].weight, Weight::kSuspect);
}

TEST(VerdictView, SteadyIsSilent) {
  EXPECT_TRUE(GroupVerdicts(ByRank(testing::SteadySnapshot())).empty());
}

TEST(VerdictView, ANoticeIsNeverALeak) {
  v1::Verdict verdict;
  verdict.set_state("confirmed");
  verdict.set_cause("fragmentation");
  EXPECT_EQ(WeightOf(verdict), Weight::kNotice);
  verdict.set_state("retracted");
  EXPECT_EQ(WeightOf(verdict), Weight::kRetracted);
}

TEST(VerdictView, ACauseFromANewerDaemonIsShownAsItIs) {
  v1::Verdict verdict;
  verdict.set_state("confirmed");
  verdict.set_cause("moon_phase");
  verdict.set_is_leak(true);
  EXPECT_EQ(WeightOf(verdict), Weight::kLeak);
}

TEST(VerdictView, TimeLeftNeedsAFiniteForecast) {
  v1::Verdict verdict;
  EXPECT_EQ(EtaText(verdict), "");
  verdict.set_eta_steps(412);
  EXPECT_EQ(EtaText(verdict), "out of memory in about 412 steps");
  verdict.set_eta_seconds(160);
  EXPECT_EQ(EtaText(verdict), "out of memory in about 412 steps (02:40)");
  verdict.set_eta_steps(1.0 / 0.0);
  EXPECT_EQ(EtaText(verdict), "out of memory in about 02:40");
}

v1::Step* AddStep(v1::Process& process, uint64_t number, int64_t device, int64_t anon) {
  v1::Step* step = process.add_steps();
  step->set_step(number);
  step->set_anon_bytes(anon);
  step->set_shmem_bytes(-1);
  v1::StepGroup* group = step->add_groups();
  group->set_side("framework");
  group->set_end_bytes(device);
  return step;
}

TEST(StepRows, AStepIsComparedWithTheOneBefore) {
  v1::Process process;
  AddStep(process, 1, 100 * kMiB, 50 * kMiB);
  AddStep(process, 2, 108 * kMiB, 50 * kMiB);
  const std::vector<StepRow> rows = StepRowsOf(process, 0);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].delta.device, std::nullopt);
  EXPECT_EQ(rows[1].delta.device, 8 * kMiB);
  EXPECT_EQ(rows[1].delta.anon, 0);
  EXPECT_EQ(rows[1].bytes.shmem, std::nullopt) << "not read is not zero";
  EXPECT_EQ(rows[1].move, Move::kNone);
}

TEST(StepRows, TheFirstRowShownStillKnowsItsChange) {
  v1::Process process;
  for (uint64_t s = 1; s <= 5; ++s) AddStep(process, s, static_cast<int64_t>(s) * kMiB, 0);
  const std::vector<StepRow> rows = StepRowsOf(process, 2);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].step, 4u);
  EXPECT_EQ(rows[0].delta.device, kMiB);
}

TEST(StepRows, AnOffloadIsAMoveFromDeviceToHost) {
  v1::Process process;
  AddStep(process, 1, 4 * kGiB, kGiB);
  AddStep(process, 2, 2 * kGiB, 3 * kGiB);
  const StepRow row = StepRowsOf(process, 0)[1];
  EXPECT_EQ(row.move, Move::kDeviceToHost);
  EXPECT_EQ(row.moved_bytes, 2 * kGiB);
}

TEST(StepRows, AFallWithoutARiseIsNoMove) {
  v1::Process process;
  AddStep(process, 1, 4 * kGiB, kGiB);
  AddStep(process, 2, 2 * kGiB, kGiB);
  AddStep(process, 3, 2 * kGiB - 8 * kMiB, kGiB + 8 * kMiB);
  EXPECT_EQ(StepRowsOf(process, 0)[1].move, Move::kNone);
  EXPECT_EQ(StepRowsOf(process, 0)[2].move, Move::kNone) << "too small to mean anything";
}

}  // namespace
}  // namespace tidemark::client
