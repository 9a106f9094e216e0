#include "cupti_agent/ledger/live_table.h"

#include <bit>

namespace tidemark::agent {

bool LiveTable::Init(wire::LiveRow* rows, uint64_t* used, uint32_t capacity) {
  rows_ = rows;
  used_ = used;
  capacity_ = capacity;
  max_buckets_ = std::bit_ceil(capacity < 128 ? 128u : capacity);
  heads_ = MapPrivate<uint32_t>(max_buckets_);
  links_ = MapPrivate<Link>(capacity);
  return heads_ != nullptr && links_ != nullptr;
}

uint32_t LiveTable::Find(uint64_t address, Space space) const {
  uint32_t at = heads_[Bucket(Hash(address, space))];
  while (at != 0) {
    if (rows_[at - 1].address == address && links_[at - 1].space == space) return at - 1;
    at = links_[at - 1].next;
  }
  return kNone;
}

uint32_t LiveTable::Insert(const wire::LiveRow& row, Space space, uint8_t totals_row,
                           uint16_t owner) {
  uint32_t number;
  if (free_ != 0) {
    number = free_ - 1;
    free_ = links_[number].next;
  } else if (*used_ < capacity_) {
    number = static_cast<uint32_t>(*used_);
    __atomic_store_n(used_, *used_ + 1, __ATOMIC_RELEASE);
  } else {
    return kNone;
  }
  ++live_;
  if (live_ > level_ + split_ && level_ + split_ < max_buckets_) SplitOneBucket();

  uint32_t& head = heads_[Bucket(Hash(row.address, space))];
  links_[number] = {head, totals_row, space, owner};
  head = number + 1;
  wire::LiveRow& to = rows_[number];
  to.bytes = row.bytes;
  to.estimated_bytes = row.estimated_bytes;
  to.site = row.site;
  to.step = row.step;
  // Last: a reader takes a row with an address for a whole one.
  __atomic_store_n(&to.address, row.address, __ATOMIC_RELEASE);
  return number;
}

void LiveTable::Erase(uint32_t number) {
  uint32_t* at = &heads_[Bucket(Hash(rows_[number].address, links_[number].space))];
  while (*at != number + 1) at = &links_[*at - 1].next;
  *at = links_[number].next;
  __atomic_store_n(&rows_[number].address, kErased, __ATOMIC_RELEASE);
  links_[number].next = free_;
  free_ = number + 1;
  --live_;
}

void LiveTable::SplitOneBucket() {
  uint32_t* stay = &heads_[split_];
  uint32_t moved = 0;
  uint32_t* to = &moved;
  for (uint32_t at = *stay; at != 0;) {
    const uint32_t next = links_[at - 1].next;
    if (Hash(rows_[at - 1].address, links_[at - 1].space) & level_) {
      *to = at;
      to = &links_[at - 1].next;
    } else {
      *stay = at;
      stay = &links_[at - 1].next;
    }
    at = next;
  }
  *stay = 0;
  *to = 0;
  heads_[level_ + split_] = moved;
  if (++split_ == level_) {
    level_ *= 2;
    split_ = 0;
  }
}

uint64_t LiveTable::ResidentIndexBytes() const {
  return ResidentBytes(heads_, max_buckets_ * sizeof(uint32_t)) +
         ResidentBytes(links_, capacity_ * sizeof(Link));
}

}  // namespace tidemark::agent
