// Reads the region of one agent (wire/region.h) into the daemon's own memory.
//
//   region (hostile, changing)          RegionCopy (ours)
//     header      ---- once, checked ---->  header
//     small rows  ---- twice, by seq ---->  totals, peak_groups, ...
//     sites       -- dirty blocks only -->  sites
//     pools       ---- what is new ------>  frames, strings, modules
//     rings       ---- what is new ------>  steps, events
//
// Everything that is used was copied first and checked afterwards; nothing is looked at twice in
// the region. A row that is being written at each of a few tries keeps its last good copy and is
// counted as torn. What one call reads is bounded, so that a huge region costs several calls, not a
// long one, and what one region may occupy here is bounded by kMax* below.
//
// Owned and used by one thread (the tick thread).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/source/agent/region_file.h"
#include "wire/handshake.h"
#include "wire/region.h"

namespace tidemark {

// How much of a region the daemon takes; an agent's tables stay below by a wide margin.
inline constexpr uint64_t kMaxTotalsRows = 256;
inline constexpr uint64_t kMaxSites = 65536;
inline constexpr uint64_t kMaxFrames = 512 * 1024;
inline constexpr uint64_t kMaxModules = 4096;
inline constexpr uint64_t kMaxStringBytes = 8u << 20;
inline constexpr uint64_t kMaxPhases = 256;
inline constexpr uint64_t kKeptSteps = 1024;
inline constexpr uint64_t kKeptEvents = 256;
inline constexpr uint64_t kPoolBytesARefresh = 1u << 20;

struct RegionCopy {
  wire::Header header = {};
  std::vector<wire::FeatureRow> features;
  std::vector<wire::TotalsRow> totals;
  std::vector<wire::PeakGroupRow> peak_groups;
  std::vector<wire::AllocatorRow> allocators;
  std::vector<wire::EntryPointRow> entry_points;
  std::vector<wire::SiteRow> sites;
  std::vector<wire::Frame> frames;
  std::vector<wire::ModuleRow> modules;
  std::vector<wire::PhaseRow> phases;
  std::string strings;

  // Whether totals and allocators belong to the same moment: no allocator report came between.
  bool totals_coherent = false;
  uint64_t absurd_values = 0;  // read beyond belief and bounded, ever

  // The string at `offset`, or empty when there is none (yet).
  std::string_view String(uint32_t offset) const;
  // The process's variable of the allow-list; nullopt when the agent did not see it.
  std::optional<std::string_view> Environment(std::string_view name) const;
};

// What a refresh found.
struct RegionChanges {
  std::vector<uint32_t> sites;         // rows of RegionCopy::sites that changed or are new
  std::vector<wire::StepRow> steps;    // finished since the last refresh, oldest first
  std::vector<wire::EventRow> events;  // likewise
  uint64_t steps_missed = 0;           // overwritten before they were read
  uint64_t events_missed = 0;
  uint64_t torn_rows = 0;
  bool pools_grew = false;  // frames, strings or modules were added
};

class RegionReader {
 public:
  // Takes a region over after checking its header and section list. `announced` is what the
  // agent's Hello said; on refusal `why` tells a person what was wrong.
  static std::unique_ptr<RegionReader> Open(std::unique_ptr<RegionFile> file,
                                            const wire::Hello& announced, wire::ReplyCode* refusal,
                                            std::string* why);

  // Reads what changed. False when the header does not hold any more (or the file came up short):
  // the copy then stays as it was, and the region must not be read again.
  bool Refresh(RegionChanges* changes);

  // Only totals, peak groups and allocators, for a reading close to the device's own figure.
  bool RefreshTotals();

  // The live blocks booked under the sites of `site_rows`, oldest step first, at most `limit`.
  // Reads the live tables as they are: a block that comes or goes meanwhile may be missed.
  std::vector<wire::LiveRow> LiveBlocks(const std::vector<uint32_t>& site_rows, size_t limit) const;
  // All live blocks of the driver's table.
  std::vector<wire::LiveRow> DriverBlocks() const;

  // Calls `write(offset, data, bytes)` for every used part of the region; stops when it returns
  // false. For the copy on disk.
  template <typename Write>
  bool CopyUsedParts(Write write) const;

  const RegionCopy& copy() const { return copy_; }

 private:
  struct SectionPlace {
    uint64_t offset = 0;
    uint64_t row_bytes = 0;
    uint64_t capacity = 0;
    bool present() const { return capacity > 0; }
  };

  explicit RegionReader(std::unique_ptr<RegionFile> file) : file_(std::move(file)) {}

  bool ReadHeader();
  wire::ReplyCode CheckHeader(const wire::Hello& announced, std::string* why);
  wire::ReplyCode CheckSections(std::string* why);
  uint64_t Used(wire::Section section, uint64_t most) const;
  const SectionPlace& Place(wire::Section section) const {
    return places_[static_cast<size_t>(section)];
  }

  template <typename Row>
  bool ReadRaw(const SectionPlace& place, uint64_t first, uint64_t count, Row* rows) const;
  template <typename Row>
  bool ReadSettled(const SectionPlace& place, uint64_t first, uint64_t count, Row* rows,
                   uint64_t* torn, std::vector<bool>* settled = nullptr);
  template <typename Row>
  bool ReadTable(wire::Section section, uint64_t most, std::vector<Row>* rows, uint64_t* torn);
  template <typename Row>
  bool ReadNewRows(wire::Section section, uint64_t most, std::vector<Row>* rows, bool* grew);
  bool ReadStrings(bool* grew);
  bool ReadSites(RegionChanges* changes);
  bool ReadSiteRows(const SectionPlace& place, uint64_t first, uint64_t count,
                    RegionChanges* changes);
  template <typename Row>
  bool ReadRing(wire::Section section, uint64_t kept, uint64_t first_number, uint64_t* next,
                std::vector<Row>* rows, uint64_t* missed, uint64_t* torn);
  bool ReadTotals(uint64_t* torn);

  template <typename Each>
  void ForEachLive(wire::Section section, Each each) const;

  static constexpr size_t kSectionIds = 32;

  std::unique_ptr<RegionFile> file_;
  RegionCopy copy_;
  std::array<SectionPlace, kSectionIds> places_ = {};
  wire::Header fresh_ = {};      // as just read, before it is believed
  uint64_t sites_seen_seq_ = 0;  // Header::change_seq when the last whole sweep began
  uint64_t sites_seen_ = 0;      // rows it covered
  struct {
    uint64_t next_block = 0;
    uint64_t change_seq = 0;
    uint64_t rows = 0;
    bool all_settled = true;
  } sweep_;
  uint64_t next_step_ = 1;
  uint64_t next_event_ = 0;
  mutable std::vector<char> raw_;
  std::vector<char> second_;
  std::vector<wire::SiteRow> site_rows_;
  std::vector<wire::SiteRow> site_rows_again_;
  struct ChangedRow {
    uint64_t index = 0;  // in site_rows_
    uint32_t seq_again = 0;
  };
  std::vector<ChangedRow> changed_rows_;
};

template <typename Write>
bool RegionReader::CopyUsedParts(Write write) const {
  std::vector<char> buffer;
  auto part = [&](uint64_t offset, uint64_t bytes) {
    while (bytes > 0) {
      buffer.resize(std::min<uint64_t>(bytes, 1u << 20));
      const size_t got = file_->ReadAt(offset, buffer.data(), buffer.size());
      if (got == 0 || !write(offset, buffer.data(), got)) return false;
      offset += got;
      bytes -= got;
    }
    return true;
  };
  if (!part(0, copy_.header.header_bytes)) return false;
  for (uint32_t id = 1; id < kSectionIds; ++id) {
    const SectionPlace& place = places_[id];
    if (!place.present()) continue;
    const uint64_t used = Used(static_cast<wire::Section>(id), place.capacity);
    if (!part(place.offset, used * place.row_bytes)) return false;
  }
  return true;
}

}  // namespace tidemark
