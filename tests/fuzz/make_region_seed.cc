// Writes the seed corpus of region_fuzz: small regions as agents make them. Run when the layout
// changes: make_region_seed tests/fuzz/corpus/region
#include <cstdio>
#include <fstream>
#include <string>

#include "daemon/source/agent/fake_region.h"

namespace {

void Save(const std::string& path, tidemark::FakeRegion& region, const std::string& later) {
  std::ofstream file(path, std::ios::binary);
  file.write(region.data(), static_cast<std::streamsize>(region.bytes()));
  file << later;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tidemark;
  if (argc != 2) return 2;
  const std::string directory = argv[1];
  FakeRegionOptions options;
  options.sites = 32;
  options.frames = 64;
  options.string_bytes = 1024;
  options.steps = 4;
  options.live_blocks = 8;
  options.environment = {{"RANK", "0"}, {"WORLD_SIZE", "2"}};
  {
    FakeRegion region(options);
    Save(directory + "/empty", region, "");
  }
  FakeRegion region(options);
  wire::TotalsRow totals = {};
  totals.layer = static_cast<uint8_t>(wire::Layer::kFramework);
  totals.kind = static_cast<uint8_t>(wire::Kind::kFwBlock);
  totals.live_bytes = 1 << 20;
  const uint32_t row = region.SetTotals(totals);
  totals.layer = static_cast<uint8_t>(wire::Layer::kRecords);
  totals.kind = static_cast<uint8_t>(wire::Kind::kDevice);
  region.SetTotals(totals);
  totals.layer = static_cast<uint8_t>(wire::Layer::kDriver);
  region.SetTotals(totals);
  wire::PeakGroupRow group = {};
  group.peak_epoch = 1;
  region.SetPeakGroup(group);
  region.SetAllocator(0, 1 << 20, 2 << 20);
  region.SetFeature(wire::Feature::kCuptiCallbacks, wire::FeatureState::kOn, "");
  const uint32_t frame = region.AddPythonFrame("/job/train.py", "forward", 3);
  region.AddNativeFrame(region.AddModule("/job/libx.so", 0x1000), 0x20);
  wire::SiteRow site = {};
  site.first_frame = frame;
  site.frame_count = 2;
  site.totals_row = static_cast<uint8_t>(row);
  site.live_bytes = 1 << 20;
  site.live_count = site.allocated_count = 1;
  region.SetSite(0, site);
  region.SetSite(20, site);
  region.AddPhase("load", {});
  for (int i = 0; i < 6; ++i) region.AddStep({});
  wire::EventRow event = {};
  event.type = static_cast<uint16_t>(wire::EventType::kLimitRaised);
  region.AddEvent(event);
  region.AddLive(wire::Section::kLiveFramework, {0x1000, 1 << 20, 1 << 20, 0, 1});
  Save(directory + "/full", region, "");
  Save(directory + "/overwritten", region, "some bytes that arrive while it is read");
  std::printf("%s\n", directory.c_str());
  return 0;
}
