#include "cupti_agent/ledger/steps.h"

#include <algorithm>

#include "cupti_agent/ledger/monotonic.h"
#include "cupti_agent/ledger/row_writer.h"

namespace tidemark::agent {

using wire::Section;

void StepLedger::Init(const Region& region, TotalsTable* totals) {
  header_ = region.header();
  totals_ = totals;
  steps_ = region.Rows<wire::StepRow>(Section::kSteps);
  steps_entry_ = &region.Entry(Section::kSteps);
  phases_ = region.Rows<wire::PhaseRow>(Section::kPhases);
  phases_entry_ = &region.Entry(Section::kPhases);
  allocators_ = region.Rows<wire::AllocatorRow>(Section::kAllocators);
}

void StepLedger::AdvanceMoment(wire::Moment moment) {
  uint32_t& epoch = header_->moment_epoch[static_cast<uint32_t>(moment)];
  Publish(epoch, epoch + 1);
}

bool StepLedger::BackwardBegan() {
  Publish(header_->backward_passes, header_->backward_passes + 1);
  latest_work_ = Now();
  if (header_->load_ended != 0) return false;
  AdvanceMoment(wire::Moment::kLoad);
  Publish(header_->load_ended, 1u);
  return true;
}

void StepLedger::OptimizerScopeBegan() {
  Publish(header_->optimizer_scopes, header_->optimizer_scopes + 1);
  latest_work_ = Now();
}

StepLedger::Image StepLedger::Now() const {
  Image image;
  for (uint32_t i = 0; i < kMaxAllocatorRows; ++i) {
    image.fw_allocated_bytes += static_cast<int64_t>(allocators_[i].allocated_bytes);
    image.fw_reserved_bytes += static_cast<int64_t>(allocators_[i].reserved_bytes);
  }
  for (uint8_t i = 0; i < wire::kMaxPeakGroups; ++i) {
    const wire::PeakGroupRow& group = totals_->group(i);
    image.groups[i] = {group.step_floor_bytes, group.step_peak_bytes, group.live_bytes};
  }
  return image;
}

void StepLedger::WriteStep(const Image& image, const HostMemory& host) {
  const uint64_t step = header_->current_step + 1;
  wire::StepRow& row = steps_[step % steps_entry_->capacity];
  {
    RowWriter writer(row);
    row.phase = phases_entry_->used == 0 ? 0 : static_cast<uint32_t>(phases_entry_->used - 1);
    row.step = step;
    row.end_ns = MonotonicNs();
    row.backward_passes = static_cast<uint32_t>(header_->backward_passes - backward_at_boundary_);
    row.optimizer_scopes = static_cast<uint32_t>(header_->optimizer_scopes - scopes_at_boundary_);
    row.fw_allocated_bytes = image.fw_allocated_bytes;
    row.fw_reserved_bytes = image.fw_reserved_bytes;
    row.anon_bytes = host.anon_bytes;
    row.shmem_bytes = host.shmem_bytes;
    for (uint8_t i = 0; i < wire::kMaxPeakGroups; ++i) row.groups[i] = image.groups[i];
  }
  backward_at_boundary_ = header_->backward_passes;
  scopes_at_boundary_ = header_->optimizer_scopes;
  // A ring counts all rows ever written; slot 0 of the first round stays empty, because steps are
  // numbered from 1.
  Publish(steps_entry_->used, step + 1);
  Publish(header_->current_step, step);
  totals_->set_current_step(step);
}

void StepLedger::StepBoundary(const HostMemory& host) {
  AdvanceMoment(wire::Moment::kStepEnd);
  WriteStep(Now(), host);
  totals_->BeginStep();
  RefreshPhase(host);
}

void StepLedger::CloseLastStep(const HostMemory& host) {
  WriteStep(latest_work_, host);
  RefreshPhase(host);
  if (phases_entry_->used == 0) return;
  wire::PhaseRow& phase = phases_[phases_entry_->used - 1];
  RowWriter writer(phase);
  for (uint8_t i = 0; i < totals_->group_count(); ++i) {
    phase.groups[i].end_bytes = latest_work_.groups[i].end_bytes;
  }
}

bool StepLedger::InPhase(uint32_t name) const {
  return phases_entry_->used > 0 && phases_[phases_entry_->used - 1].name == name;
}

void StepLedger::PhaseBegin(uint32_t name, const HostMemory& host) {
  if (phases_entry_->used > 0) {
    RefreshPhase(host);
    wire::PhaseRow& last = phases_[phases_entry_->used - 1];
    RowWriter writer(last);
    last.end_ns = MonotonicNs();
  }
  totals_->BeginPhase();
  wire::PhaseRow& row = phases_[phases_entry_->used];
  {
    RowWriter writer(row);
    row.name = name;
    row.first_step = header_->current_step + 1;
    row.last_step = header_->current_step;
    row.start_ns = MonotonicNs();
    row.end_ns = 0;
    row.anon = {host.anon_bytes, host.anon_bytes, host.anon_bytes};
    for (uint8_t i = 0; i < wire::kMaxPeakGroups; ++i) {
      const int64_t live = totals_->group(i).live_bytes;
      row.groups[i] = {live, live, live};
    }
  }
  Publish(phases_entry_->used, phases_entry_->used + 1);
}

void StepLedger::RefreshPhase(const HostMemory& host) {
  if (phases_entry_->used == 0) return;
  wire::PhaseRow& row = phases_[phases_entry_->used - 1];
  RowWriter writer(row);
  row.last_step = header_->current_step;
  if (host.anon_bytes >= 0) {
    row.anon.end_bytes = host.anon_bytes;
    row.anon.peak_bytes = std::max(row.anon.peak_bytes, host.anon_bytes);
  }
  for (uint8_t i = 0; i < totals_->group_count(); ++i) {
    row.groups[i].peak_bytes = std::max(row.groups[i].peak_bytes, totals_->phase_peak(i));
    row.groups[i].end_bytes = totals_->group(i).live_bytes;
  }
}

}  // namespace tidemark::agent
