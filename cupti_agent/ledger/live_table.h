// Address (or handle) -> what is live there. The rows lie in the region, dense from the front, so
// that a small job touches few pages; the index beside them is private.
//
//   heads (private):   [ . ][ 3 ][ . ][ 1 ] ...          bucket -> row number + 1
//   links (private):     next, totals row, space, owner   one per row
//   rows (region):     [row 1][row 2][row 3] ...          erased rows are reused, newest first
//
// The index grows by linear hashing: one bucket is split for each insertion beyond the number of
// buckets, so no insertion ever pays for a rehash of the whole table under the allocator's lock.
//
//   bucket(h) = h mod 2n if that bucket exists already, else h mod n
//
// Threads: whoever holds the ledger's lock.
#pragma once

#include <cstdint>

#include "cupti_agent/ledger/private_memory.h"
#include "wire/region.h"

namespace tidemark::agent {

// What a number names: a CUarray handle may equal an address, so the key is the pair.
enum class Space : uint8_t {
  kAddress = 0,     // of memory that the process allocated
  kHandle = 1,      // place of a cuMemCreate in the agent's own table
  kArray = 2,       // CUarray or CUmipmappedArray
  kRegistered = 3,  // host address of a registration
  kImported = 4,    // device address of memory that another process owns
};

inline constexpr uint16_t kNoOwner = UINT16_MAX;

class LiveTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Link {
    uint32_t next;  // row number + 1
    uint8_t totals_row;
    Space space;
    uint16_t owner;  // context or pool whose end frees this; kNoOwner = none
  };

  // False when there is no memory for the index.
  bool Init(wire::LiveRow* rows, uint64_t* used, uint32_t capacity);

  // Row number, or kNone.
  uint32_t Find(uint64_t address, Space space) const;

  // Books `row` (address set, not live yet) and returns its number; kNone when the table is full.
  uint32_t Insert(const wire::LiveRow& row, Space space, uint8_t totals_row, uint16_t owner);

  void Erase(uint32_t number);

  wire::LiveRow& row(uint32_t number) { return rows_[number]; }
  Link& link(uint32_t number) { return links_[number]; }
  // Rows ever used; those with an address above 1 are live.
  uint32_t used() const { return static_cast<uint32_t>(*used_); }
  uint32_t live() const { return live_; }
  bool full() const { return free_ == 0 && *used_ >= capacity_; }
  bool IsLive(uint32_t number) const { return rows_[number].address > kErased; }

  uint64_t ResidentIndexBytes() const;

  static constexpr uint64_t kErased = 1;

 private:
  uint32_t Bucket(uint64_t hash) const {
    const uint64_t wide = hash & (2 * level_ - 1);
    return static_cast<uint32_t>(wide < level_ + split_ ? wide : hash & (level_ - 1));
  }
  static uint64_t Hash(uint64_t address, Space space) {
    return Scatter(address ^ (static_cast<uint64_t>(space) << 60));
  }
  void SplitOneBucket();

  wire::LiveRow* rows_ = nullptr;
  uint64_t* used_ = nullptr;
  uint32_t capacity_ = 0;
  uint32_t max_buckets_ = 0;
  uint32_t* heads_ = nullptr;
  Link* links_ = nullptr;
  uint32_t free_ = 0;  // row number + 1
  uint32_t live_ = 0;
  uint64_t level_ = 64;  // n
  uint64_t split_ = 0;   // buckets of this level that are split already
};

}  // namespace tidemark::agent
