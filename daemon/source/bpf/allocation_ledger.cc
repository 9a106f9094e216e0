#include "daemon/source/bpf/allocation_ledger.h"

#include <algorithm>

namespace tidemark {
namespace {

// More distinct addresses than this are not remembered as freed. Real jobs reuse a few thousand.
constexpr size_t kMaxFreed = 1u << 20;
// Threads that ever freed. A thread's last free stays here when it ends; beyond this many, all are
// taken as succeeded, which their silence means already.
constexpr size_t kMaxPending = 1u << 16;

}  // namespace

void AllocationLedger::AddLive(const LedgerAllocation& allocation) {
  LedgerTotal& total = totals_[{allocation.memory_class, allocation.device}];
  total.live_bytes += allocation.bytes;
  total.live_count += 1;
  total.peak_bytes = std::max(total.peak_bytes, total.live_bytes);
  LedgerSite& site = sites_[{allocation.memory_class, allocation.stack_id}];
  site.live_bytes += allocation.bytes;
  site.live_count += 1;
}

void AllocationLedger::RemoveLive(const LedgerAllocation& allocation) {
  LedgerTotal& total = totals_[{allocation.memory_class, allocation.device}];
  total.live_bytes -= allocation.bytes;
  total.live_count -= 1;
  LedgerSite& site = sites_[{allocation.memory_class, allocation.stack_id}];
  site.live_bytes -= allocation.bytes;
  site.live_count -= 1;
}

void AllocationLedger::Insert(AllocationKey key, const LedgerAllocation& allocation) {
  auto [entry, is_new] = live_.try_emplace(key, allocation);
  if (!is_new) {
    // Handed out again although its free was not seen (lost, or implicit): it was freed.
    RemoveLive(entry->second);
    LedgerTotal& total = totals_[{entry->second.memory_class, entry->second.device}];
    total.freed_bytes += entry->second.bytes;
    total.freed_count += 1;
    entry->second = allocation;
  }
  AddLive(allocation);
}

void AllocationLedger::Allocate(AllocationKey key, const LedgerAllocation& allocation) {
  LedgerTotal& total = totals_[{allocation.memory_class, allocation.device}];
  total.allocated_bytes += allocation.bytes;
  total.allocated_count += 1;
  LedgerSite& site = sites_[{allocation.memory_class, allocation.stack_id}];
  site.allocated_bytes += allocation.bytes;
  site.allocated_count += 1;
  site.min_block_bytes = std::min(site.min_block_bytes, allocation.bytes);
  site.max_block_bytes = std::max(site.max_block_bytes, allocation.bytes);
  if (live_.size() >= max_live_ && !live_.contains(key)) {
    table_full_ += 1;
    return;
  }
  Insert(key, allocation);
}

void AllocationLedger::RememberFreed(AllocationKey key) {
  if (freed_.size() < kMaxFreed) freed_.insert(key);
}

std::optional<LedgerAllocation> AllocationLedger::Take(AllocationKey key) {
  RememberFreed(key);
  auto found = live_.find(key);
  if (found == live_.end()) return std::nullopt;
  const LedgerAllocation allocation = found->second;
  live_.erase(found);
  RemoveLive(allocation);
  LedgerTotal& total = totals_[{allocation.memory_class, allocation.device}];
  total.freed_bytes += allocation.bytes;
  total.freed_count += 1;
  return allocation;
}

void AllocationLedger::PutBack(AllocationKey key, const LedgerAllocation& allocation) {
  freed_.erase(key);
  if (!live_.try_emplace(key, allocation).second) return;  // handed out again: that one stands
  LedgerTotal& total = totals_[{allocation.memory_class, allocation.device}];
  total.freed_bytes -= allocation.bytes;
  total.freed_count -= 1;
  AddLive(allocation);
}

void AllocationLedger::BeginFree(pid_t tid, AllocationKey key) {
  if (pending_.size() >= kMaxPending && !pending_.contains(tid)) pending_.clear();
  PendingFree& pending = pending_[tid];
  pending.key = key;
  pending.taken = Take(key);
  if (!pending.taken) unknown_frees_ += 1;
}

void AllocationLedger::FailFree(pid_t tid) {
  auto found = pending_.find(tid);
  if (found == pending_.end()) return;
  if (found->second.taken) {
    PutBack(found->second.key, *found->second.taken);
  } else {
    freed_.erase(found->second.key);
    unknown_frees_ -= 1;
  }
  pending_.erase(found);
}

template <typename Predicate>
void AllocationLedger::EndIf(Predicate ends) {
  std::erase_if(live_, [&](const auto& entry) {
    const LedgerAllocation& allocation = entry.second;
    if (!ends(allocation)) return false;
    RemoveLive(allocation);
    LedgerTotal& total = totals_[{allocation.memory_class, allocation.device}];
    total.freed_bytes += allocation.bytes;
    total.freed_count += 1;
    return true;
  });
}

void AllocationLedger::EndAllBefore(uint64_t time_ns) {
  EndIf([&](const LedgerAllocation& allocation) { return allocation.time_ns < time_ns; });
  pending_.clear();
}

void AllocationLedger::EndOwnedBefore(uint64_t owner, uint64_t time_ns) {
  EndIf([&](const LedgerAllocation& allocation) {
    return allocation.owner == owner && allocation.time_ns < time_ns;
  });
}

bool AllocationLedger::HasOwnedBy(uint64_t owner) const {
  return std::ranges::any_of(live_, [&](const auto& entry) { return entry.second.owner == owner; });
}

std::set<uint64_t> AllocationLedger::ContextOwners() const {
  std::set<uint64_t> owners;
  for (const auto& [key, allocation] : live_) {
    if (allocation.owner != kDeviceOwned) owners.insert(allocation.owner);
  }
  return owners;
}

void AllocationLedger::Seed(AllocationKey key, const LedgerAllocation& allocation) {
  if (freed_.contains(key) || live_.contains(key)) return;
  if (live_.size() >= max_live_) {
    table_full_ += 1;
    return;
  }
  Insert(key, allocation);
}

const LedgerAllocation* AllocationLedger::Find(AllocationKey key) const {
  auto found = live_.find(key);
  return found == live_.end() ? nullptr : &found->second;
}

}  // namespace tidemark
