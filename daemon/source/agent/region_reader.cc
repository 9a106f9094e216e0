#include "daemon/source/agent/region_reader.h"

#include <algorithm>
#include <cstring>

namespace tidemark {
namespace {

using wire::ReplyCode;
using wire::Section;

constexpr uint64_t kMaxRowBytes = 4096;
constexpr int kSettleTries = 4;
constexpr uint64_t kSiteRowsARefresh = 8192;
constexpr uint64_t kBlocksARead = 64;
constexpr uint64_t kRowsOfOneCall = 8;  // a call costs about as much as copying as many rows

// The least a row of each section must have to mean anything: a sequence, or the whole of a row
// that has none. 0 = not a section that this reader knows.
uint64_t LeastRowBytes(Section section) {
  switch (section) {
    case Section::kFeatures:
    case Section::kTotals:
    case Section::kPeakGroups:
    case Section::kAllocators:
    case Section::kEntryPoints:
    case Section::kSites:
    case Section::kSteps:
    case Section::kPhases:
    case Section::kEvents:
      return 8;
    case Section::kSiteDirty:
      return sizeof(uint64_t);
    case Section::kFrames:
      return sizeof(wire::Frame);
    case Section::kModules:
      return 8;
    case Section::kStrings:
      return 1;
    case Section::kLiveDriver:
    case Section::kLiveFramework:
    case Section::kLiveHost:
      return 16;
  }
  return 0;
}

// No device or host holds this much. Values beyond are a lie, and sums of them would overflow.
constexpr int64_t kMostBytes = int64_t{1} << 46;

uint64_t Bound(int64_t* value) {
  const int64_t bounded = std::clamp(*value, -kMostBytes, kMostBytes);
  const bool lied = bounded != *value;
  *value = bounded;
  return lied ? 1 : 0;
}

uint64_t Bound(uint64_t* value) {
  const uint64_t bounded = std::min<uint64_t>(*value, kMostBytes);
  const bool lied = bounded != *value;
  *value = bounded;
  return lied ? 1 : 0;
}

// Bounds the values of a row that are added up; returns how many were beyond belief. What has been
// allocated ever may well be huge and is never added up with a sign.
uint64_t Bound(wire::FeatureRow*) { return 0; }
uint64_t Bound(wire::EntryPointRow*) { return 0; }
uint64_t Bound(wire::EventRow*) { return 0; }
uint64_t Bound(wire::TotalsRow* row) { return Bound(&row->live_bytes) + Bound(&row->peak_bytes); }
uint64_t Bound(wire::PeakGroupRow* row) {
  return Bound(&row->live_bytes) + Bound(&row->peak_bytes) + Bound(&row->step_floor_bytes) +
         Bound(&row->step_peak_bytes);
}
uint64_t Bound(wire::AllocatorRow* row) {
  return Bound(&row->allocated_bytes) + Bound(&row->reserved_bytes) +
         Bound(&row->peak_allocated_bytes) + Bound(&row->peak_reserved_bytes);
}
uint64_t Bound(wire::SiteRow* row) {
  uint64_t lies = Bound(&row->live_bytes) + Bound(&row->live_count);
  for (int64_t& bytes : row->moment_bytes) lies += Bound(&bytes);
  for (int64_t& count : row->moment_count) lies += Bound(&count);
  for (int64_t& bytes : row->cohort_bytes) lies += Bound(&bytes);
  return lies;
}
uint64_t Bound(wire::StepRow* row) {
  uint64_t lies = Bound(&row->fw_allocated_bytes) + Bound(&row->fw_reserved_bytes) +
                  Bound(&row->anon_bytes) + Bound(&row->shmem_bytes);
  for (wire::StepGroup& group : row->groups) {
    lies += Bound(&group.floor_bytes) + Bound(&group.peak_bytes) + Bound(&group.end_bytes);
  }
  return lies;
}
uint64_t Bound(wire::PhaseGroup* group) {
  return Bound(&group->before_bytes) + Bound(&group->peak_bytes) + Bound(&group->end_bytes);
}
uint64_t Bound(wire::PhaseRow* row) {
  uint64_t lies = Bound(&row->anon);
  for (wire::PhaseGroup& group : row->groups) lies += Bound(&group);
  return lies;
}

bool IsRing(Section section) { return section == Section::kSteps || section == Section::kEvents; }

}  // namespace

std::string_view RegionCopy::String(uint32_t offset) const {
  uint16_t length = 0;
  if (offset + uint64_t{sizeof(length)} > strings.size()) return {};
  std::memcpy(&length, strings.data() + offset, sizeof(length));
  if (offset + uint64_t{sizeof(length)} + length > strings.size()) return {};
  return std::string_view(strings).substr(offset + sizeof(length), length);
}

std::optional<std::string_view> RegionCopy::Environment(std::string_view name) const {
  const uint32_t bytes = std::min(header.environment_bytes, wire::kEnvironmentBytes);
  std::string_view rest(header.environment, bytes);
  while (!rest.empty()) {
    const size_t end = rest.find('\0');
    const std::string_view entry = rest.substr(0, end);
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name)) {
      return entry.substr(name.size() + 1);
    }
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return std::nullopt;
}

std::unique_ptr<RegionReader> RegionReader::Open(std::unique_ptr<RegionFile> file,
                                                 const wire::Hello& announced, ReplyCode* refusal,
                                                 std::string* why) {
  std::unique_ptr<RegionReader> reader(new RegionReader(std::move(file)));
  if (!reader->ReadHeader()) {
    *refusal = ReplyCode::kRefusedHeader;
    *why = "the region is shorter than its header";
    return nullptr;
  }
  *refusal = reader->CheckHeader(announced, why);
  if (*refusal == ReplyCode::kAccepted) *refusal = reader->CheckSections(why);
  if (*refusal != ReplyCode::kAccepted) return nullptr;
  reader->copy_.header = reader->fresh_;
  // A ring that has wrapped holds only its latest rows; what went before is not missed, it was
  // never owed.
  const wire::Header& header = reader->copy_.header;
  const SectionPlace& steps = reader->Place(Section::kSteps);
  const uint64_t kept_steps = std::min(steps.capacity, kKeptSteps);
  if (header.current_step > kept_steps) reader->next_step_ = header.current_step - kept_steps + 1;
  const uint64_t events = reader->Used(Section::kEvents, UINT64_MAX);
  const uint64_t kept_events = std::min(reader->Place(Section::kEvents).capacity, kKeptEvents);
  if (events > kept_events) reader->next_event_ = events - kept_events;
  return reader;
}

bool RegionReader::ReadHeader() {
  fresh_ = {};
  constexpr size_t kFixed = offsetof(wire::Header, sections);
  const size_t got = file_->ReadAt(0, &fresh_, sizeof(fresh_));
  if (got < kFixed) return false;
  return got >= std::min<uint64_t>(sizeof(fresh_), fresh_.header_bytes);
}

ReplyCode RegionReader::CheckHeader(const wire::Hello& announced, std::string* why) {
  const wire::Header& header = fresh_;
  if (header.magic != wire::kRegionMagic) {
    *why = "wrong magic";
    return ReplyCode::kRefusedMagic;
  }
  if (header.abi > wire::kRegionAbi || header.abi != announced.abi) {
    *why = "ABI " + std::to_string(header.abi) + ", this daemon reads up to " +
           std::to_string(wire::kRegionAbi);
    return header.abi > wire::kRegionAbi ? ReplyCode::kRefusedNewerAbi : ReplyCode::kRefusedHeader;
  }
  if (header.abi == 0 || header.header_bytes < sizeof(wire::Header) ||
      header.header_bytes > header.region_bytes) {
    *why = "header of " + std::to_string(header.header_bytes) + " bytes";
    return ReplyCode::kRefusedHeader;
  }
  if (header.region_bytes != announced.region_bytes ||
      header.region_bytes > wire::kMaxRegionBytes) {
    *why = "region of " + std::to_string(header.region_bytes) + " bytes, announced as " +
           std::to_string(announced.region_bytes);
    return ReplyCode::kRefusedSize;
  }
  if (header.agent_id != announced.agent_id) {
    *why = "the header is another agent's";
    return ReplyCode::kRefusedHeader;
  }
  return ReplyCode::kAccepted;
}

ReplyCode RegionReader::CheckSections(std::string* why) {
  const wire::Header& header = fresh_;
  if (header.section_count > wire::kMaxSections) {
    *why = std::to_string(header.section_count) + " sections";
    return ReplyCode::kRefusedHeader;
  }
  for (uint32_t i = 0; i < header.section_count; ++i) {
    const wire::SectionEntry& entry = header.sections[i];
    const std::string name = "section " + std::to_string(entry.id);
    // Sections of no known number are a later minor addition: left alone, but still bounded.
    const bool known = entry.id < kSectionIds && LeastRowBytes(static_cast<Section>(entry.id)) != 0;
    if (entry.row_bytes == 0 || entry.row_bytes > kMaxRowBytes ||
        (known && entry.row_bytes < LeastRowBytes(static_cast<Section>(entry.id)))) {
      *why = name + " has rows of " + std::to_string(entry.row_bytes) + " bytes";
      return ReplyCode::kRefusedHeader;
    }
    if (entry.offset < header.header_bytes || entry.offset > header.region_bytes ||
        entry.capacity > (header.region_bytes - entry.offset) / entry.row_bytes) {
      *why = name + " does not lie inside the region";
      return ReplyCode::kRefusedHeader;
    }
    if (!known) continue;
    SectionPlace& place = places_[entry.id];
    if (place.present()) {
      *why = name + " is listed twice";
      return ReplyCode::kRefusedHeader;
    }
    place = {entry.offset, entry.row_bytes, entry.capacity};
  }
  return ReplyCode::kAccepted;
}

// Rows in use by the header's word, never more than there is room for.
uint64_t RegionReader::Used(Section section, uint64_t most) const {
  const wire::Header& header = copy_.header;
  const SectionPlace& place = Place(section);
  for (uint32_t i = 0; i < std::min(header.section_count, wire::kMaxSections); ++i) {
    if (header.sections[i].id != static_cast<uint32_t>(section)) continue;
    const uint64_t used = header.sections[i].used;
    if (IsRing(section) && most == UINT64_MAX) return used;
    return std::min({used, place.capacity, most});
  }
  return 0;
}

// Copies rows as they are now; each row is cut or zero-filled to our own size.
template <typename Row>
bool RegionReader::ReadRaw(const SectionPlace& place, uint64_t first, uint64_t count,
                           Row* rows) const {
  if (count == 0) return true;
  const uint64_t offset = place.offset + first * place.row_bytes;
  const uint64_t bytes = count * place.row_bytes;
  if (place.row_bytes == sizeof(Row)) return file_->ReadAt(offset, rows, bytes) == bytes;
  raw_.resize(bytes);
  if (file_->ReadAt(offset, raw_.data(), bytes) != bytes) return false;
  for (uint64_t i = 0; i < count; ++i) {
    rows[i] = Row{};
    std::memcpy(&rows[i], raw_.data() + i * place.row_bytes,
                std::min<uint64_t>(sizeof(Row), place.row_bytes));
  }
  return true;
}

// Copies rows that carry a sequence, so that each is whole (wire/region.h, "Consistency"). A row
// that does not settle keeps what `rows` held before.
template <typename Row>
bool RegionReader::ReadSettled(const SectionPlace& place, uint64_t first, uint64_t count, Row* rows,
                               uint64_t* torn, std::vector<bool>* settled) {
  if (settled != nullptr) settled->assign(count, true);
  if (count == 0) return true;
  std::vector<Row> once(count);
  second_.resize(count * sizeof(Row));
  if (!ReadRaw(place, first, count, once.data())) return false;
  Row* const twice = reinterpret_cast<Row*>(second_.data());
  if (!ReadRaw(place, first, count, twice)) return false;
  for (uint64_t i = 0; i < count; ++i) {
    Row one = once[i];
    Row two = twice[i];
    bool whole = one.seq == two.seq && one.seq % 2 == 0;
    for (int attempt = 1; !whole && attempt < kSettleTries; ++attempt) {
      if (!ReadRaw(place, first + i, 1, &one) || !ReadRaw(place, first + i, 1, &two)) return false;
      whole = one.seq == two.seq && one.seq % 2 == 0;
    }
    if (whole) {
      copy_.absurd_values += Bound(&one);
      rows[i] = one;
    } else {
      ++*torn;
      if (settled != nullptr) (*settled)[i] = false;
    }
  }
  return true;
}

template <typename Row>
bool RegionReader::ReadTable(Section section, uint64_t most, std::vector<Row>* rows,
                             uint64_t* torn) {
  const uint64_t used = Used(section, most);
  if (used > rows->size()) rows->resize(used);
  return ReadSettled(Place(section), 0, rows->size(), rows->data(), torn);
}

// Pools only grow: what was read stays, what is new is added, a bounded part a call.
template <typename Row>
bool RegionReader::ReadNewRows(Section section, uint64_t most, std::vector<Row>* rows, bool* grew) {
  const uint64_t used = Used(section, most);
  const uint64_t have = rows->size();
  if (used <= have) return true;
  const uint64_t count = std::min(used - have, kPoolBytesARefresh / Place(section).row_bytes);
  rows->resize(have + count);
  *grew = true;
  if (ReadRaw(Place(section), have, count, rows->data() + have)) return true;
  rows->resize(have);
  return false;
}

bool RegionReader::ReadStrings(bool* grew) {
  const SectionPlace& place = Place(Section::kStrings);
  if (place.row_bytes > 1) return true;  // not bytes: no strings
  const uint64_t used = Used(Section::kStrings, kMaxStringBytes);
  const uint64_t have = copy_.strings.size();
  if (used <= have) return true;
  const uint64_t count = std::min(used - have, kPoolBytesARefresh);
  copy_.strings.resize(have + count);
  *grew = true;
  if (file_->ReadAt(place.offset + have, copy_.strings.data() + have, count) == count) return true;
  copy_.strings.resize(have);
  return false;
}

// A block is dirty when one of its rows changed: the others are told by their seq and not copied.
// The first look takes many rows at once: a system call costs more than the bytes it brings. The
// second needs no more than the seq of the rows that changed: where they are few, that is less than
// everything once more.
bool RegionReader::ReadSiteRows(const SectionPlace& place, uint64_t first, uint64_t count,
                                RegionChanges* changes) {
  site_rows_.resize(std::max<size_t>(site_rows_.size(), count));
  if (!ReadRaw(place, first, count, site_rows_.data())) return false;
  changed_rows_.clear();
  for (uint64_t i = 0; i < count; ++i) {
    if (site_rows_[i].seq != copy_.sites[first + i].seq) changed_rows_.push_back({i, 0});
  }
  if (changed_rows_.size() * kRowsOfOneCall < count) {
    for (ChangedRow& row : changed_rows_) {
      const uint64_t offset = place.offset + (first + row.index) * place.row_bytes;
      if (file_->ReadAt(offset, &row.seq_again, sizeof(row.seq_again)) != sizeof(row.seq_again)) {
        return false;
      }
    }
  } else if (!changed_rows_.empty()) {
    site_rows_again_.resize(site_rows_.size());
    if (!ReadRaw(place, first, count, site_rows_again_.data())) return false;
    for (ChangedRow& row : changed_rows_) row.seq_again = site_rows_again_[row.index].seq;
  }
  for (const ChangedRow& row : changed_rows_) {
    const uint64_t i = row.index;
    wire::SiteRow& ours = copy_.sites[first + i];
    wire::SiteRow& one = site_rows_[i];
    if (one.seq % 2 != 0 || one.seq != row.seq_again) {
      std::vector<bool> settled;
      if (!ReadSettled(place, first + i, 1, &one, &changes->torn_rows, &settled)) return false;
      if (!settled[0]) {
        sweep_.all_settled = false;
        continue;
      }
    }
    copy_.absurd_values += Bound(&one);
    ours = one;
    changes->sites.push_back(static_cast<uint32_t>(first + i));
  }
  return true;
}

// One sweep looks at every block that is dirty since the sweep before began. A sweep of a table
// that changes all over takes several calls; blocks that change behind its back are the next one's.
bool RegionReader::ReadSites(RegionChanges* changes) {
  const SectionPlace& place = Place(Section::kSites);
  const SectionPlace& dirty_place = Place(Section::kSiteDirty);
  const uint64_t used = Used(Section::kSites, kMaxSites);
  if (used > copy_.sites.size()) copy_.sites.resize(used);
  if (sweep_.next_block == 0) {
    sweep_.change_seq = copy_.header.change_seq;
    sweep_.rows = copy_.sites.size();
    sweep_.all_settled = true;
  }
  const uint64_t blocks = (sweep_.rows + wire::kSitesPerDirtyBlock - 1) / wire::kSitesPerDirtyBlock;
  std::vector<uint64_t> dirty(blocks, UINT64_MAX);
  if (blocks <= dirty_place.capacity && !ReadRaw(dirty_place, 0, blocks, dirty.data())) {
    return false;
  }
  auto is_new = [&](uint64_t block) {
    return dirty[block] > sites_seen_seq_ || (block + 1) * wire::kSitesPerDirtyBlock > sites_seen_;
  };
  uint64_t budget = kSiteRowsARefresh;
  uint64_t block = sweep_.next_block;
  while (block < blocks && budget > 0) {
    if (!is_new(block)) {
      ++block;
      continue;
    }
    uint64_t end = block + 1;  // neighbours are read in one go
    while (end < blocks && is_new(end) && end - block < kBlocksARead) ++end;
    const uint64_t first = block * wire::kSitesPerDirtyBlock;
    const uint64_t many = std::min(end * wire::kSitesPerDirtyBlock, sweep_.rows) - first;
    if (!ReadSiteRows(place, first, many, changes)) return false;
    budget -= std::min(budget, many);
    block = end;
  }
  sweep_.next_block = block < blocks ? block : 0;
  // A torn row must be looked at again although its block may not change any more.
  if (sweep_.next_block == 0 && sweep_.all_settled) {
    sites_seen_seq_ = sweep_.change_seq;
    sites_seen_ = sweep_.rows;
  }
  return true;
}

// Row `n` of a ring lies at n % capacity. A row counts once it carries its own number where it has
// one (steps); the writer may have lapped the reader meanwhile.
template <typename Row>
bool RegionReader::ReadRing(Section section, uint64_t kept, uint64_t first_number, uint64_t* next,
                            std::vector<Row>* rows, uint64_t* missed, uint64_t* torn) {
  const SectionPlace& place = Place(section);
  if (!place.present()) return true;
  const uint64_t end = section == Section::kSteps ? copy_.header.current_step + first_number
                                                  : Used(section, UINT64_MAX);
  if (end <= *next) return true;
  const uint64_t room = std::min(place.capacity, kept);
  if (end - *next > room) {
    *missed += end - *next - room;
    *next = end - room;
  }
  while (*next < end) {
    const uint64_t slot = *next % place.capacity;
    const uint64_t count = std::min(end - *next, place.capacity - slot);
    std::vector<Row> part(count);
    std::vector<bool> settled;
    if (!ReadSettled(place, slot, count, part.data(), torn, &settled)) return false;
    for (uint64_t i = 0; i < count; ++i) {
      bool right = settled[i];
      if constexpr (std::is_same_v<Row, wire::StepRow>) right = right && part[i].step == *next + i;
      if (right) {
        rows->push_back(part[i]);
      } else {
        ++*missed;
      }
    }
    *next += count;
  }
  return true;
}

bool RegionReader::ReadTotals(uint64_t* torn) {
  std::vector<wire::AllocatorRow> before;
  if (!ReadTable(Section::kAllocators, kMaxTotalsRows, &before, torn) ||
      !ReadTable(Section::kTotals, kMaxTotalsRows, &copy_.totals, torn) ||
      !ReadTable(Section::kPeakGroups, wire::kMaxPeakGroups, &copy_.peak_groups, torn) ||
      !ReadTable(Section::kAllocators, kMaxTotalsRows, &copy_.allocators, torn)) {
    return false;
  }
  copy_.totals_coherent = before.size() == copy_.allocators.size() &&
                          std::equal(before.begin(), before.end(), copy_.allocators.begin(),
                                     [](const auto& a, const auto& b) { return a.seq == b.seq; });
  return true;
}

bool RegionReader::RefreshTotals() {
  uint64_t torn = 0;
  return ReadTotals(&torn);
}

bool RegionReader::Refresh(RegionChanges* changes) {
  if (!ReadHeader()) return false;
  const wire::Header& old = copy_.header;
  if (fresh_.magic != old.magic || fresh_.abi != old.abi || fresh_.agent_id != old.agent_id ||
      fresh_.region_bytes != old.region_bytes || fresh_.header_bytes != old.header_bytes ||
      fresh_.section_count != old.section_count) {
    return false;
  }
  for (uint32_t i = 0; i < old.section_count; ++i) {
    if (fresh_.sections[i].id != old.sections[i].id ||
        fresh_.sections[i].offset != old.sections[i].offset ||
        fresh_.sections[i].row_bytes != old.sections[i].row_bytes ||
        fresh_.sections[i].capacity != old.sections[i].capacity) {
      return false;
    }
  }
  copy_.header = fresh_;
  copy_.absurd_values += Bound(&copy_.header.observer_host_bytes);
  copy_.absurd_values += Bound(&copy_.header.observer_device_bytes);
  uint64_t* torn = &changes->torn_rows;
  return ReadTable(Section::kFeatures, wire::kFeatureCount, &copy_.features, torn) &&
         ReadTotals(torn) && ReadTable(Section::kEntryPoints, 64, &copy_.entry_points, torn) &&
         // Sites before pools: a site that is seen points to frames that are there already.
         ReadSites(changes) &&
         ReadNewRows(Section::kFrames, kMaxFrames, &copy_.frames, &changes->pools_grew) &&
         ReadNewRows(Section::kModules, kMaxModules, &copy_.modules, &changes->pools_grew) &&
         ReadStrings(&changes->pools_grew) &&
         ReadTable(Section::kPhases, kMaxPhases, &copy_.phases, torn) &&
         ReadRing(Section::kSteps, kKeptSteps, 1, &next_step_, &changes->steps,
                  &changes->steps_missed, torn) &&
         ReadRing(Section::kEvents, kKeptEvents, 0, &next_event_, &changes->events,
                  &changes->events_missed, torn);
}

template <typename Each>
void RegionReader::ForEachLive(Section section, Each each) const {
  constexpr uint64_t kRowsARead = 16384;
  const SectionPlace& place = Place(section);
  const uint64_t used = Used(section, place.capacity);
  std::vector<wire::LiveRow> rows(std::min(kRowsARead, used));
  for (uint64_t first = 0; first < used; first += kRowsARead) {
    const uint64_t count = std::min(kRowsARead, used - first);
    if (!ReadRaw(place, first, count, rows.data())) return;
    for (uint64_t i = 0; i < count; ++i) {
      if (rows[i].address > 1) each(rows[i]);  // 0 is empty, 1 erased
    }
  }
}

std::vector<wire::LiveRow> RegionReader::LiveBlocks(const std::vector<uint32_t>& site_rows,
                                                    size_t limit) const {
  std::vector<wire::LiveRow> found;
  for (Section section : {Section::kLiveDriver, Section::kLiveFramework, Section::kLiveHost}) {
    ForEachLive(section, [&](const wire::LiveRow& row) {
      if (std::find(site_rows.begin(), site_rows.end(), row.site) != site_rows.end()) {
        found.push_back(row);
      }
    });
  }
  std::sort(found.begin(), found.end(), [](const wire::LiveRow& a, const wire::LiveRow& b) {
    return std::pair(a.step, a.address) < std::pair(b.step, b.address);
  });
  if (found.size() > limit) found.resize(limit);
  return found;
}

std::vector<wire::LiveRow> RegionReader::DriverBlocks() const {
  std::vector<wire::LiveRow> found;
  ForEachLive(Section::kLiveDriver, [&](const wire::LiveRow& row) { found.push_back(row); });
  return found;
}

}  // namespace tidemark
