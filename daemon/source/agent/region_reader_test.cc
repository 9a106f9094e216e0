#include "daemon/source/agent/region_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "daemon/source/agent/fake_region.h"

namespace tidemark {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using wire::ReplyCode;
using wire::Section;

std::unique_ptr<RegionReader> OpenAs(const FakeRegion& region, const wire::Hello& hello,
                                     ReplyCode* refusal, std::string* why) {
  return RegionReader::Open(std::make_unique<FdRegionFile>(region.DuplicateFd()), hello, refusal,
                            why);
}

std::unique_ptr<RegionReader> Open(const FakeRegion& region) {
  ReplyCode refusal = ReplyCode::kAccepted;
  std::string why;
  std::unique_ptr<RegionReader> reader = OpenAs(region, region.Hello(), &refusal, &why);
  EXPECT_NE(reader, nullptr) << why;
  return reader;
}

wire::SiteRow SiteOf(uint8_t totals_row, int64_t bytes) {
  wire::SiteRow row = {};
  row.totals_row = totals_row;
  row.live_bytes = bytes;
  row.live_count = 1;
  row.allocated_bytes = static_cast<uint64_t>(bytes);
  row.allocated_count = 1;
  return row;
}

TEST(RegionReaderTest, ReadsWhatTheAgentWroteToTheByte) {
  FakeRegion region;
  wire::TotalsRow totals = {};
  totals.layer = static_cast<uint8_t>(wire::Layer::kDriver);
  totals.live_bytes = 123'456'789;
  totals.allocations = 7;
  region.SetTotals(totals);
  region.SetAllocator(0, 1000, 4096);
  const uint32_t frame = region.AddPythonFrame("/job/train.py", "forward", 42);
  wire::SiteRow site = SiteOf(0, 256 << 20);
  site.first_frame = frame;
  site.frame_count = 1;
  region.SetSite(3, site);
  region.AddStep({});
  region.AddEvent({});
  region.AddPhase("load", {});

  const auto reader = Open(region);
  RegionChanges changes;
  ASSERT_TRUE(reader->Refresh(&changes));
  const RegionCopy& copy = reader->copy();
  ASSERT_EQ(copy.totals.size(), 1u);
  EXPECT_EQ(copy.totals[0].live_bytes, 123'456'789);
  EXPECT_EQ(copy.totals[0].allocations, 7u);
  ASSERT_EQ(copy.allocators.size(), 1u);
  EXPECT_EQ(copy.allocators[0].reserved_bytes, 4096u);
  EXPECT_TRUE(copy.totals_coherent);
  ASSERT_EQ(copy.sites.size(), 4u);
  EXPECT_EQ(copy.sites[3].live_bytes, 256 << 20);
  EXPECT_THAT(changes.sites, ElementsAre(3));
  ASSERT_EQ(copy.frames.size(), 1u);
  EXPECT_EQ(copy.String(copy.frames[0].a), "/job/train.py");
  EXPECT_EQ(copy.String(copy.frames[0].b), "forward");
  ASSERT_EQ(changes.steps.size(), 1u);
  EXPECT_EQ(changes.steps[0].step, 1u);
  EXPECT_EQ(changes.events.size(), 1u);
  EXPECT_EQ(copy.String(copy.phases.at(0).name), "load");
  EXPECT_EQ(changes.torn_rows, 0u);
}

TEST(RegionReaderTest, ATickCopiesOnlyTheSitesThatChanged) {
  FakeRegion region;
  for (uint32_t i = 0; i < 1000; ++i) region.SetSite(i, SiteOf(0, i + 1));
  const auto reader = Open(region);
  RegionChanges first;
  ASSERT_TRUE(reader->Refresh(&first));
  EXPECT_EQ(first.sites.size(), 1000u);

  RegionChanges quiet;
  ASSERT_TRUE(reader->Refresh(&quiet));
  EXPECT_TRUE(quiet.sites.empty());

  region.SetSite(17, SiteOf(0, 5));
  region.SetSite(999, SiteOf(0, 6));
  RegionChanges changes;
  ASSERT_TRUE(reader->Refresh(&changes));
  EXPECT_THAT(changes.sites, ElementsAre(17, 999));
  EXPECT_EQ(reader->copy().sites[999].live_bytes, 6);
}

TEST(RegionReaderTest, NewSitesInAnOldBlockAreSeenEvenIfTheirBlockIsNotDirty) {
  FakeRegion region;
  region.SetSite(0, SiteOf(0, 1));
  const auto reader = Open(region);
  RegionChanges changes;
  ASSERT_TRUE(reader->Refresh(&changes));
  // An agent publishes a new row before it books the first bytes to it.
  const uint64_t dirty = region.At<uint64_t>(Section::kSiteDirty, 0);
  const uint64_t seq = region.header().change_seq;
  region.SetSite(1, SiteOf(0, 2));
  region.At<uint64_t>(Section::kSiteDirty, 0) = dirty;
  region.header().change_seq = seq;
  changes = {};
  ASSERT_TRUE(reader->Refresh(&changes));
  EXPECT_THAT(changes.sites, ElementsAre(1));
}

TEST(RegionReaderTest, ARowUnderWritingKeepsItsLastGoodCopyAndIsCounted) {
  FakeRegion region;
  wire::TotalsRow totals = {};
  totals.live_bytes = 5;
  region.SetTotals(totals);
  region.SetSite(0, SiteOf(0, 5));
  const auto reader = Open(region);
  RegionChanges changes;
  ASSERT_TRUE(reader->Refresh(&changes));

  // The writer was killed in the middle of a change.
  region.SetSite(0, SiteOf(0, 9));
  region.At<wire::TotalsRow>(Section::kTotals, 0).seq |= 1;
  region.At<wire::TotalsRow>(Section::kTotals, 0).live_bytes = 6;
  region.At<wire::SiteRow>(Section::kSites, 0).seq |= 1;
  changes = {};
  ASSERT_TRUE(reader->Refresh(&changes));
  EXPECT_EQ(reader->copy().totals[0].live_bytes, 5);
  EXPECT_EQ(reader->copy().sites[0].live_bytes, 5);
  EXPECT_EQ(changes.torn_rows, 2u);
  EXPECT_TRUE(changes.sites.empty());

  // Once it settles, it is read although its block did not get dirty again.
  region.At<wire::SiteRow>(Section::kSites, 0).seq += 1;
  changes = {};
  ASSERT_TRUE(reader->Refresh(&changes));
  EXPECT_EQ(reader->copy().sites[0].live_bytes, 9);
}

TEST(RegionReaderTest, NoRowIsEverSeenHalfWritten) {
  FakeRegion region;
  std::atomic<bool> stop = false;
  region.SetTotals({});
  region.SetSite(0, SiteOf(0, 0));
  const auto reader = Open(region);
  // live and allocated always move together; a torn row would show them apart.
  std::thread writer([&] {
    for (int64_t i = 1; !stop; ++i) {
      wire::TotalsRow row = {};
      row.live_bytes = i;
      row.unknown_frees = static_cast<uint64_t>(i);
      region.SetTotals(row);
      wire::SiteRow site = SiteOf(0, i);
      site.cohort_bytes[wire::kCohorts - 1] = i;
      region.SetSite(0, site);
    }
  });
  for (int i = 0; i < 3000; ++i) {
    RegionChanges changes;
    ASSERT_TRUE(reader->Refresh(&changes));
    const wire::TotalsRow& row = reader->copy().totals[0];
    ASSERT_EQ(row.live_bytes, static_cast<int64_t>(row.unknown_frees));
    const wire::SiteRow& site = reader->copy().sites[0];
    ASSERT_EQ(site.live_bytes, site.cohort_bytes[wire::kCohorts - 1]);
  }
  stop = true;
  writer.join();
}

TEST(RegionReaderTest, StepsAndEventsComeOnceAndInOrder) {
  FakeRegion region({.steps = 16});
  for (int i = 0; i < 5; ++i) region.AddStep({});
  const auto reader = Open(region);
  RegionChanges changes;
  ASSERT_TRUE(reader->Refresh(&changes));
  ASSERT_EQ(changes.steps.size(), 5u);
  for (int i = 0; i < 3; ++i) region.AddStep({});
  changes = {};
  ASSERT_TRUE(reader->Refresh(&changes));
  ASSERT_EQ(changes.steps.size(), 3u);
  EXPECT_EQ(changes.steps[0].step, 6u);
  EXPECT_EQ(changes.steps[2].step, 8u);
  EXPECT_EQ(changes.steps_missed, 0u);
}

TEST(RegionReaderTest, StepsThatTheRingLostAreCounted) {
  FakeRegion region({.steps = 16});
  const auto reader = Open(region);
  for (int i = 0; i < 40; ++i) region.AddStep({});
  RegionChanges changes;
  ASSERT_TRUE(reader->Refresh(&changes));
  ASSERT_EQ(changes.steps.size(), 16u);
  EXPECT_EQ(changes.steps.back().step, 40u);
  EXPECT_EQ(changes.steps_missed, 24u);
}

TEST(RegionReaderTest, ADaemonThatStartsLateOwesOnlyWhatTheRingStillHas) {
  FakeRegion region({.steps = 16});
  for (int i = 0; i < 40; ++i) region.AddStep({});
  const auto reader = Open(region);
  RegionChanges changes;
  ASSERT_TRUE(reader->Refresh(&changes));
  EXPECT_EQ(changes.steps.size(), 16u);
  EXPECT_EQ(changes.steps_missed, 0u);
}

TEST(RegionReaderTest, EnvironmentIsReadByWholeNames) {
  FakeRegion region({.environment = {{"LOCAL_RANK", "3"}, {"RANK", "11"}, {"EMPTY", ""}}});
  const auto reader = Open(region);
  EXPECT_EQ(reader->copy().Environment("RANK"), "11");
  EXPECT_EQ(reader->copy().Environment("LOCAL_RANK"), "3");
  EXPECT_EQ(reader->copy().Environment("ANK"), std::nullopt);
}

TEST(RegionReaderTest, LiveBlocksOfASiteAreListedOldestFirst) {
  FakeRegion region;
  region.AddLive(Section::kLiveFramework, {0x2000, 64, 64, 7, 9});
  region.AddLive(Section::kLiveFramework, {1, 64, 64, 7, 1});  // erased
  region.AddLive(Section::kLiveFramework, {0x3000, 64, 64, 8, 1});
  region.AddLive(Section::kLiveDriver, {0x1000, 32, 32, 7, 2});
  const auto reader = Open(region);
  RegionChanges changes;
  ASSERT_TRUE(reader->Refresh(&changes));
  const std::vector<wire::LiveRow> blocks = reader->LiveBlocks({7}, 10);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].address, 0x1000u);
  EXPECT_EQ(blocks[1].address, 0x2000u);
  EXPECT_EQ(reader->LiveBlocks({7}, 1).size(), 1u);
}

// An older agent knows fewer fields and sections: what it has is taken, the rest is zero.
TEST(RegionReaderTest, ShorterRowsAndMissingSectionsOfOlderAgentsAreRead) {
  FakeRegion region;
  wire::TotalsRow totals = {};
  totals.live_bytes = 77;
  totals.unknown_frees = 5;
  region.SetTotals(totals);
  region.Entry(Section::kTotals).row_bytes = 24;  // seq to peak_bytes
  region.Entry(Section::kPhases).id = 31;         // a section that nobody knows
  const auto reader = Open(region);
  RegionChanges changes;
  ASSERT_TRUE(reader->Refresh(&changes));
  EXPECT_EQ(reader->copy().totals[0].live_bytes, 77);
  EXPECT_EQ(reader->copy().totals[0].unknown_frees, 0u);
  EXPECT_TRUE(reader->copy().phases.empty());
}

TEST(RegionReaderTest, HeadersThatLieAreRefusedWithTheirReason) {
  struct Lie {
    const char* name;
    ReplyCode refusal;
    std::function<void(FakeRegion&)> tell;
  };
  const Lie lies[] = {
      {"magic", ReplyCode::kRefusedMagic, [](FakeRegion& r) { r.header().magic ^= 1; }},
      {"newer ABI", ReplyCode::kRefusedNewerAbi,
       [](FakeRegion& r) { r.header().abi = wire::kRegionAbi + 1; }},
      {"no ABI", ReplyCode::kRefusedHeader, [](FakeRegion& r) { r.header().abi = 0; }},
      {"absurd size", ReplyCode::kRefusedSize,
       [](FakeRegion& r) { r.header().region_bytes = uint64_t{1} << 60; }},
      {"header beyond region", ReplyCode::kRefusedHeader,
       [](FakeRegion& r) { r.header().header_bytes = UINT32_MAX; }},
      {"short header", ReplyCode::kRefusedHeader,
       [](FakeRegion& r) { r.header().header_bytes = 8; }},
      {"too many sections", ReplyCode::kRefusedHeader,
       [](FakeRegion& r) { r.header().section_count = wire::kMaxSections + 1; }},
      {"empty rows", ReplyCode::kRefusedHeader,
       [](FakeRegion& r) { r.Entry(Section::kSites).row_bytes = 0; }},
      {"tiny rows", ReplyCode::kRefusedHeader,
       [](FakeRegion& r) { r.Entry(Section::kSites).row_bytes = 4; }},
      {"huge rows", ReplyCode::kRefusedHeader,
       [](FakeRegion& r) { r.Entry(Section::kSites).row_bytes = 1 << 30; }},
      {"capacity that overflows", ReplyCode::kRefusedHeader,
       [](FakeRegion& r) { r.Entry(Section::kSites).capacity = UINT64_MAX / 280 + 2; }},
      {"offset beyond the end", ReplyCode::kRefusedHeader,
       [](FakeRegion& r) { r.Entry(Section::kSites).offset = r.bytes() + 1; }},
      {"offset that overflows", ReplyCode::kRefusedHeader,
       [](FakeRegion& r) { r.Entry(Section::kSites).offset = UINT64_MAX - 8; }},
      {"section inside the header", ReplyCode::kRefusedHeader,
       [](FakeRegion& r) { r.Entry(Section::kSites).offset = 0; }},
      {"section twice", ReplyCode::kRefusedHeader,
       [](FakeRegion& r) {
         r.Entry(Section::kFrames).id = static_cast<uint32_t>(Section::kSites);
       }},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.name);
    FakeRegion region;
    const wire::Hello honest = region.Hello();
    lie.tell(region);
    ReplyCode refusal = ReplyCode::kAccepted;
    std::string why;
    wire::Hello hello = region.Hello();
    if (lie.refusal == ReplyCode::kRefusedSize) hello.region_bytes = honest.region_bytes;
    EXPECT_EQ(OpenAs(region, hello, &refusal, &why), nullptr);
    EXPECT_EQ(refusal, lie.refusal) << why;
    EXPECT_FALSE(why.empty());
  }
}

TEST(RegionReaderTest, AnotherAgentsRegionIsRefused) {
  FakeRegion region;
  wire::Hello hello = region.Hello();
  hello.agent_id += 1;
  ReplyCode refusal = ReplyCode::kAccepted;
  std::string why;
  EXPECT_EQ(OpenAs(region, hello, &refusal, &why), nullptr);
  EXPECT_EQ(refusal, ReplyCode::kRefusedHeader);
  EXPECT_THAT(why, HasSubstr("another agent"));
}

TEST(RegionReaderTest, ARegionWhoseShapeChangesAfterwardsIsLetGo) {
  for (const auto& change : std::vector<std::function<void(FakeRegion&)>>{
           [](FakeRegion& r) { r.header().magic = 0; },
           [](FakeRegion& r) { r.header().agent_id += 1; },
           [](FakeRegion& r) { r.header().section_count += 1; },
           [](FakeRegion& r) { r.Entry(Section::kSites).offset += 64; },
           [](FakeRegion& r) { r.Entry(Section::kSites).capacity = UINT64_MAX; }}) {
    FakeRegion region;
    const auto reader = Open(region);
    RegionChanges changes;
    ASSERT_TRUE(reader->Refresh(&changes));
    change(region);
    EXPECT_FALSE(reader->Refresh(&changes));
  }
}

// What may change at any time is counts of used rows and the rows themselves.
TEST(RegionReaderTest, AbsurdCountsOfUsedRowsReadNothingOutside) {
  FakeRegion region;
  region.SetSite(0, SiteOf(0, 1));
  const auto reader = Open(region);
  for (uint32_t i = 0; i < region.header().section_count; ++i) {
    region.header().sections[i].used = UINT64_MAX;
  }
  region.header().current_step = UINT64_MAX - 1;
  region.header().environment_bytes = UINT32_MAX;
  RegionChanges changes;
  ASSERT_TRUE(reader->Refresh(&changes));
  EXPECT_EQ(reader->copy().sites.size(), region.Entry(Section::kSites).capacity);
  EXPECT_EQ(reader->copy().Environment("RANK"), std::nullopt);
  for (uint32_t offset : {0u, 1u, UINT32_MAX}) (void)reader->copy().String(offset);
}

TEST(RegionReaderTest, ValuesBeyondBeliefAreBoundedAndCounted) {
  FakeRegion region;
  wire::TotalsRow totals = {};
  totals.live_bytes = INT64_MAX;
  totals.peak_bytes = INT64_MIN;
  region.SetTotals(totals);
  region.SetSite(0, SiteOf(0, INT64_MAX));
  region.SetAllocator(0, UINT64_MAX, 0);
  const auto reader = Open(region);
  RegionChanges changes;
  ASSERT_TRUE(reader->Refresh(&changes));
  EXPECT_EQ(reader->copy().totals[0].live_bytes, int64_t{1} << 46);
  EXPECT_EQ(reader->copy().totals[0].peak_bytes, -(int64_t{1} << 46));
  EXPECT_EQ(reader->copy().sites[0].live_bytes, int64_t{1} << 46);
  EXPECT_GE(reader->copy().absurd_values, 4u);
}

TEST(RegionReaderTest, AFileThatIsCutShortIsLetGo) {
  FakeRegion region({.seal = false});
  region.SetTotals({});
  const auto reader = Open(region);
  ASSERT_EQ(::ftruncate(region.fd(), 4096), 0);
  RegionChanges changes;
  EXPECT_FALSE(reader->Refresh(&changes));
}

TEST(RegionReaderTest, AHugePoolIsReadInBoundedParts) {
  FakeRegion region({.string_bytes = 4 << 20});
  const auto reader = Open(region);
  region.Entry(Section::kStrings).used = 4 << 20;
  RegionChanges changes;
  ASSERT_TRUE(reader->Refresh(&changes));
  EXPECT_EQ(reader->copy().strings.size(), kPoolBytesARefresh);
  ASSERT_TRUE(reader->Refresh(&changes));
  EXPECT_EQ(reader->copy().strings.size(), 2 * kPoolBytesARefresh);
}

TEST(RegionReaderTest, ATableThatChangesAllOverIsSweptInParts) {
  FakeRegion region({.sites = 20000});
  for (uint32_t i = 0; i < 20000; ++i) region.SetSite(i, SiteOf(0, 1));
  const auto reader = Open(region);
  size_t seen = 0;
  for (int i = 0; i < 3; ++i) {
    RegionChanges changes;
    ASSERT_TRUE(reader->Refresh(&changes));
    EXPECT_LE(changes.sites.size(), 10000u);
    seen += changes.sites.size();
  }
  EXPECT_EQ(seen, 20000u);
}

}  // namespace
}  // namespace tidemark
