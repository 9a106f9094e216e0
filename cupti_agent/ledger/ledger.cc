#include "cupti_agent/ledger/ledger.h"

#include <algorithm>
#include <cstring>

#include "cupti_agent/ledger/ledger_guard.h"
#include "cupti_agent/ledger/monotonic.h"
#include "cupti_agent/ledger/row_writer.h"

namespace tidemark::agent {

using wire::Kind;
using wire::Layer;
using wire::Loss;
using wire::Section;

Ledger g_ledger;

namespace {

template <size_t kRoom>
void CopyText(char (&to)[kRoom], std::string_view text) {
  const size_t length = std::min(text.size(), kRoom - 1);
  memcpy(to, text.data(), length);
  memset(to + length, 0, kRoom - length);
}

}  // namespace

const char* Ledger::Open(const LedgerOptions& options) {
  if (const char* failed = region_.Create(options.region_bytes)) return failed;
  sampler_.Init(options.sampling_interval_bytes, options.seed);
  Publish(region_.header()->sampling_interval_bytes, sampler_.interval_bytes());
  totals_.Init(region_);
  steps_.Init(region_, &totals_);
  auto init_live = [&](LiveTable& table, Section section) {
    return table.Init(region_.Rows<wire::LiveRow>(section), &region_.Entry(section).used,
                      region_.Capacity(section));
  };
  if (!sites_.Init(region_, &totals_) || !init_live(driver_, Section::kLiveDriver) ||
      !init_live(framework_, Section::kLiveFramework) || !init_live(host_, Section::kLiveHost)) {
    return "no memory for the indexes";
  }
  auto* features = region_.Rows<wire::FeatureRow>(Section::kFeatures);
  for (uint32_t i = 0; i < wire::kFeatureCount; ++i) features[i].feature = static_cast<uint8_t>(i);
  region_.Entry(Section::kFeatures).used = wire::kFeatureCount;
  auto* calls = region_.Rows<wire::EntryPointRow>(Section::kEntryPoints);
  for (uint32_t i = 0; i < wire::kEntryPointCount; ++i) calls[i].entry_point = i;
  region_.Entry(Section::kEntryPoints).used = wire::kEntryPointCount;
  host_memory_.Open();
  PhaseBegin("load");
  return nullptr;
}

void Ledger::SetSamplingInterval(uint64_t bytes) {
  sampler_.SetInterval(bytes);
  Publish(region_.header()->sampling_interval_bytes, sampler_.interval_bytes());
}

// Everything that books goes through here: site first (its moments are those before the change),
// then totals and peaks.
void Ledger::Book(LiveTable& table, const wire::LiveRow& row, Space space, uint8_t totals_row,
                  uint16_t owner) {
  if (row.site != kNoSite) sites_.Add(row.site, row.bytes, row.estimated_bytes);
  totals_.Add(totals_row, row.bytes);
  table.Insert(row, space, totals_row, owner);
}

void Ledger::TakeOut(LiveTable& table, uint32_t number) {
  const wire::LiveRow row = table.row(number);
  const uint8_t totals_row = table.link(number).totals_row;
  table.Erase(number);
  if (row.site != kNoSite) sites_.Remove(row.site, row.bytes, row.estimated_bytes, row.step);
  totals_.Remove(totals_row, row.bytes);
}

void Ledger::ReportAllocator(const FrameworkBlock& block) {
  if (block.device < 0 || block.device >= static_cast<int16_t>(kMaxAllocatorRows)) return;
  wire::AllocatorRow& row = region_.Rows<wire::AllocatorRow>(Section::kAllocators)[block.device];
  {
    RowWriter writer(row);
    row.device = block.device;
    row.allocated_bytes = block.total_allocated_bytes;
    row.reserved_bytes = block.total_reserved_bytes;
    row.peak_allocated_bytes = std::max(row.peak_allocated_bytes, row.allocated_bytes);
    row.peak_reserved_bytes = std::max(row.peak_reserved_bytes, row.reserved_bytes);
  }
  uint64_t& used = region_.Entry(Section::kAllocators).used;
  if (used <= static_cast<uint64_t>(block.device)) {
    Publish(used, static_cast<uint64_t>(block.device) + 1);
  }
}

void Ledger::FrameworkAllocated(const FrameworkBlock& block, uint64_t estimated_bytes,
                                const StackView* stack) {
  Guard guard(this, block.bytes);
  if (!guard.held()) return;
  ReportAllocator(block);
  const uint8_t totals_row = totals_.RowOf(Layer::kFramework, Kind::kFwBlock, block.device);
  if (totals_row == kNoRow) return CountLoss(Loss::kTotalsTableFull, 1, block.bytes);
  const uint32_t old = framework_.Find(block.address, Space::kAddress);
  if (old != LiveTable::kNone) {
    CountLoss(Loss::kAddressCollision, 1, framework_.row(old).bytes);
    TakeOut(framework_, old);
  }
  if (framework_.full()) {
    // In no table, but its free will carry its bytes: live stays exact, only the site is lost.
    CountLoss(Loss::kLiveTableFull, 1, block.bytes);
    framework_overflow_[totals_row] += block.bytes;
    return totals_.Add(totals_row, block.bytes);
  }
  const uint32_t site = estimated_bytes == 0
                            ? kNoSite
                            : sites_.SiteOf(totals_row, stack, estimated_bytes != block.bytes);
  Book(framework_, {block.address, block.bytes, estimated_bytes, site, CurrentStep()},
       Space::kAddress, totals_row, kNoOwner);
}

void Ledger::FrameworkFreed(const FrameworkBlock& block) {
  Guard guard(this, block.bytes);
  if (!guard.held()) return;
  ReportAllocator(block);
  const uint32_t number = framework_.Find(block.address, Space::kAddress);
  if (number != LiveTable::kNone) return TakeOut(framework_, number);
  const uint8_t totals_row = totals_.RowOf(Layer::kFramework, Kind::kFwBlock, block.device);
  if (totals_row == kNoRow) return CountLoss(Loss::kTotalsTableFull, 1, block.bytes);
  if (framework_overflow_[totals_row] >= block.bytes && framework_overflow_[totals_row] > 0) {
    framework_overflow_[totals_row] -= block.bytes;
    return totals_.Remove(totals_row, block.bytes);
  }
  totals_.CountUnknownFree(totals_row);
  CountLoss(Loss::kUnknownFree, 1, block.bytes);
}

void Ledger::OutOfMemory(int16_t device, uint64_t requested_bytes, uint64_t total_allocated_bytes,
                         uint64_t total_reserved_bytes) {
  Guard guard(this);
  if (!guard.held()) return;
  ReportAllocator({.address = 0,
                   .bytes = 0,
                   .device = device,
                   .total_allocated_bytes = total_allocated_bytes,
                   .total_reserved_bytes = total_reserved_bytes});
  if (device >= 0 && device < static_cast<int16_t>(kMaxAllocatorRows)) {
    wire::AllocatorRow& row = region_.Rows<wire::AllocatorRow>(Section::kAllocators)[device];
    RowWriter writer(row);
    ++row.out_of_memory_reports;
  }
  AppendEvent({.type = wire::EventType::kOutOfMemory, .device = device, .bytes = requested_bytes},
              kNoSite);
}

void Ledger::HostTensorAllocated(uint64_t address, uint64_t bytes, uint64_t estimated_bytes,
                                 const StackView* stack) {
  Guard guard(this, bytes);
  if (!guard.held()) return;
  const uint8_t totals_row = totals_.RowOf(Layer::kHostFramework, Kind::kCpuTensor, -1);
  if (totals_row == kNoRow) return CountLoss(Loss::kTotalsTableFull, 1, bytes);
  const uint32_t old = host_.Find(address, Space::kAddress);
  if (old != LiveTable::kNone) {
    CountLoss(Loss::kAddressCollision, 1, host_.row(old).bytes);
    TakeOut(host_, old);
  }
  if (host_.full()) {
    CountLoss(Loss::kLiveTableFull, 1, bytes);
    return totals_.AddUntracked(totals_row, bytes);
  }
  const uint32_t site =
      estimated_bytes == 0 ? kNoSite : sites_.SiteOf(totals_row, stack, estimated_bytes != bytes);
  Book(host_, {address, bytes, estimated_bytes, site, CurrentStep()}, Space::kAddress, totals_row,
       kNoOwner);
}

void Ledger::HostTensorFreed(uint64_t address) {
  Guard guard(this);
  if (!guard.held()) return;
  const uint32_t number = host_.Find(address, Space::kAddress);
  if (number != LiveTable::kNone) return TakeOut(host_, number);
  const uint8_t totals_row = totals_.RowOf(Layer::kHostFramework, Kind::kCpuTensor, -1);
  if (totals_row != kNoRow) totals_.CountUnknownFree(totals_row);
  CountLoss(Loss::kUnknownFree);
}

void Ledger::BackwardBegan() {
  bool load_over;
  {
    Guard guard(this);
    if (!guard.held()) return;
    // A phase that the job named itself goes on.
    load_over = steps_.BackwardBegan() && region_.Entry(Section::kPhases).used == 1;
  }
  if (load_over) PhaseBegin("train");
}

void Ledger::OptimizerScopeBegan() {
  Guard guard(this);
  if (guard.held()) steps_.OptimizerScopeBegan();
}

void Ledger::StepBoundary() {
  const HostMemory host = host_memory_.Read();
  Guard guard(this);
  if (!guard.held()) return;
  steps_.StepBoundary(host);
  sites_.set_current_step(region_.header()->current_step);
}

void Ledger::CloseLastStep() {
  const HostMemory host = host_memory_.Read();
  Guard guard(this);
  if (guard.held()) steps_.CloseLastStep(host);
}

void Ledger::PhaseBegin(std::string_view name) {
  const HostMemory host = host_memory_.Read();
  Guard guard(this);
  if (!guard.held()) return;
  const std::optional<uint32_t> offset = sites_.strings().Intern(name);
  if (!offset) return CountLoss(Loss::kStringPoolFull);
  if (steps_.InPhase(*offset)) return;
  const wire::SectionEntry& phases = region_.Entry(Section::kPhases);
  if (phases.used >= phases.capacity) return CountLoss(Loss::kPhasesFull);
  steps_.PhaseBegin(*offset, host);
}

void Ledger::RecordEvent(const LedgerEvent& event) {
  Guard guard(this);
  if (guard.held()) AppendEvent(event, kNoSite);
}

void Ledger::AppendEvent(const LedgerEvent& event, uint32_t site) {
  wire::SectionEntry& entry = region_.Entry(Section::kEvents);
  wire::EventRow& row = region_.Rows<wire::EventRow>(Section::kEvents)[entry.used % entry.capacity];
  {
    RowWriter writer(row);
    row.type = static_cast<uint16_t>(event.type);
    row.entry_point = event.entry_point;
    row.time_ns = MonotonicNs();
    row.step = region_.header()->current_step;
    row.code = event.code;
    row.device = event.device;
    row.bytes = event.bytes;
    row.address = event.address;
    row.site = site;
    CopyText(row.text, event.text);
  }
  Publish(entry.used, entry.used + 1);
}

void Ledger::SetFeature(wire::Feature feature, wire::FeatureState state, std::string_view reason) {
  Guard guard(this);
  if (!guard.held()) return;
  wire::FeatureRow& row =
      region_.Rows<wire::FeatureRow>(Section::kFeatures)[static_cast<uint32_t>(feature)];
  char text[sizeof(row.reason)];
  CopyText(text, reason);
  if (row.state == static_cast<uint8_t>(state) && memcmp(text, row.reason, sizeof(text)) == 0) {
    return;
  }
  RowWriter writer(row);
  row.state = static_cast<uint8_t>(state);
  row.since_ns = MonotonicNs();
  memcpy(row.reason, text, sizeof(text));
}

// Takes no lock: it also counts the times when the lock was not had.
void Ledger::CountLoss(Loss loss, uint64_t count, uint64_t bytes) {
  const auto i = static_cast<uint32_t>(loss);
  wire::Header& header = *region_.header();
  __atomic_fetch_add(&header.losses[i], count, __ATOMIC_RELAXED);
  if (bytes != 0) __atomic_fetch_add(&header.loss_bytes[i], bytes, __ATOMIC_RELAXED);
}

void Ledger::SetPythonVersion(uint32_t version) {
  Publish(region_.header()->python_version, version);
}

void Ledger::SetCuptiVersion(uint32_t version) {
  Publish(region_.header()->cupti_version, version);
}

void Ledger::SetState(wire::AgentState state) {
  Publish(region_.header()->state, static_cast<uint32_t>(state));
}

void Ledger::SetEnvironment(std::string_view block) {
  wire::Header& header = *region_.header();
  const size_t bytes = std::min<size_t>(block.size(), wire::kEnvironmentBytes);
  memcpy(header.environment, block.data(), bytes);
  Publish(header.environment_bytes, static_cast<uint32_t>(bytes));
}

void Ledger::RecordsFlushed() {
  wire::Header* header = region_.header();
  Publish(header->records_flushes, header->records_flushes + 1);
}

void Ledger::Refresh(uint64_t other_bytes) {
  const uint64_t own = region_.TouchedBytes() + driver_.ResidentIndexBytes() +
                       framework_.ResidentIndexBytes() + host_.ResidentIndexBytes() +
                       sites_.ResidentIndexBytes();
  const HostMemory host = host_memory_.Read();
  Guard guard(this);
  if (!guard.held()) return;
  steps_.RefreshPhase(host);
  Publish(region_.header()->observer_host_bytes, own + other_bytes);
}

}  // namespace tidemark::agent
