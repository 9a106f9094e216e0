// Writes a region as an agent would, in the calling process: for tests, benchmarks and fuzz seeds,
// which need a region whose truth they know, or one that lies on purpose.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "wire/handshake.h"
#include "wire/region.h"

namespace tidemark {

struct FakeRegionOptions {
  uint64_t sites = 4096;
  uint64_t frames = 65536;
  uint64_t string_bytes = 1 << 20;
  uint64_t steps = 1024;
  uint64_t live_blocks = 4096;
  bool seal = true;
  uint64_t agent_id = 77;
  std::vector<std::pair<std::string, std::string>> environment = {};
};

class FakeRegion {
 public:
  explicit FakeRegion(FakeRegionOptions options = {});
  ~FakeRegion();
  FakeRegion(const FakeRegion&) = delete;
  FakeRegion& operator=(const FakeRegion&) = delete;

  int fd() const { return fd_.get(); }
  UniqueFd DuplicateFd() const;
  wire::Hello Hello() const;
  wire::Header& header() { return *reinterpret_cast<wire::Header*>(map_); }
  uint64_t bytes() const { return bytes_; }
  char* data() { return map_; }

  // Row `index` of a section, to be changed between Begin and End of its seq.
  template <typename Row>
  Row& At(wire::Section section, uint64_t index) {
    const wire::SectionEntry& entry = Entry(section);
    return *reinterpret_cast<Row*>(map_ + entry.offset + index * entry.row_bytes);
  }
  wire::SectionEntry& Entry(wire::Section section);

  uint32_t AddString(std::string_view text);
  // A Python frame; returns its index.
  uint32_t AddPythonFrame(std::string_view file, std::string_view function, uint32_t line);
  uint32_t AddModule(std::string_view path, uint64_t base);
  uint32_t AddNativeFrame(uint32_t module, uint32_t offset);

  // Adds a totals row, or sets it where (layer, kind, device) is there already; returns its index.
  uint32_t SetTotals(const wire::TotalsRow& row);
  uint32_t SetPeakGroup(const wire::PeakGroupRow& row);
  void SetAllocator(int16_t device, uint64_t allocated, uint64_t reserved);
  void SetFeature(wire::Feature feature, wire::FeatureState state, std::string_view reason);
  // Adds or replaces a site and marks its block dirty.
  void SetSite(uint32_t index, wire::SiteRow row);
  void AddStep(wire::StepRow row);  // its step is set to the next one
  void AddEvent(wire::EventRow row);
  uint32_t AddPhase(std::string_view name, wire::PhaseRow row);
  void AddLive(wire::Section table, const wire::LiveRow& row);

  // What an agent does to die in peace.
  void SetState(wire::AgentState state) { header().state = static_cast<uint32_t>(state); }

 private:
  template <typename Row>
  void Write(wire::Section section, uint64_t index, Row row);

  UniqueFd fd_;
  char* map_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace tidemark
