#include "daemon/source/agent/fake_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace tidemark {
namespace {

using wire::Section;

uint64_t Now(clockid_t clock) {
  timespec now = {};
  ::clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

FakeRegion::FakeRegion(FakeRegionOptions options) {
  struct Wanted {
    Section id;
    size_t row_bytes;
    uint64_t capacity;
  };
  const Wanted wanted[] = {
      {Section::kFeatures, sizeof(wire::FeatureRow), wire::kFeatureCount},
      {Section::kTotals, sizeof(wire::TotalsRow), 128},
      {Section::kPeakGroups, sizeof(wire::PeakGroupRow), wire::kMaxPeakGroups},
      {Section::kAllocators, sizeof(wire::AllocatorRow), 16},
      {Section::kEntryPoints, sizeof(wire::EntryPointRow), 33},
      {Section::kSites, sizeof(wire::SiteRow), options.sites},
      {Section::kSiteDirty, sizeof(uint64_t), options.sites / wire::kSitesPerDirtyBlock + 1},
      {Section::kFrames, sizeof(wire::Frame), options.frames},
      {Section::kModules, sizeof(wire::ModuleRow), 256},
      {Section::kStrings, 1, options.string_bytes},
      {Section::kSteps, sizeof(wire::StepRow), options.steps},
      {Section::kPhases, sizeof(wire::PhaseRow), 64},
      {Section::kEvents, sizeof(wire::EventRow), 128},
      {Section::kLiveDriver, sizeof(wire::LiveRow), options.live_blocks},
      {Section::kLiveFramework, sizeof(wire::LiveRow), options.live_blocks},
      {Section::kLiveHost, sizeof(wire::LiveRow), options.live_blocks},
  };
  wire::Header header = {};
  uint64_t offset = (sizeof(wire::Header) + 63) / 64 * 64;
  for (const Wanted& section : wanted) {
    wire::SectionEntry& entry = header.sections[header.section_count++];
    entry = {static_cast<uint32_t>(section.id), static_cast<uint32_t>(section.row_bytes), offset,
             section.capacity, 0};
    offset = (offset + section.row_bytes * section.capacity + 63) / 64 * 64;
  }
  bytes_ = (offset + 4095) / 4096 * 4096;
  header.magic = wire::kRegionMagic;
  header.abi = wire::kRegionAbi;
  header.header_bytes = sizeof(wire::Header);
  header.region_bytes = bytes_;
  header.agent_id = options.agent_id;
  header.pid = ::getpid();
  header.uid = static_cast<int32_t>(::getuid());
  header.init_monotonic_ns = Now(CLOCK_MONOTONIC);
  header.init_realtime_ns = Now(CLOCK_REALTIME);
  header.state = static_cast<uint32_t>(wire::AgentState::kRunning);
  header.sampling_interval_bytes = 1;
  for (const auto& [name, value] : options.environment) {
    const std::string entry = name + "=" + value;
    if (header.environment_bytes + entry.size() + 1 > wire::kEnvironmentBytes) std::abort();
    std::memcpy(header.environment + header.environment_bytes, entry.c_str(), entry.size() + 1);
    header.environment_bytes += static_cast<uint32_t>(entry.size() + 1);
  }

  fd_.Reset(::memfd_create("tidemark-fake", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd_.valid() || ::ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0) std::abort();
  void* map = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (map == MAP_FAILED) std::abort();
  map_ = static_cast<char*>(map);
  std::memcpy(map_, &header, sizeof(header));
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (options.seal && ::fcntl(fd_.get(), F_ADD_SEALS, kSeals) != 0) std::abort();
}

FakeRegion::~FakeRegion() { ::munmap(map_, bytes_); }

UniqueFd FakeRegion::DuplicateFd() const {
  return UniqueFd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
}

wire::Hello FakeRegion::Hello() const {
  const auto& header = *reinterpret_cast<const wire::Header*>(map_);
  return {wire::kHandshakeMagic, header.abi, header.region_bytes, header.agent_id, header.pid, 0};
}

wire::SectionEntry& FakeRegion::Entry(Section section) {
  for (wire::SectionEntry& entry : header().sections) {
    if (entry.id == static_cast<uint32_t>(section)) return entry;
  }
  std::abort();
}

template <typename Row>
void FakeRegion::Write(Section section, uint64_t index, Row row) {
  if (index >= Entry(section).capacity) std::abort();
  Row& target = At<Row>(section, index);
  std::atomic_ref<uint32_t> seq(target.seq);
  const uint32_t old = seq.load(std::memory_order_relaxed);
  seq.store(old + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  row.seq = old + 1;
  std::memcpy(reinterpret_cast<char*>(&target) + sizeof(uint32_t),
              reinterpret_cast<const char*>(&row) + sizeof(uint32_t),
              sizeof(Row) - sizeof(uint32_t));
  seq.store(old + 2, std::memory_order_release);
}

uint32_t FakeRegion::AddString(std::string_view text) {
  wire::SectionEntry& entry = Entry(Section::kStrings);
  const auto offset = static_cast<uint32_t>(entry.used);
  const auto length = static_cast<uint16_t>(text.size());
  if (entry.used + sizeof(length) + length > entry.capacity) std::abort();
  std::memcpy(map_ + entry.offset + offset, &length, sizeof(length));
  std::memcpy(map_ + entry.offset + offset + sizeof(length), text.data(), length);
  entry.used += sizeof(length) + length;
  return offset;
}

uint32_t FakeRegion::AddPythonFrame(std::string_view file, std::string_view function,
                                    uint32_t line) {
  const uint32_t file_string = AddString(file);
  const uint32_t function_string = AddString(function);
  wire::SectionEntry& entry = Entry(Section::kFrames);
  At<wire::Frame>(Section::kFrames, entry.used) = {
      static_cast<uint8_t>(wire::FrameKind::kPython), {}, line, file_string, function_string};
  return static_cast<uint32_t>(entry.used++);
}

uint32_t FakeRegion::AddModule(std::string_view path, uint64_t base) {
  const uint32_t string = AddString(path);
  wire::SectionEntry& entry = Entry(Section::kModules);
  wire::ModuleRow& row = At<wire::ModuleRow>(Section::kModules, entry.used);
  row = {};
  row.path = string;
  row.base = base;
  return static_cast<uint32_t>(entry.used++);
}

uint32_t FakeRegion::AddNativeFrame(uint32_t module, uint32_t offset) {
  wire::SectionEntry& entry = Entry(Section::kFrames);
  At<wire::Frame>(Section::kFrames, entry.used) = {
      static_cast<uint8_t>(wire::FrameKind::kNative), {}, 0, module, offset};
  return static_cast<uint32_t>(entry.used++);
}

uint32_t FakeRegion::SetTotals(const wire::TotalsRow& row) {
  wire::SectionEntry& entry = Entry(Section::kTotals);
  uint64_t index = 0;
  for (; index < entry.used; ++index) {
    const auto& other = At<wire::TotalsRow>(Section::kTotals, index);
    if (other.layer == row.layer && other.kind == row.kind && other.device == row.device) break;
  }
  Write(Section::kTotals, index, row);
  if (index == entry.used) ++entry.used;
  return static_cast<uint32_t>(index);
}

uint32_t FakeRegion::SetPeakGroup(const wire::PeakGroupRow& row) {
  wire::SectionEntry& entry = Entry(Section::kPeakGroups);
  uint64_t index = 0;
  for (; index < entry.used; ++index) {
    const auto& other = At<wire::PeakGroupRow>(Section::kPeakGroups, index);
    if (other.side == row.side && other.device == row.device) break;
  }
  Write(Section::kPeakGroups, index, row);
  if (index == entry.used) ++entry.used;
  return static_cast<uint32_t>(index);
}

void FakeRegion::SetAllocator(int16_t device, uint64_t allocated, uint64_t reserved) {
  wire::SectionEntry& entry = Entry(Section::kAllocators);
  uint64_t index = 0;
  while (index < entry.used &&
         At<wire::AllocatorRow>(Section::kAllocators, index).device != device) {
    ++index;
  }
  wire::AllocatorRow row = {};
  row.device = device;
  row.allocated_bytes = allocated;
  row.reserved_bytes = reserved;
  Write(Section::kAllocators, index, row);
  if (index == entry.used) ++entry.used;
}

void FakeRegion::SetFeature(wire::Feature feature, wire::FeatureState state,
                            std::string_view reason) {
  wire::FeatureRow row = {};
  row.feature = static_cast<uint8_t>(feature);
  row.state = static_cast<uint8_t>(state);
  reason.copy(row.reason, sizeof(row.reason) - 1);
  wire::SectionEntry& entry = Entry(Section::kFeatures);
  Write(Section::kFeatures, row.feature, row);
  entry.used = wire::kFeatureCount;
}

void FakeRegion::SetSite(uint32_t index, wire::SiteRow row) {
  Write(Section::kSites, index, row);
  wire::SectionEntry& entry = Entry(Section::kSites);
  if (index >= entry.used) entry.used = index + 1;
  const uint64_t block = index / wire::kSitesPerDirtyBlock;
  const uint64_t seq = header().change_seq + 1;
  std::atomic_ref(At<uint64_t>(Section::kSiteDirty, block)).store(seq, std::memory_order_release);
  wire::SectionEntry& dirty = Entry(Section::kSiteDirty);
  if (block >= dirty.used) dirty.used = block + 1;
  std::atomic_ref(header().change_seq).store(seq, std::memory_order_release);
}

void FakeRegion::AddStep(wire::StepRow row) {
  wire::SectionEntry& entry = Entry(Section::kSteps);
  row.step = ++entry.used;
  if (row.end_ns == 0) row.end_ns = Now(CLOCK_MONOTONIC);
  Write(Section::kSteps, row.step % entry.capacity, row);
  std::atomic_ref(header().current_step).store(row.step, std::memory_order_release);
}

void FakeRegion::AddEvent(wire::EventRow row) {
  wire::SectionEntry& entry = Entry(Section::kEvents);
  if (row.time_ns == 0) row.time_ns = Now(CLOCK_MONOTONIC);
  Write(Section::kEvents, entry.used % entry.capacity, row);
  ++entry.used;
}

uint32_t FakeRegion::AddPhase(std::string_view name, wire::PhaseRow row) {
  row.name = AddString(name);
  wire::SectionEntry& entry = Entry(Section::kPhases);
  Write(Section::kPhases, entry.used, row);
  return static_cast<uint32_t>(entry.used++);
}

void FakeRegion::AddLive(Section table, const wire::LiveRow& row) {
  wire::SectionEntry& entry = Entry(table);
  if (entry.used >= entry.capacity) std::abort();
  At<wire::LiveRow>(table, entry.used++) = row;
}

}  // namespace tidemark
