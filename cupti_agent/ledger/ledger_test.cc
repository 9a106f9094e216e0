#include "cupti_agent/ledger/ledger.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <random>
#include <thread>

#include "cupti_agent/ledger/ledger_test_util.h"

namespace tidemark::agent {
namespace {

using testing::HeldAt;
using testing::LedgerTest;
using testing::TextStack;
using wire::Kind;
using wire::Layer;
using wire::Loss;
using wire::Moment;
using wire::PeakSide;
using wire::Section;

constexpr int64_t kMiB = 1 << 20;

TEST_F(LedgerTest, RegionIsSparseSealedAndClosesOnExec) {
  Open(64 << 20);
  const int fd = ledger().region().fd();
  EXPECT_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | 0x10 | F_SEAL_SEAL |
                                        (fcntl(fd, F_GET_SEALS) & 0x20 /* EXEC, by NOEXEC_SEAL */));
  EXPECT_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_NE(ftruncate(fd, 4096), 0);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_LT(ledger().region().TouchedBytes(), 256u << 10);
}

TEST_F(LedgerTest, SectionsLieInsideTheRegionAndDoNotOverlap) {
  for (uint64_t bytes :
       {kMinRegionBytes, 1ul << 20, 5ul << 20, wire::kDefaultRegionBytes, wire::kMaxRegionBytes}) {
    const RegionLayout layout = LayOut(bytes);
    EXPECT_LE(layout.used_bytes, bytes);
    std::map<uint64_t, uint64_t> ranges;
    for (const wire::SectionEntry& s : layout.sections) {
      EXPECT_GE(s.offset, sizeof(wire::Header));
      EXPECT_GT(s.capacity, 0u);
      ranges[s.offset] = s.offset + s.row_bytes * s.capacity;
    }
    uint64_t end = 0;
    for (const auto& [from, to] : ranges) {
      EXPECT_GE(from, end);
      end = to;
    }
    EXPECT_GT(layout[Section::kSites].capacity, kMaxTotalsRows);
    EXPECT_EQ(layout[Section::kSites].capacity,
              layout[Section::kSiteDirty].capacity * wire::kSitesPerDirtyBlock);
  }
}

TEST_F(LedgerTest, DefaultRegionHoldsHundredsOfThousandsOfBlocks) {
  const RegionLayout layout = LayOut(wire::kDefaultRegionBytes);
  EXPECT_GT(layout[Section::kLiveFramework].capacity, 600'000u);
  EXPECT_GT(layout[Section::kSites].capacity, 30'000u);
  EXPECT_GT(layout[Section::kSteps].capacity, 8'000u);
}

TEST_F(LedgerTest, BlocksAddUpToTheByte) {
  Open();
  const TextStack stack{{"train.py:12 forward", "train.py:40 main"}};
  Allocate(0x1000, 512, stack);
  Allocate(0x2000, 1024, stack);
  Free(0x1000, 512);
  const wire::TotalsRow* row = Totals(Layer::kFramework, Kind::kFwBlock, 0);
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->live_bytes, 1024);
  EXPECT_EQ(row->peak_bytes, 1536);
  EXPECT_EQ(row->allocated_bytes, 1536u);
  EXPECT_EQ(row->freed_bytes, 512u);
  EXPECT_EQ(row->allocations, 2u);
  EXPECT_EQ(row->frees, 1u);
  const wire::SiteRow* site = Site("train.py:12 forward");
  ASSERT_NE(site, nullptr);
  EXPECT_EQ(site->live_bytes, 1024);
  EXPECT_EQ(site->live_count, 1);
  EXPECT_EQ(site->allocated_count, 2u);
  EXPECT_EQ(site->min_block_bytes, 512u);
  EXPECT_EQ(site->max_block_bytes, 1024u);
  EXPECT_EQ(site->frame_count, 2);
  EXPECT_EQ(FrameText(Rows<wire::Frame>(Section::kFrames)[site->first_frame + 1]),
            "train.py:40 main");
}

TEST_F(LedgerTest, EqualStacksOfDifferentTotalsAreDifferentSites) {
  Open();
  const TextStack stack{{"a.py:1 f"}};
  const StackView view = stack.View();
  ledger().FrameworkAllocated({.address = 16, .bytes = 100, .device = 0}, 100, &view);
  ledger().FrameworkAllocated({.address = 32, .bytes = 10, .device = 1}, 10, &view);
  ledger().HostTensorAllocated(16, 1, 1, &view);
  EXPECT_EQ(Used(Section::kSites), kMaxTotalsRows + 3u);
}

TEST_F(LedgerTest, AllocatorsOwnTotalsAreKeptBesideOurs) {
  Open();
  ledger().FrameworkAllocated({0x1000, 512, 2, 5000, 20000}, 0, nullptr);
  ledger().FrameworkFreed({0x1000, 512, 2, 4488, 16000});
  const auto& row = Rows<wire::AllocatorRow>(Section::kAllocators)[2];
  EXPECT_EQ(row.device, 2);
  EXPECT_EQ(row.allocated_bytes, 4488u);
  EXPECT_EQ(row.peak_allocated_bytes, 5000u);
  EXPECT_EQ(row.reserved_bytes, 16000u);
  EXPECT_EQ(row.peak_reserved_bytes, 20000u);
  ledger().OutOfMemory(2, 1 << 30, 4488, 16000);
  EXPECT_EQ(row.out_of_memory_reports, 1u);
  const auto& event = Rows<wire::EventRow>(Section::kEvents)[0];
  EXPECT_EQ(event.type, static_cast<uint16_t>(wire::EventType::kOutOfMemory));
  EXPECT_EQ(event.bytes, 1u << 30);
}

TEST_F(LedgerTest, FreeOfAnUnknownAddressIsCountedAndNeverSubtracted) {
  Open();
  Free(0xdead000, 4096);
  ledger().HostTensorFreed(0xbeef);
  EXPECT_EQ(Totals(Layer::kFramework, Kind::kFwBlock, 0)->live_bytes, 0);
  EXPECT_EQ(Totals(Layer::kFramework, Kind::kFwBlock, 0)->unknown_frees, 1u);
  EXPECT_EQ(Totals(Layer::kHostFramework, Kind::kCpuTensor, -1)->unknown_frees, 1u);
  EXPECT_EQ(Losses(Loss::kUnknownFree), 2u);
}

TEST_F(LedgerTest, CompositionAtThePeakEqualsTheTruthBetweenTicks) {
  Open();
  const TextStack a{{"m.py:1 a"}}, b{{"m.py:2 b"}}, c{{"m.py:3 c"}};
  Allocate(1 << 12, 10 * kMiB, a);
  Allocate(2 << 12, 20 * kMiB, b);
  Allocate(3 << 12, 5 * kMiB, a);  // the peak: a 15, b 20
  Free(1 << 12, 10 * kMiB);
  Allocate(4 << 12, 1 * kMiB, c);
  Free(2 << 12, 20 * kMiB);
  Allocate(5 << 12, 2 * kMiB, b);
  const wire::PeakGroupRow* group = Group(PeakSide::kFramework, 0);
  ASSERT_EQ(group->peak_bytes, 35 * kMiB);
  EXPECT_EQ(HeldAt(*Site("m.py:1 a"), Moment::kPeak, group->peak_epoch), 15 * kMiB);
  EXPECT_EQ(HeldAt(*Site("m.py:2 b"), Moment::kPeak, group->peak_epoch), 20 * kMiB);
  EXPECT_EQ(HeldAt(*Site("m.py:3 c"), Moment::kPeak, group->peak_epoch), 0);
}

TEST_F(LedgerTest, CompositionAtPeakLoadAndStepEndEqualsACopyTakenThen) {
  Open();
  std::mt19937 random(7);
  constexpr int kSites = 12;
  std::vector<TextStack> stacks;
  for (int i = 0; i < kSites; ++i) stacks.push_back({{"s.py:" + std::to_string(i) + " f"}});
  std::map<int, int64_t> live, at_peak, at_load, at_step_end;
  std::map<uint64_t, std::pair<int, int64_t>> blocks;
  int64_t total = 0, peak = 0;
  uint64_t next = 0x1000;
  for (int op = 0; op < 20000; ++op) {
    if (blocks.empty() || random() % 100 < 51) {
      const int site = static_cast<int>(random() % kSites);
      const int64_t bytes = 512 * static_cast<int64_t>(1 + random() % 100);
      Allocate(next, static_cast<uint64_t>(bytes), stacks[site]);
      blocks[next] = {site, bytes};
      next += 64;
      live[site] += bytes;
      total += bytes;
      if (total > peak) {
        peak = total;
        at_peak = live;
      }
    } else {
      auto it = blocks.begin();
      std::advance(it, random() % std::min<size_t>(blocks.size(), 50));
      Free(it->first, static_cast<uint64_t>(it->second.second));
      live[it->second.first] -= it->second.second;
      total -= it->second.second;
      blocks.erase(it);
    }
    if (op == 5000) {
      ledger().BackwardBegan();
      at_load = live;
    }
    if (op % 700 == 699) {
      ledger().StepBoundary();
      at_step_end = live;
    }
  }
  const wire::PeakGroupRow* group = Group(PeakSide::kFramework, 0);
  EXPECT_EQ(group->peak_bytes, peak);
  EXPECT_EQ(group->live_bytes, total);
  for (int i = 0; i < kSites; ++i) {
    const wire::SiteRow* site = Site("s.py:" + std::to_string(i) + " f");
    ASSERT_NE(site, nullptr);
    EXPECT_EQ(site->live_bytes, live[i]);
    EXPECT_EQ(HeldAt(*site, Moment::kPeak, group->peak_epoch), at_peak[i]);
    EXPECT_EQ(HeldAt(*site, Moment::kLoad, header().moment_epoch[1]), at_load[i]);
    EXPECT_EQ(HeldAt(*site, Moment::kStepEnd, header().moment_epoch[2]), at_step_end[i]);
    int64_t cohorts = 0;
    for (int64_t bytes : site->cohort_bytes) cohorts += bytes;
    EXPECT_EQ(cohorts, site->live_bytes);
  }
}

TEST_F(LedgerTest, CohortsTellTheBirthStepOfWhatIsLiveAndDoubleInWidth) {
  Open();
  const TextStack leak{{"leak.py:1 f"}};
  constexpr uint64_t kSteps = 100;
  for (uint64_t step = 0; step < kSteps; ++step) {
    Allocate(0x1000 + step * 16, 1000, leak);
    if (step >= 50) Free(0x1000 + (step - 50) * 16, 1000);
    ledger().StepBoundary();
  }
  const wire::SiteRow* site = Site("leak.py:1 f");
  EXPECT_EQ(site->cohort_shift, 3);  // 8 steps a cohort: 13 of 16 in use at step 99
  // Live are the blocks of steps 50 to 99: cohort 6 holds 50..55.
  for (uint64_t cohort = 0; cohort < wire::kCohorts; ++cohort) {
    int64_t expected = 0;
    for (uint64_t step = 50; step < kSteps; ++step) {
      if (step >> site->cohort_shift == cohort) expected += 1000;
    }
    EXPECT_EQ(site->cohort_bytes[cohort], expected) << cohort;
  }
}

TEST_F(LedgerTest, StepFreezesFloorPeakAndEnd) {
  Open();
  const TextStack stack{{"a.py:1 f"}};
  Allocate(0x1000, 100, stack);
  ledger().BackwardBegan();
  ledger().OptimizerScopeBegan();
  ledger().StepBoundary();
  Allocate(0x2000, 50, stack);
  Free(0x1000, 100);
  Allocate(0x3000, 20, stack);
  ledger().BackwardBegan();
  ledger().BackwardBegan();
  ledger().StepBoundary();
  ASSERT_EQ(header().current_step, 2u);
  const auto& row = Rows<wire::StepRow>(Section::kSteps)[2];
  EXPECT_EQ(row.step, 2u);
  EXPECT_EQ(row.backward_passes, 2u);
  EXPECT_EQ(row.optimizer_scopes, 0u);
  EXPECT_EQ(row.groups[0].floor_bytes, 50);
  EXPECT_EQ(row.groups[0].peak_bytes, 150);
  EXPECT_EQ(row.groups[0].end_bytes, 70);
  EXPECT_GT(row.anon_bytes, 0);
}

// What the exit frees is no part of the step whose work was the last.
TEST_F(LedgerTest, TheLastStepIsClosedAsItsWorkStood) {
  Open();
  const TextStack stack{{"a.py:1 f"}};
  Allocate(0x1000, 100, stack);
  ledger().BackwardBegan();
  Allocate(0x2000, 50, stack);
  Free(0x2000, 50);
  ledger().OptimizerScopeBegan();
  Free(0x1000, 100);
  const uint32_t epoch = header().moment_epoch[static_cast<uint32_t>(wire::Moment::kStepEnd)];
  ledger().CloseLastStep();
  ASSERT_EQ(header().current_step, 1u);
  const auto& row = Rows<wire::StepRow>(Section::kSteps)[1];
  EXPECT_EQ(row.step, 1u);
  EXPECT_EQ(row.backward_passes, 1u);
  EXPECT_EQ(row.optimizer_scopes, 1u);
  EXPECT_EQ(row.groups[0].floor_bytes, 0);  // the step began before anything was allocated
  EXPECT_EQ(row.groups[0].peak_bytes, 150);
  EXPECT_EQ(row.groups[0].end_bytes, 100);
  const uint64_t phases = Used(Section::kPhases);
  EXPECT_EQ(Rows<wire::PhaseRow>(Section::kPhases)[phases - 1].groups[0].end_bytes, 100);
  // The sites' bytes at the last step are those of the last boundary: of an earlier moment.
  EXPECT_EQ(header().moment_epoch[static_cast<uint32_t>(wire::Moment::kStepEnd)], epoch);
}

TEST_F(LedgerTest, APhaseTheJobNamedGoesOnThroughTheFirstBackwardPass) {
  Open();
  ledger().PhaseBegin("pretrain");
  ledger().BackwardBegan();
  ASSERT_EQ(Used(Section::kPhases), 2u);
  EXPECT_EQ(String(Rows<wire::PhaseRow>(Section::kPhases)[1].name), "pretrain");
  EXPECT_EQ(header().load_ended, 1u);
}

TEST_F(LedgerTest, PhasesBeginWithLoadAndKeepTheirOwnPeaks) {
  Open();
  const TextStack stack{{"a.py:1 f"}};
  Allocate(0x1000, 1000, stack);
  Free(0x1000, 1000);
  Allocate(0x2000, 300, stack);
  ledger().BackwardBegan();  // load ends
  Allocate(0x3000, 200, stack);
  Free(0x3000, 200);
  ledger().PhaseBegin("evaluate");
  ledger().PhaseBegin("evaluate");
  ledger().Refresh(0);
  ASSERT_EQ(Used(Section::kPhases), 3u);
  const auto* phases = Rows<wire::PhaseRow>(Section::kPhases);
  EXPECT_EQ(String(phases[0].name), "load");
  EXPECT_EQ(phases[0].groups[0].before_bytes, 0);
  EXPECT_EQ(phases[0].groups[0].peak_bytes, 1000);
  EXPECT_EQ(phases[0].groups[0].end_bytes, 300);
  EXPECT_NE(phases[0].end_ns, 0u);
  EXPECT_EQ(String(phases[1].name), "train");
  EXPECT_EQ(phases[1].groups[0].before_bytes, 300);
  EXPECT_EQ(phases[1].groups[0].peak_bytes, 500);
  EXPECT_EQ(phases[1].groups[0].end_bytes, 300);
  EXPECT_EQ(String(phases[2].name), "evaluate");
  EXPECT_EQ(phases[2].end_ns, 0u);
}

TEST_F(LedgerTest, FailedFreeIsPutBack) {
  Open();
  const TextStack stack{{"native"}};
  const StackView view = stack.View(wire::kSiteNative);
  ledger().DriverAllocated({.device = 0, .address = 0x5000, .bytes = 700}, 700, &view);
  PendingFree pending;
  ledger().DriverFreeBegan(Space::kAddress, 0x5000, &pending);
  ASSERT_TRUE(pending.found);
  EXPECT_EQ(Totals(Layer::kDriver, Kind::kDevice, 0)->live_bytes, 0);
  ledger().DriverFreeFailed(pending);
  const wire::TotalsRow* row = Totals(Layer::kDriver, Kind::kDevice, 0);
  EXPECT_EQ(row->live_bytes, 700);
  EXPECT_EQ(row->frees, 0u);
  EXPECT_EQ(row->freed_bytes, 0u);
  EXPECT_EQ(row->failed_calls, 1u);
  EXPECT_EQ(Site("native")->live_bytes, 700);
  EXPECT_EQ(Site("native")->freed_bytes, 0u);
  ledger().DriverFreeBegan(Space::kAddress, 0x5000, &pending);
  EXPECT_TRUE(pending.found);
  EXPECT_EQ(row->live_bytes, 0);
}

TEST_F(LedgerTest, AllocationWinsOverAPendingFreeOfItsAddress) {
  Open();
  ledger().DriverAllocated({.device = 0, .address = 0x5000, .bytes = 700}, 700, nullptr);
  PendingFree pending;
  ledger().DriverFreeBegan(Space::kAddress, 0x5000, &pending);
  ledger().DriverAllocated({.device = 0, .address = 0x5000, .bytes = 300}, 300, nullptr);
  EXPECT_EQ(Totals(Layer::kDriver, Kind::kDevice, 0)->live_bytes, 300);
  EXPECT_EQ(Losses(Loss::kAddressCollision), 0u);
  ledger().DriverFreeFailed(pending);
  EXPECT_EQ(Totals(Layer::kDriver, Kind::kDevice, 0)->live_bytes, 300);
  EXPECT_EQ(Losses(Loss::kAddressCollision), 1u);
}

TEST_F(LedgerTest, HandleAndAddressOfTheSameNumberAreTwoThings) {
  Open();
  ledger().DriverAllocated({.device = 0, .address = 0x5000, .bytes = 1}, 1, nullptr);
  ledger().DriverAllocated(
      {.space = Space::kArray, .kind = Kind::kArray, .device = 0, .address = 0x5000, .bytes = 2}, 2,
      nullptr);
  PendingFree pending;
  ledger().DriverFreeBegan(Space::kArray, 0x5000, &pending);
  EXPECT_EQ(pending.row.bytes, 2u);
  EXPECT_EQ(Totals(Layer::kDriver, Kind::kDevice, 0)->live_bytes, 1);
}

TEST_F(LedgerTest, EndOfAContextFreesWhatItOwnedAndNothingElse) {
  Open();
  for (uint64_t i = 0; i < 100; ++i) {
    ledger().DriverAllocated({.device = 0,
                              .owner = static_cast<uint16_t>(i % 2),
                              .address = 0x1000 + i * 256,
                              .bytes = 10 + i},
                             10 + i, nullptr);
  }
  const uint64_t even = 50 * 10 + 2450;
  const uint64_t odd = 50 * 10 + 2500;
  EXPECT_EQ(ledger().DriverOwnerGone(0), even);
  EXPECT_EQ(Totals(Layer::kDriver, Kind::kDevice, 0)->live_bytes, static_cast<int64_t>(odd));
  EXPECT_EQ(ledger().DriverOwnerGone(0), 0u);
}

TEST_F(LedgerTest, PeakGroupOfTheDeviceSumsItsKindsAndLeavesManagedOut) {
  Open();
  ledger().DriverAllocated({.device = 0, .address = 16, .bytes = 1}, 1, nullptr);
  ledger().DriverAllocated({.kind = Kind::kPool, .device = 0, .address = 32, .bytes = 2}, 2,
                           nullptr);
  ledger().DriverAllocated({.kind = Kind::kManaged, .device = 0, .address = 48, .bytes = 4}, 4,
                           nullptr);
  ledger().DriverAllocated({.kind = Kind::kPinned, .device = -1, .address = 64, .bytes = 8}, 8,
                           nullptr);
  ledger().RecordAllocated(Kind::kDevice, 0, 1);
  EXPECT_EQ(Group(PeakSide::kDriverDevice, 0)->live_bytes, 3);
  EXPECT_EQ(Group(PeakSide::kPinned, -1)->live_bytes, 8);
  EXPECT_EQ(Totals(Layer::kRecords, Kind::kDevice, 0)->live_bytes, 1);
  EXPECT_EQ(Used(Section::kPeakGroups), 2u);
}

TEST_F(LedgerTest, FullTableLeavesFrameworkBlocksExactAndOthersAnInterval) {
  Open(kMinRegionBytes);
  const uint64_t room = ledger().region().Capacity(Section::kLiveFramework);
  const uint64_t blocks = room + 500;
  for (uint64_t i = 0; i < blocks; ++i) {
    ledger().FrameworkAllocated({.address = 0x1000 + i * 512, .bytes = 512 + i, .device = 0}, 0,
                                nullptr);
  }
  int64_t live = static_cast<int64_t>(blocks * 512 + blocks * (blocks - 1) / 2);
  const wire::TotalsRow* row = Totals(Layer::kFramework, Kind::kFwBlock, 0);
  EXPECT_EQ(row->live_bytes, live);
  EXPECT_EQ(row->untracked_bytes, 0u);
  EXPECT_EQ(Losses(Loss::kLiveTableFull), 500u);
  for (uint64_t i = 0; i < blocks; i += 2) {
    ledger().FrameworkFreed({.address = 0x1000 + i * 512, .bytes = 512 + i, .device = 0});
    live -= static_cast<int64_t>(512 + i);
  }
  EXPECT_EQ(row->live_bytes, live);

  const uint64_t driver_room = ledger().region().Capacity(Section::kLiveDriver);
  for (uint64_t i = 0; i < driver_room + 3; ++i) {
    ledger().DriverAllocated({.device = 0, .address = 0x1000 + i * 512, .bytes = 100}, 100,
                             nullptr);
  }
  const wire::TotalsRow* driver = Totals(Layer::kDriver, Kind::kDevice, 0);
  EXPECT_EQ(driver->allocated_bytes, (driver_room + 3) * 100);
  EXPECT_EQ(driver->live_bytes, static_cast<int64_t>(driver_room * 100));
  EXPECT_EQ(driver->untracked_bytes, 300u);

  const uint64_t host_room = ledger().region().Capacity(Section::kLiveHost);
  for (uint64_t i = 0; i < host_room + 2; ++i) {
    ledger().HostTensorAllocated(0x1000 + i * 64, 10, 0, nullptr);
  }
  const wire::TotalsRow* host = Totals(Layer::kHostFramework, Kind::kCpuTensor, -1);
  EXPECT_EQ(host->allocated_bytes, (host_room + 2) * 10);
  EXPECT_EQ(host->untracked_bytes, 20u);
}

TEST_F(LedgerTest, FullSiteTableBooksUnderNoStackAndCounts) {
  Open(kMinRegionBytes);
  const uint64_t room = ledger().region().Capacity(Section::kSites) - kMaxTotalsRows;
  for (uint64_t i = 0; i < room + 7; ++i) {
    Allocate(0x1000 + i * 16, 10, {{"f.py:" + std::to_string(i) + " g"}});
  }
  EXPECT_EQ(Used(Section::kSites), ledger().region().Capacity(Section::kSites));
  EXPECT_EQ(Losses(Loss::kSiteTableFull), 7u);
  EXPECT_EQ(Rows<wire::SiteRow>(Section::kSites)[0].live_bytes, 70);
  EXPECT_EQ(Totals(Layer::kFramework, Kind::kFwBlock, 0)->live_bytes,
            static_cast<int64_t>((room + 7) * 10));
}

TEST_F(LedgerTest, FullPoolsOfFramesStringsAndPhasesAreCountedAndHarmNothing) {
  Open(kMinRegionBytes);
  std::vector<std::string> deep(wire::kMaxFrames + 10, "x.py:1 f");
  const uint64_t frames = ledger().region().Capacity(Section::kFrames);
  for (uint64_t i = 0; i * wire::kMaxFrames < frames + wire::kMaxFrames; ++i) {
    deep[0] = "d.py:" + std::to_string(i) + " f";
    Allocate(0x1000 + i * 16, 10, {deep});
  }
  EXPECT_GT(Losses(Loss::kFramePoolFull), 0u);
  EXPECT_GT(Losses(Loss::kStackTruncated), 0u);
  EXPECT_LE(Used(Section::kFrames), frames);
  const wire::SiteRow* site = Site("d.py:0 f");
  EXPECT_EQ(site->frame_count, wire::kMaxFrames);
  EXPECT_NE(site->flags & wire::kSiteTruncated, 0);

  Open(kMinRegionBytes);
  for (uint64_t i = 0; i < 200; ++i) {
    Allocate(0x1000 + i * 16, 10, {{std::string(900, 'p') + std::to_string(i) + ".py:1 f"}});
  }
  EXPECT_GT(Losses(Loss::kStringPoolFull), 0u);
  EXPECT_LE(Used(Section::kStrings), ledger().region().Capacity(Section::kStrings));
  EXPECT_EQ(Totals(Layer::kFramework, Kind::kFwBlock, 0)->live_bytes, 2000);

  Open(kMinRegionBytes);
  const uint64_t phases = ledger().region().Capacity(Section::kPhases);
  for (uint64_t i = 0; i < phases + 5; ++i) ledger().PhaseBegin("p" + std::to_string(i));
  EXPECT_EQ(Used(Section::kPhases), phases);
  EXPECT_EQ(Losses(Loss::kPhasesFull), 6u);  // the first place is taken by load
}

TEST_F(LedgerTest, DevicesBeyondThePeakGroupsStillHaveExactTotals) {
  Open();
  for (int16_t device = 0; device < 12; ++device) {
    ledger().FrameworkAllocated(
        {.address = 0x1000u + static_cast<uint64_t>(device) * 16, .bytes = 5, .device = device}, 0,
        nullptr);
  }
  EXPECT_EQ(Used(Section::kPeakGroups), wire::kMaxPeakGroups);
  EXPECT_EQ(Losses(Loss::kPeakGroupsFull), 4u);
  EXPECT_EQ(Totals(Layer::kFramework, Kind::kFwBlock, 11)->live_bytes, 5);
}

TEST_F(LedgerTest, RowsAreEvenAfterEveryCallAndChangesMarkTheirBlock) {
  Open();
  const uint64_t seen = header().change_seq;
  Allocate(0x1000, 512, {{"a.py:1 f"}});
  const auto* dirty = Rows<uint64_t>(Section::kSiteDirty);
  EXPECT_GT(dirty[kMaxTotalsRows / wire::kSitesPerDirtyBlock], seen);
  EXPECT_EQ(dirty[kMaxTotalsRows / wire::kSitesPerDirtyBlock], header().change_seq);
  EXPECT_EQ(Totals(Layer::kFramework, Kind::kFwBlock, 0)->seq % 2, 0u);
  EXPECT_EQ(Group(PeakSide::kFramework, 0)->seq % 2, 0u);
  EXPECT_EQ(Site("a.py:1 f")->seq % 2, 0u);
}

TEST_F(LedgerTest, ReaderByPreadNeverSeesHalfARow) {
  Open();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t i = 0; !stop; ++i) {
      ledger().FrameworkAllocated({.address = 0x1000, .bytes = 512, .device = 0}, 0, nullptr);
      ledger().FrameworkFreed({.address = 0x1000, .bytes = 512, .device = 0});
    }
  });
  const off_t offset = static_cast<off_t>(ledger().region().Entry(Section::kTotals).offset);
  int whole = 0;
  for (int i = 0; i < 200000 && whole < 2000; ++i) {
    wire::TotalsRow first, second;
    ASSERT_EQ(pread(ledger().region().fd(), &first, sizeof(first), offset),
              static_cast<ssize_t>(sizeof(first)));
    ASSERT_EQ(pread(ledger().region().fd(), &second, sizeof(second), offset),
              static_cast<ssize_t>(sizeof(second)));
    if (first.seq % 2 != 0 || first.seq != second.seq) continue;
    ++whole;
    ASSERT_EQ(static_cast<uint64_t>(first.live_bytes), first.allocated_bytes - first.freed_bytes);
    ASSERT_EQ(first.allocations - first.frees, static_cast<uint64_t>(first.live_bytes) / 512);
  }
  stop = true;
  writer.join();
  EXPECT_GT(whole, 100);
}

TEST_F(LedgerTest, ThreadsAddUpToTheByte) {
  Open(16 << 20, 4096);
  constexpr int kThreads = 4;
  constexpr uint64_t kBlocks = 20000;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const TextStack stack{{"t.py:" + std::to_string(t) + " f"}};
      for (uint64_t i = 0; i < kBlocks; ++i) {
        const uint64_t address = (t + 1) * 0x10000000 + i * 64;
        const uint64_t bytes = 1 + i % 8000;
        const uint64_t estimate = ledger().Sample(bytes);
        const StackView view = stack.View();
        ledger().FrameworkAllocated({.address = address, .bytes = bytes, .device = 0}, estimate,
                                    estimate == 0 ? nullptr : &view);
        if (i % 3 != 0) ledger().FrameworkFreed({.address = address, .bytes = bytes, .device = 0});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int64_t live = 0;
  for (uint64_t i = 0; i < kBlocks; i += 3) live += 1 + static_cast<int64_t>(i % 8000);
  const wire::TotalsRow* row = Totals(Layer::kFramework, Kind::kFwBlock, 0);
  EXPECT_EQ(row->live_bytes, live * kThreads);
  EXPECT_EQ(row->allocations, kThreads * kBlocks);
  EXPECT_EQ(Losses(Loss::kLockTimeout), 0u);
  int64_t in_table = 0;
  for (uint64_t i = 0; i < Used(Section::kLiveFramework); ++i) {
    const auto& live_row = Rows<wire::LiveRow>(Section::kLiveFramework)[i];
    if (live_row.address > 1) in_table += static_cast<int64_t>(live_row.bytes);
  }
  EXPECT_EQ(in_table, row->live_bytes);
}

TEST_F(LedgerTest, FeatureKeepsItsStateAndCutsALongReason) {
  Open();
  ledger().SetFeature(wire::Feature::kCuptiCallbacks, wire::FeatureState::kYielded,
                      std::string(500, 'r'));
  const auto& row = Rows<wire::FeatureRow>(Section::kFeatures)[0];
  EXPECT_EQ(row.state, static_cast<uint8_t>(wire::FeatureState::kYielded));
  EXPECT_EQ(std::string(row.reason), std::string(sizeof(row.reason) - 1, 'r'));
  const uint64_t since = row.since_ns;
  ledger().SetFeature(wire::Feature::kCuptiCallbacks, wire::FeatureState::kYielded,
                      std::string(500, 'r'));
  EXPECT_EQ(row.since_ns, since);
}

TEST_F(LedgerTest, EventRingKeepsTheLatest) {
  Open(kMinRegionBytes);
  const uint64_t room = ledger().region().Capacity(Section::kEvents);
  for (uint64_t i = 0; i < room + 3; ++i) {
    ledger().RecordEvent({.type = wire::EventType::kAllocationFailed,
                          .code = 2,
                          .device = 0,
                          .bytes = i,
                          .text = "text that is longer than the row has room for, by far"});
  }
  EXPECT_EQ(Used(Section::kEvents), room + 3);
  EXPECT_EQ(Rows<wire::EventRow>(Section::kEvents)[2].bytes, room + 2);
  EXPECT_EQ(Rows<wire::EventRow>(Section::kEvents)[3].bytes, 3u);
  EXPECT_EQ(Rows<wire::EventRow>(Section::kEvents)[3].text[39], '\0');
}

}  // namespace
}  // namespace tidemark::agent
