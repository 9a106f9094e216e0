#include "daemon/store/post_mortems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "daemon/store/post_mortem.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr uint64_t kSecond = 1'000'000'000;

std::shared_ptr<const SiteView> Site(uint64_t id, const std::string& function, int64_t live,
                                     int64_t at_load, int64_t at_peak) {
  auto info = std::make_shared<SiteInfo>();
  info->id = id;
  info->frames = {{wire::FrameKind::kPython, function, "/job/train.py", 7}};
  auto site = std::make_shared<SiteView>();
  site->info = std::move(info);
  site->memory_class = MemoryClass::kFwLive;
  site->witness = Witness::kTorch;
  site->device = 0;
  site->live = {live, 1};
  site->at[static_cast<size_t>(wire::Moment::kLoad)] = {at_load, 1};
  site->at[static_cast<size_t>(wire::Moment::kPeak)] = {at_peak, 1};
  return site;
}

class PostMortemsTest : public ::testing::Test {
 protected:
  PostMortemsTest() {
    std::string pattern = "/tmp/tidemark-post-mortem-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    options_.directory = directory_ / "postmortem";
  }
  ~PostMortemsTest() override { std::filesystem::remove_all(directory_); }

  static ProcessSnapshot Rank(pid_t pid, int rank, int64_t fw_live) {
    ProcessSnapshot process;
    process.key = {"boot", pid, 7};
    process.identity.rank = rank;
    process.identity.uid = static_cast<uid_t>(1000 + rank);
    process.observed = true;
    ClassTotal total;
    total.memory_class = MemoryClass::kFwLive;
    total.witness = Witness::kTorch;
    total.device = 0;
    total.live_bytes = fw_live;
    process.totals = {total};
    PhaseView load;
    load.name = "load";
    load.end_monotonic_ns = 1;
    process.phases = {load};
    return process;
  }

  std::shared_ptr<NodeSnapshot> Next(std::vector<ProcessSnapshot> processes) {
    now_ += kSecond;
    auto snapshot = std::make_shared<NodeSnapshot>();
    snapshot->unix_ns = now_;
    snapshot->node = "n1";
    snapshot->memory.total_bytes = 1 << 30;
    for (ProcessSnapshot& process : processes) {
      if (process.liveness == Liveness::kAlive) process.last_update_unix_ns = now_;
    }
    snapshot->processes = std::move(processes);
    return snapshot;
  }

  static void Kill(ProcessSnapshot* process, uint64_t unix_ns) {
    process->liveness = Liveness::kKilled;
    process->exit_reason = "killed by SIGKILL";
    process->last_update_unix_ns = unix_ns;
  }

  // Until so many files were written or given up.
  static void Await(const PostMortems& store, uint64_t files) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (store.state().written + store.state().lost < files) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  std::vector<v1::PostmortemSummary> Listed(const PostMortems& store, uid_t uid = 0) {
    v1::ListPostmortemsResponse list;
    store.List([&](uid_t owner) { return uid == 0 || owner == uid; }, &list);
    return {list.postmortems().begin(), list.postmortems().end()};
  }

  std::filesystem::path directory_;
  PostMortemOptions options_;
  uint64_t now_ = 1'000'000 * kSecond;
};

TEST_F(PostMortemsTest, TheDeadAreWrittenOnceWithWhoGrewOnTheWholeNode) {
  {
    PostMortems store(options_);
    store.Offer(Next({Rank(10, 0, 100 * kMiB), Rank(11, 1, 100 * kMiB)}));
    ProcessSnapshot dead = Rank(10, 0, 300 * kMiB);
    auto sites = std::make_shared<SiteList>();
    sites->push_back(Site(1, "steady", 100 * kMiB, 100 * kMiB, 0));
    sites->push_back(Site(2, "keep", 200 * kMiB, 0, 0));
    dead.sites = sites;
    Kill(&dead, now_ + kSecond);
    const auto last = Next({dead, Rank(11, 1, 600 * kMiB)});
    store.Offer(last);
    store.Offer(last);
    Await(store, 1);
    store.Stop();
    EXPECT_EQ(store.state().written, 1u);
  }
  PostMortems again(options_);
  again.Stop();
  const auto list = Listed(again);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].id(), "10-7");
  EXPECT_EQ(list[0].cause(), "signal");
  v1::Postmortem message;
  ASSERT_TRUE(again
                  .Get(
                      "10-7", [](uid_t) { return true; }, &message)
                  .ok());
  ASSERT_EQ(message.growers_size(), 2);
  EXPECT_EQ(message.growers(0).process().rank(), 1);
  EXPECT_EQ(message.growers(0).grew_bytes(), 500 * kMiB);
  EXPECT_EQ(message.growers(1).process().rank(), 0);
  EXPECT_EQ(message.growers(1).grew_bytes(), 200 * kMiB);
  EXPECT_EQ(message.growers(1).site().frames(0).function(), "keep");
  EXPECT_DOUBLE_EQ(message.growers(1).site_share(), 1.0);
  ASSERT_EQ(message.series_size(), 1);
  EXPECT_THAT(message.series(0).mean_bytes(), ::testing::ElementsAre(100 * kMiB, 300 * kMiB));
  EXPECT_EQ(message.memory().total_bytes(), 1 << 30);
}

TEST_F(PostMortemsTest, WhoEndsInPeaceIsNotWritten) {
  PostMortems store(options_);
  ProcessSnapshot gone = Rank(10, 0, kMiB);
  gone.liveness = Liveness::kExited;
  gone.exit_reason = "exited";
  store.Offer(Next({gone}));
  store.Stop();
  EXPECT_TRUE(Listed(store).empty());
}

TEST_F(PostMortemsTest, WhatAJobHeldWhenItWasRefusedMemoryOutlivesWhatItsEndLeft) {
  PostMortems store(options_);
  store.Offer(Next({Rank(10, 0, 100 * kMiB)}));
  ProcessSnapshot refused = Rank(10, 0, 900 * kMiB);
  EventView event;
  event.type = "allocation_failed";
  event.entry_point = "cuMemAlloc";
  event.code = 2;
  event.bytes = 64 * kMiB;
  event.unix_ns = now_ + kSecond;
  refused.events = {event};
  auto sites = std::make_shared<SiteList>();
  sites->push_back(Site(2, "keep", 900 * kMiB, 0, 900 * kMiB));
  refused.sites = sites;
  store.Offer(Next({refused}));
  ProcessSnapshot dead = Rank(10, 0, 0);  // it unwound, and freed everything
  dead.events = {event};
  dead.liveness = Liveness::kExited;
  dead.exit_reason = "exited with status 1";
  dead.last_update_unix_ns = now_ + kSecond;
  store.Offer(Next({dead}));
  Await(store, 2);
  store.Stop();
  const auto list = Listed(store);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].cause(), "device_out_of_memory");
  EXPECT_EQ(list[0].how(), "exited with status 1");
  v1::Postmortem message;
  ASSERT_TRUE(store
                  .Get(
                      "10-7", [](uid_t) { return true; }, &message)
                  .ok());
  EXPECT_EQ(message.failing_call().bytes(), static_cast<uint64_t>(64 * kMiB));
  EXPECT_EQ(message.failing_call().code(), 2);
  ASSERT_GE(message.growers_size(), 1);
  EXPECT_EQ(message.growers(0).live_bytes(), 900 * kMiB);
  EXPECT_EQ(message.growers(0).site().frames(0).function(), "keep");
  EXPECT_EQ(message.process().liveness(), "exited");
}

TEST_F(PostMortemsTest, WhatAJobGaveBackAfterTheRefusalIsNotAGrowthOfItsCache) {
  PostMortems store(options_);
  const auto with = [](int64_t live, int64_t cache) {
    ProcessSnapshot rank = Rank(10, 0, live);
    Waterfall waterfall;
    waterfall.device = 0;
    waterfall.lines = {{MemoryClass::kFwLive, live, ""}, {MemoryClass::kFwCache, cache, ""}};
    rank.waterfalls = {waterfall};
    rank.totals[0].live_bytes = live;
    return rank;
  };
  store.Offer(Next({with(100 * kMiB, 50 * kMiB)}));
  ProcessSnapshot dead = with(10 * kMiB, 940 * kMiB);  // it unwound; its segments stay
  PeakView peak;
  peak.side = wire::PeakSide::kFramework;
  peak.device = 0;
  peak.peak_bytes = 900 * kMiB;
  dead.peaks = {peak};
  EventView event;
  event.type = "out_of_memory";
  event.device = 0;
  event.unix_ns = now_ + kSecond;
  dead.events = {event};
  dead.liveness = Liveness::kExited;
  dead.exit_reason = "exited with status 1";
  dead.last_update_unix_ns = now_ + kSecond;
  store.Offer(Next({dead}));
  Await(store, 1);
  store.Stop();
  v1::Postmortem message;
  ASSERT_TRUE(store
                  .Get(
                      "10-7", [](uid_t) { return true; }, &message)
                  .ok());
  ASSERT_EQ(message.growers_size(), 1);
  EXPECT_EQ(message.growers(0).memory_class(), "fw_live");
  EXPECT_EQ(message.growers(0).live_bytes(), 900 * kMiB);
}

TEST_F(PostMortemsTest, WhatGrewInTheMemoryThatRanOutComesFirst) {
  PostMortems store(options_);
  const auto with = [](int64_t live, int64_t anon) {
    ProcessSnapshot rank = Rank(10, 0, live);
    rank.host.known = true;
    rank.host.anon_bytes = anon;
    return rank;
  };
  store.Offer(Next({with(kMiB, kMiB)}));
  ProcessSnapshot dead = with(900 * kMiB, 200 * kMiB);
  Kill(&dead, now_ + kSecond);
  dead.exit_reason = "killed by the OOM killer";
  store.Offer(Next({dead}));
  Await(store, 1);
  store.Stop();
  v1::Postmortem message;
  ASSERT_TRUE(store
                  .Get(
                      "10-7", [](uid_t) { return true; }, &message)
                  .ok());
  ASSERT_EQ(message.growers_size(), 2);
  EXPECT_EQ(message.growers(0).memory_class(), "anon");
  EXPECT_EQ(message.growers(1).memory_class(), "fw_live");
}

TEST_F(PostMortemsTest, ANewsThatComesAfterTheEndChangesTheCause) {
  PostMortems store(options_);
  ProcessSnapshot dead = Rank(10, 0, kMiB);
  Kill(&dead, now_ + kSecond);
  store.Offer(Next({dead}));
  dead.exit_reason = "killed by the OOM killer";
  store.Offer(Next({dead}));
  Await(store, 2);
  store.Stop();
  ASSERT_EQ(Listed(store).size(), 1u);
  EXPECT_EQ(Listed(store)[0].cause(), "oom_killer");
}

TEST_F(PostMortemsTest, OthersSeeNothingOfAUsersPostMortem) {
  PostMortems store(options_);
  ProcessSnapshot dead = Rank(10, 0, kMiB);
  Kill(&dead, now_ + kSecond);
  store.Offer(Next({dead}));
  Await(store, 1);
  store.Stop();
  EXPECT_EQ(Listed(store, 1000).size(), 1u);
  EXPECT_TRUE(Listed(store, 1001).empty());
  v1::Postmortem message;
  EXPECT_FALSE(store
                   .Get(
                       "10-7", [](uid_t uid) { return uid == 1001; }, &message)
                   .ok());
  EXPECT_FALSE(store
                   .Get(
                       "../10-7", [](uid_t) { return true; }, &message)
                   .ok());
}

TEST_F(PostMortemsTest, TheOldestGoWhenThereAreTooMany) {
  options_.most_files = 3;
  PostMortems store(options_);
  for (pid_t pid = 10; pid < 16; ++pid) {
    ProcessSnapshot dead = Rank(pid, 0, kMiB);
    Kill(&dead, now_ + kSecond);
    store.Offer(Next({dead}));
  }
  Await(store, 6);
  store.Stop();
  const auto list = Listed(store);
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].id(), "15-7");
  EXPECT_EQ(list[2].id(), "13-7");
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(options_.directory)) {
    EXPECT_EQ(entry.path().extension(), ".pb");
    ++files;
  }
  EXPECT_EQ(files, 3u);
}

TEST_F(PostMortemsTest, ADiskThatRefusesIsSaidAndCounted) {
  std::ofstream(options_.directory) << "in the way";
  PostMortems store(options_);
  ProcessSnapshot dead = Rank(10, 0, kMiB);
  Kill(&dead, now_ + kSecond);
  store.Offer(Next({dead}));
  Await(store, 1);
  store.Stop();
  EXPECT_EQ(store.state().lost, 1u);
  EXPECT_FALSE(store.state().reason.empty());
  EXPECT_TRUE(Listed(store).empty());
}

TEST_F(PostMortemsTest, DamagedFilesAreNotListed) {
  std::filesystem::create_directories(options_.directory);
  std::ofstream(options_.directory / "1-2.pb") << "\x0a\xff\xff\xff\xff\x0fnonsense";
  std::ofstream(options_.directory / "3-4.pb") << "";
  PostMortems store(options_);
  store.Stop();
  EXPECT_TRUE(Listed(store).empty());
}

TEST_F(PostMortemsTest, ARegionThatWasLeftOverBecomesAPostMortemOnce) {
  ProcessSnapshot left = Rank(10, 0, 5 * kMiB);
  left.liveness = Liveness::kExited;
  left.exit_reason = "ended; the daemon ended before it could say how";
  left.last_update_unix_ns = now_;
  options_.left_over = [&] { return std::vector<NodeSnapshot>{*Next({left})}; };
  for (int start = 0; start < 2; ++start) {
    PostMortems store(options_);
    if (start == 0) Await(store, 1);
    store.Stop();
    EXPECT_EQ(store.state().written, start == 0 ? 1u : 0u);
    const auto list = Listed(store);
    ASSERT_EQ(list.size(), 1u);
    EXPECT_EQ(list[0].cause(), "unknown");
    EXPECT_THAT(list[0].biggest_grower(), ::testing::StartsWith("rank 0 (pid 10): fw_live"));
  }
}

}  // namespace
}  // namespace tidemark
