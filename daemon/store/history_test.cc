#include "daemon/store/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "daemon/store/history_database.h"
#include "daemon/store/history_reader.h"
#include "daemon/store/history_sampler.h"
#include "daemon/store/testing_node.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;
constexpr uint64_t kDay = 24 * 3600;
constexpr uint64_t kRowsOfWrite = 60;

// Sampler, database and reader without threads, on a clock of the test's own.
class HistoryTest : public ::testing::Test {
 protected:
  HistoryTest() {
    std::string pattern = "/tmp/tidemark-history-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  ~HistoryTest() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path file() const { return directory_ / "history.db"; }

  void Open(uint64_t cap_bytes = 64 << 20) {
    database_ = std::make_unique<HistoryDatabase>(file(), cap_bytes);
    const Result<void> opened = database_->Open();
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    sampler_ = std::make_unique<HistorySampler>(
        [this](const ProcessKey& key) { return database_->KnownOf(key); });
  }

  Result<void> Write(uint64_t second) {
    return database_->Write(sampler_.get(), TestingNode::UnixNs(second) / 1'000'000);
  }

  // Every `every` seconds a snapshot, written now and then.
  void Live(TestingNode* node, uint64_t begin, uint64_t end, uint64_t every = 1) {
    uint64_t written = begin;
    for (uint64_t second = begin; second < end; second += every) {
      sampler_->Absorb(node->At(second));
      if (second - written < kRowsOfWrite * every) continue;
      written = second;
      const Result<void> done = Write(second);
      ASSERT_TRUE(done.ok()) << done.error().ToString();
    }
    ASSERT_TRUE(Write(end - 1).ok());
  }

  QueryContext Context(uint64_t now_second, uid_t viewer = 0) {
    return {[viewer](uid_t uid) { return viewer == 0 || viewer == uid; },
            std::chrono::steady_clock::now() + std::chrono::seconds(60),
            TestingNode::UnixNs(now_second)};
  }

  v1::QueryRangeResponse Ask(const v1::QueryRangeRequest& request, uint64_t now_second) {
    v1::QueryRangeResponse answer;
    const QueryStatus status =
        HistoryReader(file()).QueryRange(request, Context(now_second), &answer);
    EXPECT_TRUE(status.ok()) << status.message;
    return answer;
  }

  QueryStatus Refusal(const v1::QueryRangeRequest& request, uint64_t now_second = 100) {
    v1::QueryRangeResponse answer;
    return HistoryReader(file()).QueryRange(request, Context(now_second), &answer);
  }

  static v1::QueryRangeRequest FwLive(int rank, uint64_t begin, uint64_t end, int points) {
    v1::QueryRangeRequest request;
    request.set_start_unix_ns(TestingNode::UnixNs(begin));
    request.set_end_unix_ns(TestingNode::UnixNs(end));
    request.add_ranks(rank);
    request.add_memory_classes("fw_live");
    request.set_max_points(points);
    return request;
  }

  // What SQLite itself says of the file.
  std::string Integrity() const {
    Sqlite db(file().string(), SQLITE_OPEN_READWRITE);
    Statement check(db, "PRAGMA integrity_check");
    return check.Next() ? std::string(check.Bytes(0)) : db.message();
  }

  std::filesystem::path directory_;
  std::unique_ptr<HistoryDatabase> database_;
  std::unique_ptr<HistorySampler> sampler_;
};

TEST_F(HistoryTest, ASecondIsKeptForFifteenMinutesAndThenTenOfThemWithTheirExtremes) {
  Open();
  TestingNode node(2);
  Live(&node, 0, 3600);
  const auto answer = Ask(FwLive(1, 0, 3599, 10'000), 3599);
  ASSERT_EQ(answer.series_size(), 1);
  const v1::Series& series = answer.series(0);
  EXPECT_EQ(series.process().pid(), TestingNode::kFirstPid + 1);
  ASSERT_GT(series.unix_ns_size(), 900);
  int seconds = 0;
  int tens = 0;
  for (int i = 0; i < series.unix_ns_size(); ++i) {
    const uint64_t second = series.unix_ns(i) / 1'000'000'000 - TestingNode::kBeginS;
    if (second + 900 > 3599) {
      ++seconds;
      EXPECT_EQ(series.mean_bytes(i), TestingNode::FwLive(1, second)) << second;
      EXPECT_EQ(series.min_bytes(i), series.max_bytes(i));
    } else if (series.min_bytes(i) != series.max_bytes(i)) {
      // Ten seconds that end with this one.
      ++tens;
      EXPECT_EQ(second % 10, 9u);
      std::vector<int64_t> truth;
      for (uint64_t s = second - 9; s <= second; ++s) truth.push_back(TestingNode::FwLive(1, s));
      EXPECT_EQ(series.min_bytes(i), *std::ranges::min_element(truth));
      EXPECT_EQ(series.max_bytes(i), *std::ranges::max_element(truth));
      const int64_t sum = std::accumulate(truth.begin(), truth.end(), int64_t{0});
      EXPECT_NEAR(static_cast<double>(series.mean_bytes(i)), static_cast<double>(sum) / 10, 0.51);
    }
  }
  EXPECT_EQ(seconds, 900);
  EXPECT_GE(tens, (3600 - 900 - 120) / 10);  // a chunk of seconds is dropped as a whole
}

TEST_F(HistoryTest, WhatIsOlderThanAWeekGoes) {
  Open();
  TestingNode node(1);
  Live(&node, 0, 9 * kDay, 60);
  const auto answer = Ask(FwLive(0, 0, 9 * kDay, 10'000), 9 * kDay);
  const uint64_t oldest = answer.oldest_unix_ns() / 1'000'000'000 - TestingNode::kBeginS;
  EXPECT_GE(oldest, 2 * kDay - 3600 * 2);
  EXPECT_LE(oldest, 2 * kDay);
  EXPECT_EQ(Integrity(), "ok");
}

TEST_F(HistoryTest, StepsHaveFloorEndAndPeak) {
  Open();
  TestingNode node(1, 0, true);
  Live(&node, 1, 1200);
  v1::QueryRangeRequest request = FwLive(0, 0, 1200, 10'000);
  request.set_align("step");
  request.set_first_step(100);
  request.set_last_step(102);
  const auto answer = Ask(request, 1200);
  ASSERT_EQ(answer.series_size(), 1);
  EXPECT_THAT(answer.series(0).steps(), ElementsAre(100, 101, 102));
  for (int i = 0; i < 3; ++i) {
    const int64_t end = TestingNode::FwLive(0, static_cast<uint64_t>(100 + i));
    EXPECT_EQ(answer.series(0).min_bytes(i), end - kMiB);
    EXPECT_EQ(answer.series(0).mean_bytes(i), end);
    EXPECT_EQ(answer.series(0).max_bytes(i), end + kMiB);
  }
}

TEST_F(HistoryTest, LivesPhasesEventsVerdictsAndPostMortemsAreMarks) {
  Open();
  TestingNode testing_node(1);
  NodeSnapshot node = testing_node.At(0);
  sampler_->Absorb(node);
  node = testing_node.At(1);
  ProcessSnapshot& rank = node.processes[0];
  PhaseView load;
  load.name = "load";
  load.start_monotonic_ns = 1'000'000'000;
  load.end_monotonic_ns = 2'000'000'000;
  rank.phases = {load};
  EventView event;
  event.type = "out_of_memory";
  event.unix_ns = node.unix_ns;
  rank.events = {event};
  detect::Verdict verdict;
  verdict.state = detect::VerdictState::kConfirmed;
  verdict.memory_class = MemoryClass::kFwLive;
  rank.verdicts = {verdict};
  sampler_->Absorb(node);
  node = testing_node.At(2);
  node.processes[0].liveness = Liveness::kKilled;
  node.processes[0].exit_reason = "killed by SIGKILL";
  sampler_->Absorb(node);
  v1::HistoryMark message;
  message.set_kind("post_mortem");
  message.set_text("1000-7");
  sampler_->Note(testing_node.KeyOf(0),
                 {"post_mortem", "1000-7", TestingNode::UnixNs(2) / 1'000'000, 0,
                  message.SerializeAsString()});
  ASSERT_TRUE(Write(2).ok());
  v1::QueryRangeRequest request = FwLive(0, 0, 10, 100);
  request.set_include_marks(true);
  std::vector<std::string> kinds;
  const auto answer = Ask(request, 10);
  for (const v1::HistoryMark& mark : answer.marks()) {
    kinds.push_back(mark.kind() + (mark.text().empty() ? "" : " " + mark.text().substr(0, 17)));
  }
  EXPECT_THAT(kinds, ::testing::UnorderedElementsAre(
                         "started", "phase load", "event out_of_memory", HasSubstr("verdict"),
                         "ended killed by SIGKILL", "post_mortem 1000-7"));
}

TEST_F(HistoryTest, ADaemonThatStartsAgainGoesOnWhereTheLastOneStopped) {
  Open();
  TestingNode node(1, 0, true);
  Live(&node, 1, 100);
  Open();  // the same file, another life; the agents still have the old steps
  Live(&node, 100, 200);
  v1::QueryRangeRequest request = FwLive(0, 0, 200, 10'000);
  request.set_align("step");
  const auto answer = Ask(request, 200);
  ASSERT_EQ(answer.series_size(), 1);
  ASSERT_EQ(answer.series(0).steps_size(), 199);
  for (int i = 0; i < 199; ++i) EXPECT_EQ(answer.series(0).steps(i), static_cast<uint64_t>(i + 1));
}

TEST_F(HistoryTest, TheCapHoldsAndTheOldestGoesFirst) {
  constexpr uint64_t kCap = HistoryDatabase::kSmallestCap;
  Open(kCap);
  TestingNode node(16, 48);
  uint64_t oldest = 0;
  for (uint64_t hour = 0; hour < 12; ++hour) {
    Live(&node, hour * 3600, (hour + 1) * 3600, 10);
    EXPECT_LE(database_->BytesOnDisk(), kCap + (1 << 20)) << "with the log's index";
    const auto answer = Ask(FwLive(3, 0, hour * 3600 + 3599, 100), hour * 3600 + 3599);
    EXPECT_GE(answer.oldest_unix_ns(), oldest);
    oldest = answer.oldest_unix_ns();
    ASSERT_EQ(answer.series_size(), 1) << "the newest is always there";
    EXPECT_GE(*answer.series(0).unix_ns().rbegin(), TestingNode::UnixNs(hour * 3600 + 3500));
  }
  EXPECT_GT(database_->chunks_pruned(), 0u);
  EXPECT_GT(oldest, TestingNode::UnixNs(3600));
  EXPECT_EQ(Integrity(), "ok");
}

TEST_F(HistoryTest, ACapThatWasLoweredMakesTheFileSmaller) {
  Open(64 << 20);
  TestingNode node(16, 48);
  Live(&node, 0, 20 * 3600, 10);
  ASSERT_GT(database_->BytesOnDisk(), uint64_t{20} << 20);
  Open(HistoryDatabase::kSmallestCap);
  Live(&node, 20 * 3600, 21 * 3600, 10);
  EXPECT_LE(database_->BytesOnDisk(), HistoryDatabase::kSmallestCap + (1 << 20));
  EXPECT_EQ(Integrity(), "ok");
}

TEST_F(HistoryTest, ADatabaseOfTheFirstSchemaOpensWithAllItHad) {
  std::filesystem::copy(TIDEMARK_FIXTURES "/history/schema1.db", file());
  Open();
  EXPECT_EQ(database_->set_aside(), 0u);
  EXPECT_EQ(Sqlite(file().string(), SQLITE_OPEN_READONLY).Number("PRAGMA user_version"), 2);
  constexpr uint64_t kBeginS = 1'767'225'600;
  v1::QueryRangeRequest request;
  request.set_start_unix_ns(kBeginS * 1'000'000'000);
  request.set_end_unix_ns((kBeginS + 1200) * 1'000'000'000);
  request.add_ranks(3);
  request.add_memory_classes("fw_live");
  request.set_include_marks(true);
  request.set_max_points(10'000);
  const auto by_time = Ask(request, 0);
  ASSERT_EQ(by_time.series_size(), 1);
  EXPECT_EQ(by_time.series(0).process().training_job(), "gpt-7b");
  EXPECT_GT(by_time.series(0).unix_ns_size(), 900);
  for (int i = 0; i < by_time.series(0).unix_ns_size(); ++i) {
    const uint64_t second = by_time.series(0).unix_ns(i) / 1'000'000'000 - kBeginS;
    EXPECT_EQ(by_time.series(0).max_bytes(i), (1 << 30) + static_cast<int64_t>(second) * kMiB);
  }
  std::set<std::string> kinds;
  for (const v1::HistoryMark& mark : by_time.marks()) kinds.insert(mark.kind());
  EXPECT_THAT(kinds, ::testing::IsSupersetOf({"started", "ended", "verdict"}));
  request.set_align("step");
  request.set_first_step(500);
  request.set_last_step(502);
  const auto by_step = Ask(request, 0);
  ASSERT_EQ(by_step.series_size(), 1);
  EXPECT_THAT(by_step.series(0).steps(), ElementsAre(500, 501, 502));
  // And it goes on in the same file.
  TestingNode node(1);
  Live(&node, 0, 60);
  EXPECT_EQ(Ask(FwLive(0, 0, 60, 100), 60).series_size(), 1);
}

TEST_F(HistoryTest, ADatabaseOfANewerDaemonIsKeptBesideAndSaid) {
  Open();
  TestingNode node(1);
  Live(&node, 0, 60);
  database_.reset();
  ASSERT_TRUE(Sqlite(file().string(), SQLITE_OPEN_READWRITE).Run("PRAGMA user_version = 99"));
  Open();
  EXPECT_EQ(database_->set_aside(), 1u);
  EXPECT_THAT(database_->why_set_aside(), HasSubstr("written by a newer tidemarkd"));
  EXPECT_TRUE(std::filesystem::exists(file().string() + ".newer"));
  Live(&node, 60, 120);
  EXPECT_EQ(Sqlite(file().string() + ".newer", SQLITE_OPEN_READONLY).Number("PRAGMA user_version"),
            99);
}

TEST_F(HistoryTest, ADamagedFileIsSetAsideAndWhatWaitsIsWrittenAnew) {
  Open();
  TestingNode node(1);
  Live(&node, 0, 120);
  for (uint64_t second = 120; second < 125; ++second) sampler_->Absorb(node.At(second));
  database_.reset();
  {
    std::fstream bytes(file(), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(4096);
    for (int i = 0; i < 4096; ++i) bytes.put(static_cast<char>(i * 7));
  }
  database_ = std::make_unique<HistoryDatabase>(file(), 64 << 20);
  ASSERT_TRUE(database_->Open().ok());
  EXPECT_EQ(database_->set_aside(), 1u);
  EXPECT_TRUE(std::filesystem::exists(file().string() + ".damaged"));
  sampler_->Forget();
  ASSERT_TRUE(Write(125).ok());
  const auto answer = Ask(FwLive(0, 0, 125, 1000), 125);
  ASSERT_EQ(answer.series_size(), 1);
  EXPECT_EQ(*answer.series(0).unix_ns().rbegin(), TestingNode::UnixNs(124));
  EXPECT_EQ(Integrity(), "ok");
}

TEST_F(HistoryTest, AClockThatIsSetBackAnHourLosesNothingAndStopsNothing) {
  Open();
  TestingNode node(1);
  Live(&node, 7200, 7500);
  Live(&node, 3900, 4200);  // an hour earlier, by the wall
  const auto earlier = Ask(FwLive(0, 3900, 4199, 10'000), 4199);
  ASSERT_EQ(earlier.series_size(), 1);
  EXPECT_EQ(earlier.series(0).unix_ns_size(), 300);
  const auto later = Ask(FwLive(0, 7200, 7499, 10'000), 7499);
  ASSERT_EQ(later.series_size(), 1);
  EXPECT_EQ(later.series(0).unix_ns_size(), 300);
  Live(&node, 4200, 4200 + 3600);  // pruning goes on by the clock as it is
  const auto answer = Ask(FwLive(0, 3900, 7799, 10'000), 7799);
  EXPECT_EQ(answer.series_size(), 1);
  EXPECT_EQ(Integrity(), "ok");
}

TEST_F(HistoryTest, PagesGiveEverySeriesOnce) {
  Open();
  TestingNode node(3, 40);
  Live(&node, 0, 60);
  v1::QueryRangeRequest request;
  request.set_start_unix_ns(TestingNode::UnixNs(0));
  request.set_end_unix_ns(TestingNode::UnixNs(60));
  request.set_all_sites(true);
  request.set_page_size(7);
  std::multiset<std::pair<int, uint64_t>> seen;
  int pages = 0;
  do {
    const auto answer = Ask(request, 60);
    EXPECT_LE(answer.series_size(), 7);
    for (const v1::Series& series : answer.series()) {
      seen.insert({series.process().rank(), series.site_id()});
      EXPECT_EQ(series.frames(0).function(), "forward");
    }
    request.set_page_token(answer.next_page_token());
    ASSERT_LT(++pages, 100);
  } while (!request.page_token().empty());
  EXPECT_EQ(seen.size(), 3u * 40u);
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), seen.size());
}

TEST_F(HistoryTest, OtherUsersProcessesAreLeftOut) {
  Open();
  TestingNode node(1);  // of user 1000
  Live(&node, 0, 60);
  v1::QueryRangeRequest request = FwLive(0, 0, 60, 100);
  request.set_include_marks(true);
  for (const auto& [viewer, series] : {std::pair{1000u, 1}, std::pair{1001u, 0}}) {
    v1::QueryRangeResponse answer;
    ASSERT_TRUE(HistoryReader(file()).QueryRange(request, Context(60, viewer), &answer).ok());
    EXPECT_EQ(answer.series_size(), series) << viewer;
    EXPECT_EQ(answer.marks_size(), series) << viewer;
  }
}

TEST_F(HistoryTest, WhatCannotBeMeantIsRefusedWithAReason) {
  Open();
  TestingNode node(2);
  Live(&node, 0, 100);
  const auto refused = [&](const std::function<void(v1::QueryRangeRequest*)>& spoil) {
    v1::QueryRangeRequest request = FwLive(0, 0, 100, 100);
    spoil(&request);
    const QueryStatus status = Refusal(request);
    EXPECT_EQ(status.code, QueryCode::kInvalid);
    return status.message;
  };
  EXPECT_THAT(refused([](auto* r) { r->set_start_unix_ns(TestingNode::UnixNs(200)); }),
              HasSubstr("ends before it starts"));
  EXPECT_THAT(refused([](auto* r) { r->set_align("phase"); }), HasSubstr("\"time\" or \"step\""));
  EXPECT_THAT(refused([](auto* r) { r->set_max_points(-1); }), HasSubstr("max_points"));
  EXPECT_THAT(refused([](auto* r) { r->set_max_points(1 << 30); }), HasSubstr("max_points"));
  EXPECT_THAT(refused([](auto* r) { r->set_page_size(1 << 30); }), HasSubstr("page_size"));
  EXPECT_THAT(refused([](auto* r) {
                r->set_first_step(9);
                r->set_last_step(3);
              }),
              HasSubstr("steps ends before"));
  EXPECT_THAT(refused([](auto* r) {
                for (int i = 0; i < 2000; ++i) r->add_pids(i);
              }),
              HasSubstr("1024"));
  for (const char* token :
       {"x", "1.2.3.4.5", "....", "ffffffffffffffffff.0.0.0.0", "1.2.3.4.5.6"}) {
    EXPECT_THAT(refused([&](auto* r) { r->set_page_token(token); }), HasSubstr("page token"))
        << token;
  }
  // A token of another question.
  v1::QueryRangeRequest all;
  all.set_start_unix_ns(TestingNode::UnixNs(0));
  all.set_end_unix_ns(TestingNode::UnixNs(100));
  all.set_page_size(1);
  const std::string token = Ask(all, 100).next_page_token();
  ASSERT_FALSE(token.empty());
  EXPECT_THAT(refused([&](auto* r) { r->set_page_token(token); }), HasSubstr("page token"));
}

TEST_F(HistoryTest, AQuestionPastItsDeadlineSaysSo) {
  Open();
  TestingNode node(2);
  Live(&node, 0, 100);
  QueryContext context = Context(100);
  context.deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  v1::QueryRangeResponse answer;
  EXPECT_EQ(HistoryReader(file()).QueryRange(FwLive(0, 0, 100, 10), context, &answer).code,
            QueryCode::kDeadline);
}

TEST_F(HistoryTest, WithoutAFileThereIsNothingToRead) {
  EXPECT_EQ(Refusal(FwLive(0, 0, 1, 1)).code, QueryCode::kUnavailable);
}

// A writer that commits all the time is killed at a random moment, again and again: what it said
// it had written is there, and the file is sound.
TEST_F(HistoryTest, AKilledWriterLosesNothingThatWasCommitted) {
  std::mt19937 random(7);
  uint64_t begin = 0;
  for (int kill = 0; kill < 20; ++kill) {
    int told[2];
    ASSERT_EQ(::pipe(told), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(told[0]);
      Open();
      TestingNode node(4, 16);
      for (uint64_t second = begin;; ++second) {
        sampler_->Absorb(node.At(second));
        if (!Write(second).ok()) ::_exit(1);
        if (::write(told[1], &second, sizeof(second)) != sizeof(second)) ::_exit(1);
      }
    }
    ::close(told[1]);
    uint64_t committed = 0;
    ASSERT_EQ(::read(told[0], &committed, sizeof(committed)), ssize_t{sizeof(committed)});
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 50'000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    uint64_t next = 0;
    while (::read(told[0], &next, sizeof(next)) == ssize_t{sizeof(next)}) committed = next;
    ::close(told[0]);
    ASSERT_EQ(Integrity(), "ok") << "kill " << kill;
    const auto answer = Ask(FwLive(2, committed, committed, 10), committed);
    ASSERT_EQ(answer.series_size(), 1) << "kill " << kill << ", second " << committed;
    EXPECT_EQ(answer.series(0).mean_bytes(0), TestingNode::FwLive(2, committed));
    begin = committed + 1;
  }
}

// A disk of the test's own.
class HistoryDiskTest : public HistoryTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(::mount("tidemark-test", directory_.c_str(), "tmpfs", 0, "size=24m"), 0);
  }
  void TearDown() override { ::umount2(directory_.c_str(), MNT_DETACH); }

  // Until the history says that it works, or that it does not; as the daemon drives it.
  HistoryState Await(History* history, TestingNode* node, bool works) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    HistoryState state;
    do {
      history->Offer(std::make_shared<NodeSnapshot>(node->At(second_++)));
      history->Flush(std::chrono::steady_clock::now() + std::chrono::seconds(1));
      state = history->state();
    } while (state.works != works && std::chrono::steady_clock::now() < end);
    EXPECT_EQ(state.works, works) << state.reason;
    return state;
  }

  uint64_t second_ = 0;
};

TEST_F(HistoryDiskTest, AFullDiskIsSaidAndHealsWhenThereIsRoom) {
  History history({directory_, 64 << 20});
  TestingNode node(4, 16);
  Await(&history, &node, true);
  std::ofstream(directory_ / "ballast") << std::string(24 << 20, 'x');
  const HistoryState full = Await(&history, &node, false);
  EXPECT_THAT(full.reason, HasSubstr("make room on the disk"));
  EXPECT_GT(full.failed_writes, 0u);
  const uint64_t waited = second_;
  std::filesystem::remove(directory_ / "ballast");
  EXPECT_EQ(Await(&history, &node, true).reason, "");
  history.Stop();
  EXPECT_EQ(Integrity(), "ok");
  const auto answer = Ask(FwLive(0, 0, second_, 10'000), second_);
  ASSERT_EQ(answer.series_size(), 1);
  EXPECT_EQ(*answer.series(0).unix_ns().rbegin(), TestingNode::UnixNs(second_ - 1));
  // What came while there was no room was kept in memory meanwhile.
  EXPECT_THAT(answer.series(0).unix_ns(), ::testing::Contains(TestingNode::UnixNs(waited - 1)));
}

TEST_F(HistoryDiskTest, ADiskThatBecomesReadOnlyIsSaidAndHeals) {
  History history({directory_, 64 << 20});
  TestingNode node(1);
  Await(&history, &node, true);
  // A file that is open keeps its disk writable: what a remount would do, a mount on top does.
  ASSERT_EQ(::mount("tidemark-test", directory_.c_str(), "tmpfs", MS_RDONLY, nullptr), 0);
  const HistoryState denied = Await(&history, &node, false);
  EXPECT_THAT(denied.reason, HasSubstr("Read-only"));
  EXPECT_THAT(denied.reason, HasSubstr("set state.directory"));
  ASSERT_EQ(::umount(directory_.c_str()), 0);
  EXPECT_EQ(Await(&history, &node, true).reason, "");
}

TEST_F(HistoryDiskTest, ADirectoryThatCannotBeWrittenFromTheStartIsSaidAndHeals) {
  ASSERT_EQ(
      ::mount(nullptr, directory_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY | MS_BIND, nullptr), 0);
  History history({directory_, 64 << 20});
  TestingNode node(1);
  const HistoryState denied = Await(&history, &node, false);
  EXPECT_THAT(denied.reason, HasSubstr("set state.directory"));
  ASSERT_EQ(::mount(nullptr, directory_.c_str(), nullptr, MS_REMOUNT | MS_BIND, nullptr), 0);
  Await(&history, &node, true);
}

TEST_F(HistoryDiskTest, AFileThatSomebodyRemovedIsBegunAnew) {
  History history({directory_, 64 << 20});
  TestingNode node(1);
  const uint64_t before = Await(&history, &node, true).generation;
  for (const char* part : {"", "-wal", "-shm"}) std::filesystem::remove(file().string() + part);
  history.Offer(std::make_shared<NodeSnapshot>(node.At(second_)));
  history.Flush(std::chrono::steady_clock::now() + std::chrono::seconds(1));
  EXPECT_GT(history.state().generation, before);
  EXPECT_TRUE(history.state().works);
  const auto answer = Ask(FwLive(0, 0, second_, 100), second_);
  ASSERT_EQ(answer.series_size(), 1);
  EXPECT_EQ(answer.series(0).unix_ns_size(), static_cast<int>(second_ + 1))
      << "the open chunk is written whole";
}

}  // namespace
}  // namespace tidemark
