#include "daemon/snapshot/snapshot_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "daemon/detect/cause.h"
#include "daemon/source/agent/fake_region.h"

namespace tidemark {
namespace {

using wire::Kind;
using wire::Layer;
using wire::PeakSide;

constexpr int64_t kMiB = 1 << 20;
constexpr uint64_t kSecond = 1'000'000'000;

// A whole daemon but for its threads: this process is the rank, its region is made up.
class SnapshotBuilderTest : public ::testing::Test {
 protected:
  SnapshotBuilderTest()
      : region_({.environment = {{"RANK", "2"},
                                 {"WORLD_SIZE", "4"},
                                 {"LOCAL_RANK", "2"},
                                 {"TORCHELASTIC_RUN_ID", "llama"},
                                 {"CUDA_VISIBLE_DEVICES", "1"},
                                 {"TIDEMARK_RUN", "r1"}}}) {
    std::string pattern = "/tmp/tidemark-builder-test-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    AgentSourceOptions options;
    options.socket_path = directory_ + "/agent.sock";
    agents_ = std::make_unique<AgentSource>(options, ProcRoot());
    EXPECT_TRUE(agents_->Start().ok());
    builder_ = std::make_unique<SnapshotBuilder>(BuilderOptions{}, ProcRoot(), nullptr);
    Connect(options.socket_path);
  }
  ~SnapshotBuilderTest() override { std::filesystem::remove_all(directory_); }

  void Connect(const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    client_.Reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(
        ::connect(client_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const wire::Hello hello = region_.Hello();
    iovec part = {const_cast<wire::Hello*>(&hello), sizeof(hello)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = region_.fd();
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
    ASSERT_EQ(::sendmsg(client_.get(), &message, 0), static_cast<ssize_t>(sizeof(hello)));
    for (int i = 0; i < 4; ++i) agents_->Pump();
  }

  uint32_t SetTotals(Layer layer, Kind kind, int16_t device, int64_t live) {
    wire::TotalsRow row = {};
    row.layer = static_cast<uint8_t>(layer);
    row.kind = static_cast<uint8_t>(kind);
    row.device = device;
    row.live_bytes = live;
    row.allocated_bytes = static_cast<uint64_t>(live);
    row.allocations = 1;
    return region_.SetTotals(row);
  }

  // NVML as it shows this process on node device 1.
  void SetFigure(int64_t bytes) {
    nvml_.state = {"nvml", "on", ""};
    nvml_.devices.resize(2);
    for (int i = 0; i < 2; ++i) {
      NvmlDevice& device = nvml_.devices[static_cast<size_t>(i)];
      device.view.index = i;
      device.view.total_bytes = 80ll << 30;
      device.processes_known = true;
      device.processes.clear();
    }
    nvml_.devices[1].processes = {{::getpid(), bytes}};
    nvml_.devices[1].view.used_bytes = bytes;
  }

  std::shared_ptr<NodeSnapshot> Tick() {
    now_ += kSecond;
    agents_->Refresh();
    TickInput input;
    input.unix_ns = now_;
    input.monotonic_ns = now_;
    input.agents = agents_.get();
    input.nvml = &nvml_;
    input.scan = &scan_;
    input.bpf = bpf_ ? &*bpf_ : nullptr;
    builder_->Absorb(input);
    builder_->AbsorbFigures(input);
    return builder_->Build(input);
  }

  static const ProcessSnapshot* Find(const NodeSnapshot& snapshot, pid_t pid) {
    for (const ProcessSnapshot& process : snapshot.processes) {
      if (process.key.pid == pid) return &process;
    }
    return nullptr;
  }

  FakeRegion region_;
  std::string directory_;
  std::unique_ptr<AgentSource> agents_;
  std::unique_ptr<SnapshotBuilder> builder_;
  UniqueFd client_;
  NvmlSample nvml_;
  procfs::ScanResult scan_;
  std::optional<BpfSnapshot> bpf_;
  uint64_t now_ = 1'700'000'000 * kSecond;
};

TEST_F(SnapshotBuilderTest, ARankIsNamedPlacedAndCountedToTheByte) {
  SetFigure(600 * kMiB);
  SetTotals(Layer::kDriver, Kind::kDevice, 0, 64 * kMiB);
  SetTotals(Layer::kRecords, Kind::kDevice, 0, 64 * kMiB);
  SetTotals(Layer::kFramework, Kind::kFwBlock, 0, 40 * kMiB + 512);
  SetTotals(Layer::kDriver, Kind::kPinned, -1, 4096);
  region_.SetAllocator(0, 40 * kMiB + 512, 64 * kMiB);
  const auto snapshot = Tick();
  const ProcessSnapshot* process = Find(*snapshot, ::getpid());
  ASSERT_NE(process, nullptr);
  EXPECT_TRUE(process->observed);
  EXPECT_EQ(process->identity.rank, 2);
  EXPECT_EQ(process->identity.world_size, 4);
  EXPECT_EQ(process->identity.training_job, "llama");
  EXPECT_EQ(process->identity.launcher, "torchrun");
  EXPECT_EQ(process->identity.run, "r1");
  EXPECT_EQ(process->identity.uid, ::getuid());
  EXPECT_GT(process->host.rss_bytes, 0);
  std::map<std::pair<MemoryClass, int>, int64_t> live;
  for (const ClassTotal& total : process->totals) {
    EXPECT_FALSE(live.contains({total.memory_class, total.device})) << "counted twice";
    live[{total.memory_class, total.device}] = total.live_bytes;
  }
  EXPECT_EQ((live[{MemoryClass::kDevice, 1}]), 64 * kMiB);
  EXPECT_EQ((live[{MemoryClass::kFwLive, 1}]), 40 * kMiB + 512);
  EXPECT_EQ((live[{MemoryClass::kFwCache, 1}]), 24 * kMiB - 512);
  EXPECT_EQ((live[{MemoryClass::kPinned, -1}]), 4096);
  ASSERT_EQ(process->waterfalls.size(), 1u);
  const Waterfall& fall = process->waterfalls[0];
  EXPECT_EQ(fall.device, 1);
  EXPECT_TRUE(fall.figure_known);
  int64_t sum = 0;
  for (const WaterfallLine& line : fall.lines) sum += line.bytes;
  EXPECT_EQ(sum, 600 * kMiB);
}

TEST_F(SnapshotBuilderTest, WhatTheAllocatorHeldBeforeInjectionIsALineOfItsOwn) {
  SetTotals(Layer::kFramework, Kind::kFwBlock, 0, 10 * kMiB);
  region_.SetAllocator(0, 15 * kMiB, 20 * kMiB);
  const auto snapshot = Tick();
  bool found = false;
  for (const ClassTotal& total : Find(*snapshot, ::getpid())->totals) {
    if (!total.before_attach) continue;
    found = true;
    EXPECT_EQ(total.memory_class, MemoryClass::kFwLive);
    EXPECT_EQ(total.live_bytes, 5 * kMiB);
  }
  EXPECT_TRUE(found);
}

TEST_F(SnapshotBuilderTest, RecordsThatAreStillToBeFlushedAreNoDisagreement) {
  SetTotals(Layer::kDriver, Kind::kDevice, 0, 64 * kMiB);
  SetTotals(Layer::kRecords, Kind::kDevice, 0, 60 * kMiB);
  Tick();
  EXPECT_TRUE(Find(*Tick(), ::getpid())->losses.empty());
}

TEST_F(SnapshotBuilderTest, TwoWitnessesThatDisagreeShowTheDifference) {
  SetTotals(Layer::kDriver, Kind::kDevice, 0, 60 * kMiB);
  SetTotals(Layer::kRecords, Kind::kDevice, 0, 64 * kMiB);
  Tick();
  const auto snapshot = Tick();
  EXPECT_THAT(Find(*snapshot, ::getpid())->losses,
              ::testing::Contains(::testing::AllOf(
                  ::testing::Field(&LossView::cause, "records_disagree"),
                  ::testing::Field(&LossView::bytes, static_cast<uint64_t>(4 * kMiB)))));
}

TEST_F(SnapshotBuilderTest, ASiteIsBlamedOnTheJobsOwnLine) {
  const uint32_t row = SetTotals(Layer::kFramework, Kind::kFwBlock, 0, 36 * 256 * kMiB);
  wire::PeakGroupRow group = {};
  group.peak_epoch = 3;
  const uint32_t peak = region_.SetPeakGroup(group);
  const uint32_t first = region_.AddPythonFrame(
      "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", "__init__", 1);
  region_.AddPythonFrame("/job/model.py", "make_mask", 42);
  region_.AddPythonFrame("/job/train.py", "main", 7);
  wire::SiteRow site = {};
  site.first_frame = first;
  site.frame_count = 3;
  site.totals_row = static_cast<uint8_t>(row);
  site.peak_group = static_cast<uint8_t>(peak);
  site.live_bytes = 36 * 256 * kMiB;
  site.live_count = 36;
  site.allocated_count = 36;
  site.min_block_bytes = site.max_block_bytes = 256 * kMiB;
  region_.SetSite(0, site);
  const auto snapshot = Tick();
  const ProcessSnapshot* process = Find(*snapshot, ::getpid());
  ASSERT_EQ(process->sites->size(), 1u);
  const SiteView& view = *process->sites->front();
  ASSERT_EQ(view.info->frames.size(), 3u);
  EXPECT_EQ(view.info->blamed_frame, 1u);
  EXPECT_EQ(view.info->frames[1].file, "/job/model.py");
  EXPECT_EQ(view.info->frames[1].line, 42u);
  EXPECT_EQ(view.live.count, 36);
  EXPECT_EQ(view.device, 1);
  EXPECT_EQ(view.at[0].bytes, 36 * 256 * kMiB);  // has not changed since the peak
}

TEST_F(SnapshotBuilderTest, AnUnchangedSiteFollowsAPeakThatMovesOn) {
  const uint32_t row = SetTotals(Layer::kFramework, Kind::kFwBlock, 0, 100);
  wire::PeakGroupRow group = {};
  group.peak_epoch = 1;
  region_.SetPeakGroup(group);
  const uint32_t frame = region_.AddPythonFrame("/job/a.py", "f", 1);
  wire::SiteRow site = {};
  site.first_frame = frame;
  site.frame_count = 1;
  site.totals_row = static_cast<uint8_t>(row);
  site.live_bytes = 100;
  site.allocated_count = 1;
  site.moment_epoch[0] = 1;  // changed after peak 1, at which it held 30
  site.moment_bytes[0] = 30;
  region_.SetSite(0, site);
  EXPECT_EQ(Find(*Tick(), ::getpid())->sites->front()->at[0].bytes, 30);
  group.peak_epoch = 2;
  region_.SetPeakGroup(group);
  EXPECT_EQ(Find(*Tick(), ::getpid())->sites->front()->at[0].bytes, 100);
}

TEST_F(SnapshotBuilderTest, AnUnchangedSiteIsCountedAtTheEndOfLoading) {
  const uint32_t row = SetTotals(Layer::kFramework, Kind::kFwBlock, 0, 100);
  const uint32_t frame = region_.AddPythonFrame("/job/a.py", "f", 1);
  wire::SiteRow site = {};
  site.first_frame = frame;
  site.frame_count = 1;
  site.totals_row = static_cast<uint8_t>(row);
  site.peak_group = UINT8_MAX;
  site.live_bytes = 100;
  site.allocated_count = 1;
  region_.SetSite(0, site);
  constexpr auto kLoad = static_cast<size_t>(wire::Moment::kLoad);
  EXPECT_EQ(Find(*Tick(), ::getpid())->sites->front()->at[kLoad].bytes, 0);
  region_.header().moment_epoch[kLoad] = 1;
  EXPECT_EQ(Find(*Tick(), ::getpid())->sites->front()->at[kLoad].bytes, 100);
}

TEST_F(SnapshotBuilderTest, StepsPhasesAndEventsComeThrough) {
  wire::PeakGroupRow group = {};
  group.side = static_cast<uint8_t>(PeakSide::kFramework);
  region_.SetPeakGroup(group);
  wire::PhaseRow phase = {};
  phase.groups[0] = {10, 30, 20};
  region_.AddPhase("load", phase);
  wire::StepRow step = {};
  step.groups[0] = {1, 2, 3};
  region_.AddStep(step);
  region_.AddStep(step);
  wire::EventRow event = {};
  event.type = static_cast<uint16_t>(wire::EventType::kLimitRaised);
  region_.AddEvent(event);
  const auto snapshot = Tick();
  const ProcessSnapshot* process = Find(*snapshot, ::getpid());
  ASSERT_EQ(process->steps->size(), 2u);
  EXPECT_EQ((*process->steps)[1]->step, 2u);
  EXPECT_EQ((*process->steps)[1]->phase, "load");
  EXPECT_EQ((*process->steps)[1]->groups.at(0).peak_bytes, 2);
  ASSERT_EQ(process->phases.size(), 1u);
  EXPECT_EQ(process->phases[0].groups.at(0).before_bytes, 10);
  ASSERT_EQ(process->events.size(), 1u);
  EXPECT_EQ(process->events[0].type, "limit_raised");
  EXPECT_EQ(Tick()->processes.at(0).steps->size(), 2u);  // once each
}

TEST_F(SnapshotBuilderTest, WhereNvmlIsBlindTheDevicesFigureIsUsedAndMarked) {
  SetFigure(600 * kMiB);
  nvml_.devices[1].processes = {{::getpid() + 100000, 600 * kMiB}};
  SetTotals(Layer::kDriver, Kind::kDevice, 0, 64 * kMiB);
  const auto snapshot = Tick();
  const Waterfall& fall = Find(*snapshot, ::getpid())->waterfalls.at(0);
  EXPECT_TRUE(fall.device_wide);
  EXPECT_THAT(fall.figure_source, ::testing::HasSubstr("pid namespace"));
}

TEST_F(SnapshotBuilderTest, ProcessesWithoutAnAgentAreRowsThatSayWhy) {
  procfs::FoundProcess rank;
  rank.pid = 900001;
  rank.start_time_ticks = 5;
  rank.variables = {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"TORCHELASTIC_RUN_ID", "llama"}};
  rank.comm = "python";
  rank.maps_cuda = true;
  procfs::FoundProcess worker = rank;  // forked by it, without CUDA
  worker.pid = 900002;
  worker.parent = 900001;
  worker.maps_cuda = false;
  procfs::FoundProcess shell = worker;  // started it
  shell.pid = 900000;
  shell.parent = 1;
  scan_.processes = {shell, rank, worker};
  scan_.parents = {{900000, 1}, {900001, 900000}, {900002, 900001}};
  const auto snapshot = Tick();
  EXPECT_EQ(Find(*snapshot, 900000), nullptr);  // only a wrapper
  const ProcessSnapshot* row = Find(*snapshot, 900001);
  ASSERT_NE(row, nullptr);
  EXPECT_FALSE(row->observed);
  EXPECT_THAT(row->not_observed_reason, ::testing::HasSubstr("tidemark run"));
  EXPECT_EQ(row->identity.rank, 3);
  EXPECT_EQ(row->identity.helper_of, 0);
  const ProcessSnapshot* helper = Find(*snapshot, 900002);
  ASSERT_NE(helper, nullptr);
  EXPECT_EQ(helper->identity.helper_of, 900001);
  scan_.processes.clear();
  EXPECT_EQ(Find(*Tick(), 900001), nullptr);
}

TEST_F(SnapshotBuilderTest, AVictimOfTheOomKillerWithoutAnAgentKeepsItsLastState) {
  procfs::FoundProcess found;
  found.pid = ::getppid();
  found.start_time_ticks = 77;
  found.maps_cuda = true;
  scan_.processes = {found};
  ASSERT_NE(Find(*Tick(), ::getppid()), nullptr);
  builder_->NoteEnd(::getppid(), Liveness::kKilled, "killed by the OOM killer");
  scan_.processes.clear();
  const auto snapshot = Tick();
  const ProcessSnapshot* dead = Find(*snapshot, ::getppid());
  ASSERT_NE(dead, nullptr);
  EXPECT_EQ(dead->liveness, Liveness::kKilled);
  EXPECT_EQ(dead->exit_reason, "killed by the OOM killer");
  EXPECT_TRUE(dead->host.known);
}

TEST_F(SnapshotBuilderTest, AProcessThatEndedBeforeTheDeviceWasAskedShowsWhatItsCallsTook) {
  SetTotals(Layer::kDriver, Kind::kDevice, 0, 64 * kMiB);
  agents_->processes().at(::getpid()).liveness = Liveness::kExited;
  const auto snapshot = Tick();
  const ProcessSnapshot* dead = Find(*snapshot, ::getpid());
  ASSERT_NE(dead, nullptr);
  ASSERT_EQ(dead->waterfalls.size(), 1u);
  EXPECT_FALSE(dead->waterfalls[0].figure_known);
  EXPECT_EQ(dead->waterfalls[0].figure_source, "it ended before the device was asked");
  EXPECT_EQ(dead->waterfalls[0].figure_bytes, 64 * kMiB);
}

TEST_F(SnapshotBuilderTest, AProcessThatTheDriverForgetsBeforeItIsGoneKeepsItsLastFigure) {
  SetFigure(600 * kMiB);
  const uint32_t totals = SetTotals(Layer::kDriver, Kind::kDevice, 0, 64 * kMiB);
  Tick();
  nvml_.devices[1].processes = {{::getpid() + 1, 40960 * kMiB}};
  nvml_.devices[1].view.used_bytes = 40960 * kMiB;
  const auto leaving = Tick();
  const ProcessSnapshot* process = Find(*leaving, ::getpid());
  ASSERT_EQ(process->waterfalls.size(), 1u);
  EXPECT_TRUE(process->waterfalls[0].figure_known);
  EXPECT_EQ(process->waterfalls[0].figure_bytes, 600 * kMiB);
  EXPECT_EQ(process->waterfalls[0].figure_source, "nvml lists it no more: its last figure");
  // It did not end, it reset the device: nothing is left there.
  wire::TotalsRow& row = region_.At<wire::TotalsRow>(wire::Section::kTotals, totals);
  row.seq += 2;
  row.live_bytes = 0;
  row.freed_bytes = row.allocated_bytes;
  EXPECT_TRUE(Find(*Tick(), ::getpid())->waterfalls.empty());
}

// A process on its way out holds no device any more; what it would have met, and when, must not
// vanish with it.
TEST_F(SnapshotBuilderTest, AProcessThatEndedKeepsItsTimeToOutOfMemory) {
  SetFigure(600 * kMiB);
  region_.header().load_ended = 1;
  const uint32_t totals = SetTotals(Layer::kDriver, Kind::kDevice, 0, kMiB);
  const auto grow = [&](int second) {
    wire::TotalsRow& row = region_.At<wire::TotalsRow>(wire::Section::kTotals, totals);
    row.seq += 2;
    row.live_bytes = second * 64 * kMiB;
    row.allocated_bytes = static_cast<uint64_t>(row.live_bytes);
    ++row.allocations;
    SetFigure(600 * kMiB + row.live_bytes);
  };
  const auto ahead = [](const ProcessSnapshot& process) {
    for (const detect::Verdict& verdict : process.verdicts) {
      if (verdict.memory_class == MemoryClass::kDevice && verdict.forecast) return true;
    }
    return false;
  };
  bool seen = false;
  for (int second = 1; second < 900 && !seen; ++second) {
    grow(second);
    seen = ahead(*Find(*Tick(), ::getpid()));
  }
  ASSERT_TRUE(seen);
  nvml_.devices[1].processes.clear();
  agents_->processes().at(::getpid()).liveness = Liveness::kKilled;
  EXPECT_TRUE(ahead(*Find(*Tick(), ::getpid())));
}

TEST_F(SnapshotBuilderTest, AnEndedProcessKeepsItsLastStateMarkedDead) {
  SetFigure(600 * kMiB);
  SetTotals(Layer::kDriver, Kind::kDevice, 0, 64 * kMiB);
  Tick();
  ObservedProcess& process = agents_->processes().at(::getpid());
  process.liveness = Liveness::kKilled;
  process.exit_reason = "killed by SIGKILL";
  builder_->NoteEnd(::getpid(), Liveness::kKilled, "killed by the OOM killer");
  const auto snapshot = Tick();
  const ProcessSnapshot* dead = Find(*snapshot, ::getpid());
  ASSERT_NE(dead, nullptr);
  EXPECT_EQ(dead->liveness, Liveness::kKilled);
  EXPECT_EQ(dead->exit_reason, "killed by the OOM killer");
  EXPECT_EQ(dead->waterfalls.size(), 1u);
  EXPECT_FALSE(dead->totals.empty());
  EXPECT_THAT(builder_->TakeEnded(), ::testing::ElementsAre(::getpid()));
  agents_->TakeRegion(::getpid());
  agents_->Forget(::getpid());
  // The last walk over /proc still shows it: that is no second process.
  procfs::FoundProcess stale;
  stale.pid = ::getpid();
  stale.start_time_ticks = dead->key.start_time_ticks;
  stale.maps_cuda = true;
  scan_.processes = {stale};
  const auto later = Tick();
  EXPECT_EQ(later->processes.size(), 1u);
  scan_.processes.clear();
  ASSERT_NE(Find(*later, ::getpid()), nullptr);
  EXPECT_EQ(Find(*later, ::getpid())->totals.size(), dead->totals.size());
  now_ += 3600 * kSecond;
  EXPECT_EQ(Find(*Tick(), ::getpid()), nullptr);
}

TEST_F(SnapshotBuilderTest, HoldersAreListedBySiteId) {
  const uint32_t row = SetTotals(Layer::kFramework, Kind::kFwBlock, 0, 64);
  const uint32_t frame = region_.AddPythonFrame("/job/a.py", "f", 1);
  wire::SiteRow site = {};
  site.first_frame = frame;
  site.frame_count = 1;
  site.totals_row = static_cast<uint8_t>(row);
  site.allocated_count = 1;
  region_.SetSite(5, site);
  region_.AddLive(wire::Section::kLiveFramework, {0xabc0, 64, 64, 5, 3});
  const auto snapshot = Tick();
  const uint64_t id = Find(*snapshot, ::getpid())->sites->front()->info->id;
  const auto blocks = builder_->Holders(agents_.get(), ::getpid(), id);
  ASSERT_TRUE(blocks.ok()) << blocks.error().ToString();
  ASSERT_EQ(blocks->size(), 1u);
  EXPECT_EQ(blocks->front().address, 0xabc0u);
  EXPECT_FALSE(builder_->Holders(agents_.get(), ::getpid(), id + 1).ok());
  EXPECT_FALSE(builder_->Holders(agents_.get(), 1, id).ok());
}

// A process that nobody injected: the probes alone count what it holds.
class ProbedProcessTest : public SnapshotBuilderTest {
 protected:
  ProbedProcessTest() {
    procfs::FoundProcess found;
    found.pid = pid_;
    found.start_time_ticks = 77;
    found.comm = "python3";
    found.maps_cuda = true;
    found.variables = {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"TORCHELASTIC_RUN_ID", "llama"}};
    scan_.processes.push_back(found);
    bpf_.emplace();
    BpfProcess& process = bpf_->processes.emplace_back();
    process.pid = pid_;
    process.start_time_ticks = 77;
    process.mode = BpfMode::kLedger;
    process.state = BpfAttachState::kAttached;
    process.totals.emplace_back().memory_class = MemoryClass::kDevice;
    for (uint64_t offset : {0x1000u, 0x2000u}) {
      auto stack = std::make_shared<BpfStack>();
      stack->frames.resize(1);
      stack->frames[0].module = "/opt/job/kernels.so";
      stack->frames[0].offset = offset;
      BpfSite& site = process.sites.emplace_back();
      site.memory_class = MemoryClass::kDevice;
      site.stack = stack;
    }
  }

  // Sixty-four blocks that come and go at the first site, one more a second at the second.
  void Live(uint64_t second, bool leaks) {
    BpfProcess& process = bpf_->processes[0];
    process.sites[0].live_bytes = (64 - second % 3) * kMiB;
    process.sites[1].live_bytes = leaks ? second * 4 * kMiB : 4 * kMiB;
    process.totals[0].live_bytes = process.sites[0].live_bytes + process.sites[1].live_bytes;
  }

  const pid_t pid_ = ::getppid();
};

TEST_F(ProbedProcessTest, ALeakIsFoundWithItsRankAndTheSiteThatGrows) {
  std::shared_ptr<NodeSnapshot> snapshot;
  const detect::Verdict* leak = nullptr;
  for (uint64_t second = 1; second < 600 && leak == nullptr; ++second) {
    Live(second, true);
    snapshot = Tick();
    const ProcessSnapshot* process = Find(*snapshot, pid_);
    ASSERT_NE(process, nullptr);
    EXPECT_TRUE(process->observed) << process->not_observed_reason;
    for (const detect::Verdict& verdict : process->verdicts) {
      if (verdict.state == detect::VerdictState::kConfirmed) leak = &verdict;
    }
  }
  ASSERT_NE(leak, nullptr);
  EXPECT_EQ(leak->memory_class, MemoryClass::kDevice);
  EXPECT_EQ(leak->ranks, std::vector<int32_t>{3});
  EXPECT_TRUE(detect::IsLeak(leak->cause));
  EXPECT_NEAR(leak->slope.per_unit, 4 * kMiB, kMiB);
  const ProcessSnapshot* process = Find(*snapshot, pid_);
  ASSERT_EQ(process->sites->size(), 2u);
  ASSERT_TRUE(leak->site.has_value());
  EXPECT_EQ(leak->site->site_id, (*process->sites)[1]->info->id);
  EXPECT_EQ((*process->sites)[1]->info->frames[0].function, "kernels.so+0x2000");
}

TEST_F(ProbedProcessTest, WhatComesAndGoesIsNoLeak) {
  for (uint64_t second = 1; second < 400; ++second) {
    Live(second, false);
    const auto snapshot = Tick();
    for (const detect::Verdict& verdict : Find(*snapshot, pid_)->verdicts) {
      EXPECT_NE(verdict.state, detect::VerdictState::kConfirmed) << second;
    }
  }
}

TEST_F(ProbedProcessTest, WithoutProbesItIsARowThatSaysWhyNobodySeesIt) {
  bpf_.reset();
  const auto snapshot = Tick();
  const ProcessSnapshot* process = Find(*snapshot, pid_);
  ASSERT_NE(process, nullptr);
  EXPECT_FALSE(process->observed);
  EXPECT_EQ(process->not_observed_reason,
            "uses CUDA, but no agent: start it with `tidemark run` or CUDA_INJECTION64_PATH");
}

}  // namespace
}  // namespace tidemark
