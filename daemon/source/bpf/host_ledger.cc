#include "daemon/source/bpf/host_ledger.h"

#include <algorithm>
#include <iterator>

namespace tidemark {
namespace {

// Part `part` of `whole` of a resident estimate.
std::map<uint64_t, uint64_t> Share(const std::map<uint64_t, uint64_t>& resident, uint64_t part,
                                   uint64_t whole) {
  std::map<uint64_t, uint64_t> share;
  for (const auto& [stack, bytes] : resident) {
    share[stack] = static_cast<uint64_t>(static_cast<__uint128_t>(bytes) * part / whole);
  }
  return share;
}

}  // namespace

void HostLedger::Count(uint64_t start, const Region& region) {
  for (const auto& [stack, bytes] : region.resident) {
    sites_[{region.memory_class, stack}].resident_bytes += bytes;
  }
  if (region.before) return;
  const uint64_t bytes = region.end - start;
  LedgerTotal& total = totals_[region.memory_class];
  total.live_bytes += bytes;
  total.live_count += 1;
  total.peak_bytes = std::max(total.peak_bytes, total.live_bytes);
  HostSite& site = sites_[{region.memory_class, region.stack_id}];
  site.live_bytes += bytes;
  site.live_count += 1;
}

void HostLedger::Uncount(uint64_t start, const Region& region) {
  for (const auto& [stack, bytes] : region.resident) {
    uint64_t& resident = sites_[{region.memory_class, stack}].resident_bytes;
    resident -= std::min(resident, bytes);
  }
  if (region.before) return;
  const uint64_t bytes = region.end - start;
  LedgerTotal& total = totals_[region.memory_class];
  total.live_bytes -= bytes;
  total.live_count -= 1;
  HostSite& site = sites_[{region.memory_class, region.stack_id}];
  site.live_bytes -= bytes;
  site.live_count -= 1;
}

void HostLedger::Insert(uint64_t start, Region region) {
  Count(start, region);
  regions_[start] = std::move(region);
}

void HostLedger::Split(uint64_t address) {
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return;
  auto at = std::prev(after);
  const uint64_t start = at->first;
  if (start == address || at->second.end <= address) return;
  Region left = at->second;
  Uncount(start, left);
  regions_.erase(at);
  const uint64_t whole = left.end - start;
  Region right = left;
  right.resident = Share(left.resident, left.end - address, whole);
  for (auto& [stack, bytes] : left.resident) bytes -= right.resident[stack];
  left.end = address;
  Insert(start, std::move(left));
  Insert(address, std::move(right));
}

HostLedger::Pieces HostLedger::Unmap(uint64_t start, uint64_t bytes) {
  const uint64_t end = start + bytes;
  if (end <= start) return {};
  Split(start);
  Split(end);
  Pieces pieces;
  for (auto at = regions_.lower_bound(start); at != regions_.end() && at->first < end;) {
    Uncount(at->first, at->second);
    if (!at->second.before) {
      LedgerTotal& total = totals_[at->second.memory_class];
      total.freed_bytes += at->second.end - at->first;
      total.freed_count += 1;
    }
    pieces.emplace_back(at->first, std::move(at->second));
    at = regions_.erase(at);
  }
  Unlock(start, bytes);
  return pieces;
}

void HostLedger::PutBack(const Pieces& pieces) {
  for (const auto& [start, region] : pieces) {
    // Somebody mapped there meanwhile: that stands.
    auto after = regions_.upper_bound(start);
    const bool covered = after != regions_.begin() && std::prev(after)->second.end > start;
    if (covered || (after != regions_.end() && after->first < region.end)) continue;
    if (!region.before) {
      LedgerTotal& total = totals_[region.memory_class];
      total.freed_bytes -= region.end - start;
      total.freed_count -= 1;
    }
    Insert(start, region);
  }
}

void HostLedger::Map(uint64_t start, uint64_t bytes, MemoryClass memory_class, uint64_t stack_id) {
  if (bytes == 0 || start + bytes < start) return;
  Unmap(start, bytes);
  LedgerTotal& total = totals_[memory_class];
  total.allocated_bytes += bytes;
  total.allocated_count += 1;
  HostSite& site = sites_[{memory_class, stack_id}];
  site.allocated_bytes += bytes;
  site.allocated_count += 1;
  site.min_block_bytes = std::min(site.min_block_bytes, bytes);
  site.max_block_bytes = std::max(site.max_block_bytes, bytes);
  Region region;
  region.end = start + bytes;
  region.memory_class = memory_class;
  region.stack_id = stack_id;
  Insert(start, std::move(region));
}

void HostLedger::MapBefore(uint64_t start, uint64_t bytes, MemoryClass memory_class) {
  if (bytes == 0 || start + bytes < start) return;
  Unmap(start, bytes);
  Region region;
  region.end = start + bytes;
  region.memory_class = memory_class;
  region.before = true;
  Insert(start, std::move(region));
}

void HostLedger::Move(const Pieces& pieces, uint64_t from, uint64_t to, uint64_t bytes,
                      uint64_t stack_id) {
  const uint64_t end = to + bytes;
  if (end <= to) return;
  Unmap(to, bytes);
  uint64_t moved_end = to;
  MemoryClass memory_class = MemoryClass::kAnon;
  for (auto [start, region] : pieces) {
    const uint64_t moved = start - from + to;
    memory_class = region.memory_class;
    if (!region.before && region.stack_id != 0) stack_id = region.stack_id;
    if (moved >= end) continue;  // cut off: freed, as booked
    const uint64_t whole = region.end - start;
    const uint64_t kept = std::min(whole, end - moved);
    if (kept < whole) region.resident = Share(region.resident, kept, whole);
    region.end = moved + kept;
    moved_end = region.end;
    if (!region.before) {
      LedgerTotal& total = totals_[region.memory_class];
      total.freed_bytes -= kept;
      total.freed_count -= 1;
    }
    Insert(moved, std::move(region));
  }
  if (moved_end < end) Map(moved_end, end - moved_end, memory_class, stack_id);
}

void HostLedger::Touch(uint64_t address, uint64_t stack_id, uint64_t bytes) {
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return;
  Region& region = std::prev(after)->second;
  if (region.end <= address) return;
  region.resident[stack_id] += bytes;
  sites_[{region.memory_class, stack_id}].resident_bytes += bytes;
}

void HostLedger::Discard(uint64_t start, uint64_t bytes) {
  const uint64_t end = start + bytes;
  if (end <= start) return;
  Split(start);
  Split(end);
  for (auto at = regions_.lower_bound(start); at != regions_.end() && at->first < end; ++at) {
    for (const auto& [stack, resident] : at->second.resident) {
      uint64_t& sum = sites_[{at->second.memory_class, stack}].resident_bytes;
      sum -= std::min(sum, resident);
    }
    at->second.resident.clear();
  }
}

void HostLedger::Unlock(uint64_t start, uint64_t bytes) {
  const uint64_t end = start + bytes;
  auto at = locked_.upper_bound(start);
  if (at != locked_.begin()) --at;
  while (at != locked_.end() && at->first < end) {
    const auto [locked_start, locked_end] = *at;
    if (locked_end <= start) {
      ++at;
      continue;
    }
    at = locked_.erase(at);
    if (locked_start < start) locked_[locked_start] = start;
    if (locked_end > end) {
      locked_[end] = locked_end;
      return;
    }
  }
}

void HostLedger::Lock(uint64_t start, uint64_t bytes) {
  if (bytes == 0 || start + bytes < start) return;
  Unlock(start, bytes);
  locked_[start] = start + bytes;
}

uint64_t HostLedger::locked_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [start, end] : locked_) bytes += end - start;
  return bytes;
}

void HostLedger::Clear() {
  for (const auto& [start, region] : regions_) {
    Uncount(start, region);
    if (region.before) continue;
    LedgerTotal& total = totals_[region.memory_class];
    total.freed_bytes += region.end - start;
    total.freed_count += 1;
  }
  regions_.clear();
  locked_.clear();
}

uint64_t HostLedger::ResidentEstimate(MemoryClass memory_class) const {
  uint64_t bytes = 0;
  for (const auto& [key, site] : sites_) {
    if (key.first == memory_class) bytes += site.resident_bytes;
  }
  return bytes;
}

}  // namespace tidemark
