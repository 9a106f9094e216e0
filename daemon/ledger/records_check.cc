#include "daemon/ledger/records_check.h"

#include <algorithm>

namespace tidemark {
namespace {

using wire::Layer;

constexpr uint32_t kFlushesToWait = 2;

// The agent flushes once more when the process exits, and then the two are equal.
bool IsFinal(const RegionCopy& region) {
  if (region.header.state != static_cast<uint32_t>(wire::AgentState::kExited)) return false;
  return std::any_of(
      region.features.begin(), region.features.end(), [](const wire::FeatureRow& row) {
        return row.seq != 0 && row.feature == static_cast<uint8_t>(wire::Feature::kCuptiRecords) &&
               row.state == static_cast<uint8_t>(wire::FeatureState::kOn);
      });
}

}  // namespace

RecordsCheck::Account& RecordsCheck::Find(const wire::TotalsRow& callbacks, uint32_t flushes) {
  for (Account& account : accounts_) {
    if (account.kind == callbacks.kind && account.device == callbacks.device) return account;
  }
  return accounts_.emplace_back(
      Account{callbacks.kind, callbacks.device, callbacks.allocated_bytes, flushes});
}

void RecordsCheck::Update(const RegionCopy& region) {
  const uint32_t flushes = region.header.records_flushes;
  const bool final = IsFinal(region);
  for (const wire::TotalsRow& records : region.totals) {
    if (records.seq == 0 || records.layer != static_cast<uint8_t>(Layer::kRecords)) continue;
    for (const wire::TotalsRow& callbacks : region.totals) {
      if (callbacks.seq == 0 || callbacks.layer != static_cast<uint8_t>(Layer::kDriver) ||
          callbacks.kind != records.kind || callbacks.device != records.device) {
        continue;
      }
      Account& account = Find(callbacks, flushes);
      if (records.allocated_bytes > callbacks.allocated_bytes) {
        account.difference_bytes = records.allocated_bytes - callbacks.allocated_bytes;
      } else if (final) {
        account.difference_bytes = callbacks.allocated_bytes - records.allocated_bytes;
      } else if (flushes - account.due_flushes >= kFlushesToWait) {
        account.difference_bytes =
            account.due_bytes - std::min(account.due_bytes, records.allocated_bytes);
        account.due_bytes = callbacks.allocated_bytes;
        account.due_flushes = flushes;
      } else if (records.allocated_bytes == callbacks.allocated_bytes) {
        account.difference_bytes = 0;
      }
    }
  }
}

std::vector<uint64_t> RecordsCheck::Differences() const {
  std::vector<uint64_t> differences;
  for (const Account& account : accounts_) {
    if (account.difference_bytes != 0) differences.push_back(account.difference_bytes);
  }
  return differences;
}

}  // namespace tidemark
