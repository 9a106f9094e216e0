#include "client/run_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidemark::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kLibrary[] = "/opt/tidemark/lib/libtidemark_cupti.so";

RunPlan Plan(const Environment& environment, bool asked_for_output = false,
             bool library_exists = true) {
  return PlanRun(environment, "/run/agent.sock", kLibrary, library_exists, asked_for_output, "r1");
}

TEST(RunPlan, TheJobGetsAgentSocketInjectionAndName) {
  const RunPlan plan = Plan(Environment{{"HOME", "/root"}});
  EXPECT_EQ(plan.job.Get("CUDA_INJECTION64_PATH"), kLibrary);
  EXPECT_EQ(plan.job.Get("TIDEMARK_AGENT_SOCKET"), "/run/agent.sock");
  EXPECT_EQ(plan.job.Get("TIDEMARK_RUN"), "r1");
  EXPECT_EQ(plan.job.Get("HOME"), "/root");
  EXPECT_TRUE(plan.reports);
  EXPECT_THAT(plan.notes, IsEmpty());
}

TEST(RunPlan, AnInjectionThatIsSetAlreadyIsLeftAloneAndSaid) {
  const RunPlan plan = Plan(Environment{{"CUDA_INJECTION64_PATH", "/opt/nsight.so"}});
  EXPECT_EQ(plan.job.Get("CUDA_INJECTION64_PATH"), "/opt/nsight.so");
  EXPECT_FALSE(plan.injects);
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_THAT(plan.notes[0], HasSubstr("already set to /opt/nsight.so: left alone"));
}

TEST(RunPlan, OurOwnInjectionFromAnOuterRunNeedsNoWord) {
  const RunPlan plan = Plan(Environment{{"CUDA_INJECTION64_PATH", kLibrary}});
  EXPECT_TRUE(plan.injects);
  EXPECT_THAT(plan.notes, IsEmpty());
}

TEST(RunPlan, AMissingLibraryIsSaidAndNotInjected) {
  const RunPlan plan = Plan(Environment(), false, false);
  EXPECT_FALSE(plan.injects);
  EXPECT_EQ(plan.job.Get("CUDA_INJECTION64_PATH"), std::nullopt);
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("the job runs without Tidemark's agent")));
}

TEST(RunPlan, RanksOfOneLaunchShareARunAndLocalRankZeroReports) {
  const auto rank = [](const char* local) {
    return Plan(Environment{{"PMIX_NAMESPACE", "prte@42"}, {"OMPI_COMM_WORLD_LOCAL_RANK", local}});
  };
  EXPECT_EQ(rank("0").run, "ompi-prte-42");
  EXPECT_EQ(rank("1").run, rank("0").run);
  EXPECT_TRUE(rank("0").reports);
  EXPECT_FALSE(rank("1").reports);
}

TEST(RunPlan, SlurmStepsOfOneJobAreDifferentRuns) {
  const auto step = [](const char* id) {
    return Plan(Environment{{"SLURM_JOB_ID", "81"}, {"SLURM_STEP_ID", id}, {"SLURM_LOCALID", "0"}});
  };
  EXPECT_EQ(step("0").run, "slurm-81-0");
  EXPECT_NE(step("1").run, step("0").run);
}

TEST(RunPlan, ABatchScriptWithoutALocalRankIsARunOfItsOwn) {
  EXPECT_EQ(Plan(Environment{{"SLURM_JOB_ID", "81"}}).run, "r1");
}

TEST(RunPlan, AnInnerRunLeavesTheReportToTheOuterOne) {
  const RunPlan plan = Plan(Environment{{"TIDEMARK_RUN", "outer"}});
  EXPECT_EQ(plan.run, "outer.r1");
  EXPECT_FALSE(plan.reports);
}

TEST(RunPlan, AnInnerRunThatWasAskedForAFileReportsToo) {
  EXPECT_TRUE(Plan(Environment{{"TIDEMARK_RUN", "outer"}}, true).reports);
}

TEST(RunPlan, ALocalRankThatIsNoNumberIsNoRank) {
  EXPECT_EQ(PlaceOf(Environment{{"LOCAL_RANK", "two"}}).local_rank, -1);
  EXPECT_EQ(PlaceOf(Environment{{"LOCAL_RANK", "-1"}}).local_rank, -1);
  EXPECT_EQ(PlaceOf(Environment{{"LOCAL_RANK", "1x"}}).local_rank, -1);
}

TEST(RunPlan, ARunHoldsItsInnerRunsAndNoOthers) {
  EXPECT_TRUE(BelongsTo("a1", "a1"));
  EXPECT_TRUE(BelongsTo("a1.b2", "a1"));
  EXPECT_FALSE(BelongsTo("a12", "a1"));
  EXPECT_FALSE(BelongsTo("a1", "a1.b2"));
  EXPECT_FALSE(BelongsTo("", "a1"));
}

}  // namespace
}  // namespace tidemark::client
