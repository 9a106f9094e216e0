// The driver's side of the ledger: callbacks with their return codes, and activity records.
#include <algorithm>
#include <iterator>

#include "cupti_agent/ledger/ledger.h"
#include "cupti_agent/ledger/ledger_guard.h"
#include "cupti_agent/ledger/row_writer.h"

namespace tidemark::agent {

using wire::Kind;
using wire::Layer;
using wire::Loss;
using wire::Section;

namespace {
constexpr uint64_t kLargeGrowthBytes = 1ull << 30;
}  // namespace

void Ledger::DriverAllocated(const DriverAllocation& allocation, uint64_t estimated_bytes,
                             const StackView* stack) {
  Guard guard(this, allocation.bytes);
  if (!guard.held()) return;
  const uint8_t totals_row = totals_.RowOf(Layer::kDriver, allocation.kind, allocation.device);
  if (totals_row == kNoRow) return CountLoss(Loss::kTotalsTableFull, 1, allocation.bytes);
  const uint32_t old = driver_.Find(allocation.address, allocation.space);
  if (old != LiveTable::kNone) {
    if (!IsEnding(driver_.link(old).owner)) {
      CountLoss(Loss::kAddressCollision, 1, driver_.row(old).bytes);
    }
    TakeOut(driver_, old);
  }
  if (driver_.full()) {
    CountLoss(Loss::kLiveTableFull, 1, allocation.bytes);
    return totals_.AddUntracked(totals_row, allocation.bytes);
  }
  const uint32_t site = estimated_bytes == 0
                            ? kNoSite
                            : sites_.SiteOf(totals_row, stack, estimated_bytes != allocation.bytes);
  Book(driver_, {allocation.address, allocation.bytes, estimated_bytes, site, CurrentStep()},
       allocation.space, totals_row, allocation.owner);
  if (allocation.bytes >= kLargeGrowthBytes) {
    AppendEvent({.type = wire::EventType::kLargeGrowth,
                 .device = allocation.device,
                 .bytes = allocation.bytes,
                 .address = allocation.address},
                site);
  }
}

void Ledger::DriverFreeBegan(Space space, uint64_t address, PendingFree* pending) {
  *pending = {};
  Guard guard(this);
  if (!guard.held()) return;
  const uint32_t number = driver_.Find(address, space);
  if (number == LiveTable::kNone) return;
  const LiveTable::Link& link = driver_.link(number);
  *pending = {.found = true,
              .space = space,
              .totals_row = link.totals_row,
              .owner = link.owner,
              .row = driver_.row(number)};
  TakeOut(driver_, number);
}

void Ledger::DriverFreeFailed(const PendingFree& pending) {
  Guard guard(this, pending.row.bytes);
  if (!guard.held()) return;
  const wire::LiveRow& row = pending.row;
  // The address allocated again meanwhile, or no room left: it stays freed, and that is counted.
  if (driver_.Find(row.address, pending.space) != LiveTable::kNone) {
    return CountLoss(Loss::kAddressCollision, 1, row.bytes);
  }
  if (driver_.full()) return CountLoss(Loss::kLiveTableFull, 1, row.bytes);
  if (row.site != kNoSite) sites_.Restore(row.site, row.bytes, row.estimated_bytes, row.step);
  totals_.Restore(pending.totals_row, row.bytes);
  driver_.Insert(row, pending.space, pending.totals_row, pending.owner);
}

void Ledger::DriverFreeUnknown(Kind kind, int16_t device) {
  Guard guard(this);
  if (!guard.held()) return;
  const uint8_t totals_row = totals_.RowOf(Layer::kDriver, kind, device);
  if (totals_row != kNoRow) totals_.CountUnknownFree(totals_row);
  CountLoss(Loss::kUnknownFree);
}

void Ledger::DriverUntracked(Kind kind, int16_t device, uint64_t bytes) {
  Guard guard(this, bytes);
  if (!guard.held()) return;
  const uint8_t totals_row = totals_.RowOf(Layer::kDriver, kind, device);
  if (totals_row != kNoRow) totals_.AddUntracked(totals_row, bytes);
  CountLoss(Loss::kLiveTableFull, 1, bytes);
}

void Ledger::DriverCallFailed(Kind kind, int16_t device) {
  Guard guard(this);
  if (!guard.held()) return;
  const uint8_t totals_row = totals_.RowOf(Layer::kDriver, kind, device);
  if (totals_row != kNoRow) totals_.CountFailure(totals_row);
}

// More than eight contexts that end at once are not told from collisions: a wrong count of losses,
// no wrong byte.
void Ledger::ReplaceEnding(uint16_t from, uint16_t to) {
  for (uint16_t& slot : ending_) {
    if (slot != from) continue;
    slot = to;
    return;
  }
}

bool Ledger::IsEnding(uint16_t owner) const {
  return owner != kNoOwner &&
         std::find(std::begin(ending_), std::end(ending_), owner) != std::end(ending_);
}

void Ledger::DriverOwnerEnding(uint16_t owner) {
  Guard guard(this);
  if (guard.held()) ReplaceEnding(kNoOwner, owner);
}

uint64_t Ledger::DriverOwnerGone(uint16_t owner) {
  Guard guard(this);
  if (!guard.held()) return 0;
  ReplaceEnding(owner, kNoOwner);
  uint64_t bytes = 0;
  for (uint32_t number = 0; number < driver_.used(); ++number) {
    if (!driver_.IsLive(number) || driver_.link(number).owner != owner) continue;
    bytes += driver_.row(number).bytes;
    TakeOut(driver_, number);
  }
  return bytes;
}

void Ledger::DriverRenameOwner(uint16_t from, uint16_t to) {
  Guard guard(this);
  if (!guard.held()) return;
  ReplaceEnding(from, kNoOwner);
  for (uint32_t number = 0; number < driver_.used(); ++number) {
    if (driver_.IsLive(number) && driver_.link(number).owner == from) {
      driver_.link(number).owner = to;
    }
  }
}

void Ledger::CountCall(wire::EntryPoint entry_point, uint64_t requested_bytes) {
  Guard guard(this);
  if (!guard.held()) return;
  wire::EntryPointRow& row =
      region_.Rows<wire::EntryPointRow>(Section::kEntryPoints)[static_cast<uint32_t>(entry_point)];
  RowWriter writer(row);
  ++row.calls;
  row.requested_bytes += requested_bytes;
}

void Ledger::CountFailedCall(wire::EntryPoint entry_point) {
  Guard guard(this);
  if (!guard.held()) return;
  wire::EntryPointRow& row =
      region_.Rows<wire::EntryPointRow>(Section::kEntryPoints)[static_cast<uint32_t>(entry_point)];
  RowWriter writer(row);
  ++row.failed_calls;
}

void Ledger::RecordAllocated(Kind kind, int16_t device, uint64_t bytes) {
  Guard guard(this, bytes);
  if (!guard.held()) return;
  const uint8_t totals_row = totals_.RowOf(Layer::kRecords, kind, device);
  if (totals_row == kNoRow) return CountLoss(Loss::kTotalsTableFull, 1, bytes);
  totals_.Add(totals_row, bytes);
}

void Ledger::RecordFreed(Kind kind, int16_t device, uint64_t bytes) {
  Guard guard(this, bytes);
  if (!guard.held()) return;
  const uint8_t totals_row = totals_.RowOf(Layer::kRecords, kind, device);
  if (totals_row == kNoRow) return CountLoss(Loss::kTotalsTableFull, 1, bytes);
  totals_.Remove(totals_row, bytes);
}

}  // namespace tidemark::agent
