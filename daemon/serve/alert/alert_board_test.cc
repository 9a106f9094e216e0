#include "daemon/serve/alert/alert_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/serve/testing_snapshot.h"

namespace tidemark::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::StartsWith;

// A node whose clock the test moves on; each rank leaks fw_live as testing::MakeRank says.
class AlertBoardTest : public ::testing::Test {
 protected:
  explicit AlertBoardTest() : node_(testing::MakeNode(4)) { KeepLeaksOf({0, 1, 2, 3}); }

  void KeepLeaksOf(const std::vector<int>& ranks) {
    for (ProcessSnapshot& process : node_.processes) {
      const bool leaks = std::ranges::count(ranks, process.identity.rank) > 0;
      process.verdicts[0].state =
          leaks ? detect::VerdictState::kConfirmed : detect::VerdictState::kSteady;
    }
  }

  std::vector<Alert> After(std::chrono::seconds time) {
    const auto ns = static_cast<uint64_t>(std::chrono::nanoseconds(time).count());
    node_.unix_ns += ns;
    node_.monotonic_ns += ns;
    for (ProcessSnapshot& process : node_.processes) {
      if (process.liveness == Liveness::kAlive) process.last_update_unix_ns = node_.unix_ns;
    }
    return Leaks(board_.Update(node_));
  }

  static std::vector<Alert> Leaks(std::vector<Alert> alerts) {
    std::erase_if(alerts, [](const Alert& alert) {
      return alert.labels.at("alertname") != "TidemarkMemoryLeak";
    });
    return alerts;
  }

  NodeSnapshot node_;
  AlertBoard board_;
};

using std::chrono::seconds;

TEST_F(AlertBoardTest, ALeakOfAllRanksIsOneAlertOfTheJobWithoutNodeOrRank) {
  const std::vector<Alert> alerts = After(seconds(1));
  ASSERT_THAT(alerts, SizeIs(1));
  const std::string job = node_.processes[0].identity.training_job;
  EXPECT_THAT(alerts[0].labels,
              ElementsAre(Pair("alertname", "TidemarkMemoryLeak"), Pair("class", "fw_live"),
                          Pair("scope", "job"), Pair("training_job", job)));
  EXPECT_EQ(alerts[0].annotations.at("summary"),
            job + " leaks fw_live memory on 4 ranks of " + node_.node);
  EXPECT_EQ(alerts[0].annotations.at("node"), node_.node);
  EXPECT_EQ(alerts[0].annotations.at("ranks"), "0, 1, 2, 3");
  EXPECT_THAT(alerts[0].annotations.at("description"), StartsWith("Allocated at model.py:"));
  EXPECT_EQ(alerts[0].annotations.at("slope"), "8.00 MiB per step");
  EXPECT_EQ(alerts[0].annotations.at("runbook_url"), "docs/runbooks/tensors-kept.md");
  EXPECT_EQ(alerts[0].ends_unix_ns, 0u);
}

TEST_F(AlertBoardTest, ALeakOfOneRankNamesRankNodeAndSiteOnceTheOthersHadTheirTime) {
  KeepLeaksOf({2});
  EXPECT_THAT(After(seconds(1)), IsEmpty());
  EXPECT_THAT(After(seconds(14)), IsEmpty());
  const std::vector<Alert> alerts = After(seconds(1));
  ASSERT_THAT(alerts, SizeIs(1));
  EXPECT_THAT(alerts[0].labels,
              ElementsAre(Pair("alertname", "TidemarkMemoryLeak"), Pair("class", "fw_live"),
                          Pair("node", node_.node), Pair("rank", "2"), Pair("scope", "rank"),
                          Pair("site", "0000000000001000"),
                          Pair("training_job", node_.processes[0].identity.training_job)));
}

TEST_F(AlertBoardTest, RanksThatAreConfirmedSecondsApartAreTheJobsAlone) {
  KeepLeaksOf({2});
  EXPECT_THAT(After(seconds(1)), IsEmpty());
  KeepLeaksOf({0, 1, 2, 3});
  for (int i = 0; i < 30; ++i) {
    const std::vector<Alert> alerts = After(seconds(1));
    ASSERT_THAT(alerts, SizeIs(1));
    EXPECT_EQ(alerts[0].labels.at("scope"), "job");
  }
}

TEST_F(AlertBoardTest, AlertsOfOneLeakFromTwoNodesAreEqualAndOneOfARankIsNot) {
  const AlertTexts here = After(seconds(1)).at(0).labels;
  node_.node = "node-8";
  for (ProcessSnapshot& process : node_.processes) process.identity.rank += 4;
  AlertBoard other;
  EXPECT_EQ(Leaks(other.Update(node_)).at(0).labels, here);
  node_.processes.resize(1);
  AlertBoard third;
  const std::vector<Alert> alone = Leaks(third.Update(node_));
  ASSERT_THAT(alone, SizeIs(1)) << "nobody to wait for";
  EXPECT_EQ(alone[0].labels.at("scope"), "rank");
}

TEST_F(AlertBoardTest, AWallClockThatIsSetBackNeitherEndsNorSpoilsAnAlert) {
  ASSERT_THAT(After(seconds(1)), SizeIs(1));
  node_.unix_ns -= 3'600'000'000'000u;
  EXPECT_EQ(After(seconds(1))[0].ends_unix_ns, 0u);
  KeepLeaksOf({});
  EXPECT_EQ(After(seconds(59))[0].ends_unix_ns, 0u);
  const std::vector<Alert> ended = After(seconds(1));
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_GE(ended[0].ends_unix_ns, ended[0].starts_unix_ns);
  EXPECT_NE(ended[0].ends_unix_ns, 0u);
}

TEST_F(AlertBoardTest, AnAlertOutlivesAMomentWithoutItAndEndsAfterAMinute) {
  ASSERT_THAT(After(seconds(1)), SizeIs(1));
  KeepLeaksOf({});
  EXPECT_EQ(After(seconds(30))[0].ends_unix_ns, 0u);
  KeepLeaksOf({0, 1, 2, 3});
  const uint64_t started = After(seconds(1))[0].starts_unix_ns;
  KeepLeaksOf({});
  EXPECT_EQ(After(seconds(59))[0].starts_unix_ns, started);
  const std::vector<Alert> ended = After(seconds(1));
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(ended[0].ends_unix_ns, node_.unix_ns);
  EXPECT_EQ(After(seconds(599))[0].ends_unix_ns, ended[0].ends_unix_ns);
  EXPECT_THAT(After(seconds(1)), IsEmpty());
}

TEST_F(AlertBoardTest, WhatEndedAndComesAgainStartsAnew) {
  const uint64_t first = After(seconds(1))[0].starts_unix_ns;
  KeepLeaksOf({});
  After(seconds(60));
  KeepLeaksOf({0, 1, 2, 3});
  const Alert again = After(seconds(1))[0];
  EXPECT_EQ(again.ends_unix_ns, 0u);
  EXPECT_GT(again.starts_unix_ns, first);
}

TEST_F(AlertBoardTest, ARankThatDiedOfItsLeakStillSpeaksForAMinute) {
  KeepLeaksOf({1});
  After(seconds(1));
  node_.processes[1].liveness = Liveness::kKilled;
  EXPECT_THAT(After(seconds(20)), SizeIs(1));
  After(seconds(50));
  EXPECT_NE(After(seconds(60))[0].ends_unix_ns, 0u);
}

TEST_F(AlertBoardTest, ASuspicionIsNoLeakAlert) {
  for (ProcessSnapshot& process : node_.processes) {
    process.verdicts[0].state = detect::VerdictState::kSuspect;
  }
  After(seconds(1));
  EXPECT_THAT(After(seconds(120)), IsEmpty());
}

TEST_F(AlertBoardTest, MemoryThatRunsOutWithinTheHourIsTheJobsAlert) {
  After(seconds(1));
  After(seconds(15));
  std::vector<Alert> alerts = board_.Update(node_);
  std::erase_if(alerts, [](const Alert& alert) {
    return alert.labels.at("alertname") != "TidemarkOutOfMemoryAhead";
  });
  ASSERT_THAT(alerts, SizeIs(1));
  EXPECT_THAT(alerts[0].labels,
              ElementsAre(Pair("alertname", "TidemarkOutOfMemoryAhead"), Pair("class", "fw_live"),
                          Pair("scope", "job"),
                          Pair("training_job", node_.processes[0].identity.training_job)));
  EXPECT_EQ(alerts[0].annotations.at("summary"),
            node_.processes[0].identity.training_job +
                " runs out of memory (fw_live) in 0h 33m 20s at the present slope");
}

TEST_F(AlertBoardTest, MoreAlertsThanTheBoundAreLeftOutAndCounted) {
  const ProcessSnapshot rank = node_.processes[0];
  node_.processes.assign(3 * (AlertBoard::kMost + 10), rank);
  for (size_t i = 0; i < node_.processes.size(); ++i) {
    node_.processes[i].identity.rank = static_cast<int>(i);
    // Two of three of them are steady: none of this is the job's.
    node_.processes[i].verdicts[0].state =
        i % 3 == 0 ? detect::VerdictState::kConfirmed : detect::VerdictState::kSteady;
  }
  After(seconds(1));
  EXPECT_LE(After(seconds(60)).size(), AlertBoard::kMost);
  EXPECT_GE(board_.left_out(), 10u);
}

}  // namespace
}  // namespace tidemark::serve
