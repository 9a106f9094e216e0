// Who holds what in one process, kept from the reports of probes.
//
//   Allocate(key)  the call returned success
//   BeginFree      the call begins: the allocation is taken out
//   FailFree       the call returned an error: it is put back, unless its address was handed out
//                  again meanwhile, in which case the newer allocation stands
//
// Frees are booked at entry because the driver may hand an address to another thread before the
// free has returned: booked at return, that thread's allocation would be the one removed.
//
// Not thread-safe; owned by whoever drains the reports.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "daemon/snapshot/memory_class.h"

namespace tidemark {

// Addresses and handles of different kinds may have equal values.
enum class KeySpace : uint8_t { kPointer, kRegistered, kVmm, kImported, kArray, kIpc, kGraphNode };

// Whose end frees an allocation: a context's handle, or one of these.
inline constexpr uint64_t kUnknownOwner = 0;          // some context
inline constexpr uint64_t kDeviceOwned = UINT64_MAX;  // no context: pools, VMM, graphs

struct AllocationKey {
  KeySpace space = KeySpace::kPointer;
  uint64_t value = 0;
  bool operator==(const AllocationKey&) const = default;
};

struct AllocationKeyHash {
  size_t operator()(const AllocationKey& key) const {
    return (key.value ^ (static_cast<uint64_t>(key.space) << 60)) * 0x9e3779b97f4a7c15ull >> 7;
  }
};

struct LedgerAllocation {
  uint64_t bytes = 0;
  uint64_t time_ns = 0;
  uint64_t stack_id = 0;  // 0: not known
  uint64_t owner = kUnknownOwner;
  MemoryClass memory_class = MemoryClass::kDevice;
  int32_t device = -1;
};

struct LedgerTotal {
  uint64_t live_bytes = 0;
  uint64_t live_count = 0;
  uint64_t peak_bytes = 0;
  uint64_t allocated_bytes = 0;
  uint64_t allocated_count = 0;
  uint64_t freed_bytes = 0;
  uint64_t freed_count = 0;
};

struct LedgerSite {
  uint64_t live_bytes = 0;
  uint64_t live_count = 0;
  uint64_t allocated_bytes = 0;
  uint64_t allocated_count = 0;
  uint64_t min_block_bytes = UINT64_MAX;
  uint64_t max_block_bytes = 0;
};

class AllocationLedger {
 public:
  using TotalKey = std::pair<MemoryClass, int32_t>;  // class, device
  using SiteKey = std::pair<MemoryClass, uint64_t>;  // class, stack id

  // `max_live`: allocations remembered at a time. More are counted in `table_full`: their bytes
  // are in the allocated totals, and not in the live ones.
  explicit AllocationLedger(size_t max_live) : max_live_(max_live) {}

  void Allocate(AllocationKey key, const LedgerAllocation& allocation);
  void BeginFree(pid_t tid, AllocationKey key);
  void FailFree(pid_t tid);

  // The same for calls that free several allocations, or none yet.
  std::optional<LedgerAllocation> Take(AllocationKey key);
  void PutBack(AllocationKey key, const LedgerAllocation& allocation);

  // Everything ends that was allocated before `time_ns`: the process is another program now.
  void EndAllBefore(uint64_t time_ns);
  // A context is gone and took what it owned.
  void EndOwnedBefore(uint64_t owner, uint64_t time_ns);
  bool HasOwnedBy(uint64_t owner) const;
  // Owners of live allocations, kDeviceOwned apart.
  std::set<uint64_t> ContextOwners() const;

  // What another witness knew as live. Known addresses, live or freed since this ledger began, win.
  void Seed(AllocationKey key, const LedgerAllocation& allocation);

  // The live allocation of `key`, or null.
  const LedgerAllocation* Find(AllocationKey key) const;

  const std::map<TotalKey, LedgerTotal>& totals() const { return totals_; }
  const std::map<SiteKey, LedgerSite>& sites() const { return sites_; }
  uint64_t unknown_frees() const { return unknown_frees_; }
  uint64_t table_full() const { return table_full_; }

 private:
  struct PendingFree {
    AllocationKey key;
    std::optional<LedgerAllocation> taken;
  };

  template <typename Predicate>
  void EndIf(Predicate ends);
  void Insert(AllocationKey key, const LedgerAllocation& allocation);
  void AddLive(const LedgerAllocation& allocation);
  void RemoveLive(const LedgerAllocation& allocation);
  void RememberFreed(AllocationKey key);

  size_t max_live_;
  std::unordered_map<AllocationKey, LedgerAllocation, AllocationKeyHash> live_;
  // The last free of each thread; it may still fail. Its success is not reported.
  std::unordered_map<pid_t, PendingFree> pending_;
  // Freed since the ledger began, for Seed.
  std::unordered_set<AllocationKey, AllocationKeyHash> freed_;
  std::map<TotalKey, LedgerTotal> totals_;
  std::map<SiteKey, LedgerSite> sites_;
  uint64_t unknown_frees_ = 0;
  uint64_t table_full_ = 0;
};

}  // namespace tidemark
