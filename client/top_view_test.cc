// What `tidemark top` shows and what its keys do.
#include "client/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/terminal.h"
#include "client/testing/fixture.h"

namespace tidemark::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Text(const TopView& view, size_t rows = 24, size_t columns = 160) {
  std::string text;
  for (const TopLine& line : view.Lines(rows, columns)) text += line.text + "\n";
  return text;
}

std::string Selected(const TopView& view) {
  for (const TopLine& line : view.Lines(24, 160)) {
    if (line.look == Look::kSelected) return line.text;
  }
  return "";
}

TEST(TopView, ShowsEachRankAndItsLeak) {
  TopView view(true);
  EXPECT_THAT(Text(view), HasSubstr("Waiting for the first snapshot"));
  view.Take(testing::LeakingSnapshot(4));
  const std::string text = Text(view);
  for (const char* rank : {"rank 0", "rank 1", "rank 2", "rank 3"}) {
    EXPECT_THAT(text, HasSubstr(rank));
  }
  EXPECT_THAT(text, HasSubstr("1.94 GiB"));
  EXPECT_THAT(text, HasSubstr("LEAK +8.0 MiB/step"));
  EXPECT_THAT(Selected(view), StartsWith("rank 0"));
  int leaks = 0;
  for (const TopLine& line : view.Lines(24, 160)) leaks += line.look == Look::kLeak ? 1 : 0;
  EXPECT_EQ(leaks, 3);  // and the selected one
}

TEST(TopView, SortsByWhatIsAskedForAndBack) {
  v1::Snapshot snapshot = testing::EmptySnapshot();
  for (const int rank : {0, 1, 2}) {
    v1::Process* process = testing::AddRank(snapshot, rank, 3);
    testing::AddTotal(*process, "fw_live", "torch", (rank == 1 ? 9 : 1 + rank) * testing::kGiB, 0);
  }
  TopView view(true);
  view.Take(snapshot);
  EXPECT_THAT(Selected(view), StartsWith("rank 0"));
  view.Press(TopKey::kSort);
  EXPECT_THAT(Text(view), HasSubstr("sort: GPU bytes"));
  EXPECT_THAT(Selected(view), StartsWith("rank 1"));
  view.Press(TopKey::kReverse);
  EXPECT_THAT(Selected(view), StartsWith("rank 0"));
  view.Press(TopKey::kReverse);
  for (int i = 0; i < 6; ++i) view.Press(TopKey::kSort);
  EXPECT_THAT(Text(view), HasSubstr("sort: rank"));
}

TEST(TopView, FiltersByJob) {
  v1::Snapshot snapshot = testing::EmptySnapshot();
  testing::AddRank(snapshot, 0, 2)->mutable_identity()->set_training_job("one");
  testing::AddRank(snapshot, 1, 2)->mutable_identity()->set_training_job("two");
  TopView view(true);
  view.Take(snapshot);
  view.Press(TopKey::kJob);
  EXPECT_THAT(Text(view), HasSubstr("rank 0"));
  EXPECT_THAT(Text(view), Not(HasSubstr("rank 1")));
  view.Press(TopKey::kJob);
  EXPECT_THAT(Text(view), HasSubstr("rank 1"));
  EXPECT_THAT(Text(view), Not(HasSubstr("rank 0")));
  view.Press(TopKey::kJob);
  EXPECT_THAT(Text(view), HasSubstr("job: every"));
}

TEST(TopView, DrillsDownToSitesAndFramesAndComesBack) {
  TopView view(true);
  view.Take(testing::LeakingSnapshot(4));
  view.Press(TopKey::kDown);
  view.Press(TopKey::kEnter);
  EXPECT_THAT(Text(view), HasSubstr("rank 1: sites now"));
  EXPECT_THAT(Text(view), HasSubstr("120 x 8 MiB"));
  view.Press(TopKey::kMoment);
  EXPECT_THAT(Text(view), HasSubstr("sites at load"));
  for (int i = 0; i < 3; ++i) view.Press(TopKey::kMoment);
  view.Press(TopKey::kEnter);
  EXPECT_THAT(Text(view), HasSubstr("innermost first:"));
  view.Press(TopKey::kBack);
  view.Press(TopKey::kBack);
  EXPECT_THAT(Selected(view), StartsWith("rank 1"));
}

TEST(TopView, TheTrendGrowsWithTheBytes) {
  TopView view(true);
  TopView ascii(false);
  for (int i = 0; i < 8; ++i) {
    v1::Snapshot snapshot = testing::EmptySnapshot();
    testing::AddTotal(*testing::AddRank(snapshot, 0, 1), "fw_live", "torch",
                      (i + 1) * testing::kGiB, 0);
    view.Take(snapshot);
    ascii.Take(snapshot);
  }
  EXPECT_THAT(Text(view), HasSubstr("▁▂▃▄▅▆▇█"));
  EXPECT_THAT(Text(ascii), HasSubstr("_.,-=+*#"));
}

TEST(TopView, SurvivesSmallScreensEmptyNodesAndProcessesThatGo) {
  TopView view(true);
  view.Take(testing::LeakingSnapshot(4));
  view.Press(TopKey::kPageDown);
  view.Press(TopKey::kEnter);
  view.Press(TopKey::kEnter);
  view.Take(testing::EmptySnapshot());
  EXPECT_THAT(Text(view), HasSubstr("This site is gone."));
  for (const TopKey key : {TopKey::kDown, TopKey::kEnter, TopKey::kBack, TopKey::kDown,
                           TopKey::kEnter, TopKey::kBack, TopKey::kEnter, TopKey::kUp}) {
    view.Press(key);
    for (size_t rows = 0; rows < 12; ++rows) {
      for (const size_t columns : {size_t{0}, size_t{1}, size_t{7}, size_t{80}}) {
        const auto lines = view.Lines(rows, columns);
        EXPECT_LE(lines.size(), rows);
        for (const TopLine& line : lines) EXPECT_LE(DisplayWidth(line.text), columns);
      }
    }
  }
  EXPECT_THAT(Text(view), HasSubstr("No process uses a GPU"));
}

TEST(TopView, NeverSendsControlCharactersOfAJobToTheTerminal) {
  v1::Snapshot snapshot = testing::EmptySnapshot();
  v1::Process* process = testing::AddRank(snapshot, 0, 1);
  process->mutable_identity()->set_training_job("evil\033[2J\a");
  testing::AddSite(*process, 7, "a\033]0;x\a.py", 1, "f\n\r", 3, testing::kMiB);
  process->mutable_sites(0)->set_memory_class("fw\x1b_live");
  snapshot.set_node("n\033c");
  TopView view(true);
  view.Take(snapshot);
  for (int page = 0; page < 3; ++page) {
    for (const TopLine& line : view.Lines(24, 200)) {
      EXPECT_EQ(line.text.find_first_of("\033\a\n\r"), std::string::npos) << line.text;
    }
    view.Press(TopKey::kEnter);
  }
}

TEST(TopView, SaysThatFiguresAreOldUntilTheyAreNot) {
  TopView view(true);
  view.Take(testing::SteadySnapshot(1));
  view.SetTrouble("The daemon is gone");
  EXPECT_THAT(Text(view), HasSubstr("The daemon is gone"));
  view.Take(testing::SteadySnapshot(1));
  EXPECT_THAT(Text(view), Not(HasSubstr("The daemon is gone")));
}

}  // namespace
}  // namespace tidemark::client
