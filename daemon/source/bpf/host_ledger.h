// The mappings of one process and what call sites hold of them.
//
//      start        end
//        |-- region --|   class, call site that mapped it, resident estimate by touching call site
//
// Regions never overlap; unmapping a part splits one. What was mapped before the ledger began is
// there as regions that count nothing, so that their end is not taken for the end of others.
//
// Not thread-safe; owned by whoever drains the reports.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "daemon/snapshot/memory_class.h"
#include "daemon/source/bpf/allocation_ledger.h"

namespace tidemark {

struct HostSite : LedgerSite {
  uint64_t resident_bytes = 0;  // touched here and not given back, by sampled faults
};

class HostLedger {
 public:
  using SiteKey = std::pair<MemoryClass, uint64_t>;  // class, stack id

  struct Region {
    uint64_t end = 0;
    MemoryClass memory_class = MemoryClass::kAnon;
    uint64_t stack_id = 0;
    bool before = false;                    // mapped before the ledger began: counts nothing
    std::map<uint64_t, uint64_t> resident;  // by the stack that touched it
  };
  // What a call took out, by start.
  using Pieces = std::vector<std::pair<uint64_t, Region>>;

  // Maps [start, start + bytes) anew, over whatever was there.
  void Map(uint64_t start, uint64_t bytes, MemoryClass memory_class, uint64_t stack_id);
  // The same for what was there before.
  void MapBefore(uint64_t start, uint64_t bytes, MemoryClass memory_class);

  Pieces Unmap(uint64_t start, uint64_t bytes);
  // The call failed: as it was.
  void PutBack(const Pieces& pieces);
  // The call moved `pieces`, which began at `from`, to `to` and made them `bytes` long. Growth
  // belongs to the site of the last piece, or to `stack_id` when that is not known.
  void Move(const Pieces& pieces, uint64_t from, uint64_t to, uint64_t bytes, uint64_t stack_id);

  // A sampled fault at `address`, which stands for `bytes`.
  void Touch(uint64_t address, uint64_t stack_id, uint64_t bytes);
  // Pages of the range were given back although it stays mapped.
  void Discard(uint64_t start, uint64_t bytes);

  void Lock(uint64_t start, uint64_t bytes);
  void Unlock(uint64_t start, uint64_t bytes);
  void UnlockAll() { locked_.clear(); }
  uint64_t locked_bytes() const;

  void Clear();

  const std::map<MemoryClass, LedgerTotal>& totals() const { return totals_; }
  const std::map<SiteKey, HostSite>& sites() const { return sites_; }
  // Sum of the sites' resident estimates.
  uint64_t ResidentEstimate(MemoryClass memory_class) const;

 private:
  void Insert(uint64_t start, Region region);
  void Count(uint64_t start, const Region& region);
  void Uncount(uint64_t start, const Region& region);
  // Makes `address` a border between regions.
  void Split(uint64_t address);

  std::map<uint64_t, Region> regions_;
  std::map<uint64_t, uint64_t> locked_;  // start -> end, disjoint
  std::map<MemoryClass, LedgerTotal> totals_;
  std::map<SiteKey, HostSite> sites_;
};

}  // namespace tidemark
