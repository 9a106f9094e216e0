#include "cupti_agent/cupti/physical_memory.h"

#include "cupti_agent/ledger/private_memory.h"

namespace tidemark::agent {
namespace {

// The ledger's key of a place; live tables give 0 and 1 a meaning of their own.
uint64_t Key(uint32_t place) { return static_cast<uint64_t>(place) + 2; }

class Held {
 public:
  explicit Held(LedgerLock& lock)
      : lock_(lock), held_(lock.Acquire() == LedgerLock::Outcome::kHeld) {}
  ~Held() {
    if (held_) lock_.Release();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  explicit operator bool() const { return held_; }

 private:
  LedgerLock& lock_;
  bool held_;
};

}  // namespace

bool PhysicalMemory::Init() {
  physical_ = MapPrivate<Physical>(kMaxPhysical);
  mappings_ = MapPrivate<Mapping>(kMaxMappings);
  handle_heads_ = MapPrivate<uint32_t>(kBuckets);
  mapping_heads_ = MapPrivate<uint32_t>(kBuckets);
  ipc_ = MapPrivate<IpcOpen>(kMaxIpc);
  return physical_ != nullptr && mappings_ != nullptr && handle_heads_ != nullptr &&
         mapping_heads_ != nullptr && ipc_ != nullptr;
}

uint32_t PhysicalMemory::FindHandle(uint64_t handle) const {
  for (uint32_t at = handle_heads_[Scatter(handle) % kBuckets]; at != 0;
       at = physical_[at - 1].next) {
    if (physical_[at - 1].handle == handle) return at - 1;
  }
  return kNone;
}

void PhysicalMemory::LinkHandle(uint32_t place) {
  uint32_t& head = handle_heads_[Scatter(physical_[place].handle) % kBuckets];
  physical_[place].next = head;
  head = place + 1;
}

void PhysicalMemory::UnlinkHandle(uint32_t place) {
  uint32_t* at = &handle_heads_[Scatter(physical_[place].handle) % kBuckets];
  while (*at != 0 && *at != place + 1) at = &physical_[*at - 1].next;
  if (*at != 0) *at = physical_[place].next;
}

uint32_t PhysicalMemory::NewPhysical(uint64_t handle, bool owned) {
  uint32_t place;
  if (physical_free_ != 0) {
    place = physical_free_ - 1;
    physical_free_ = physical_[place].next;
  } else if (physical_used_ < kMaxPhysical) {
    place = physical_used_++;
  } else {
    return kNone;
  }
  physical_[place] = {handle, 0, 1, 0, 0, owned, {}};
  LinkHandle(place);
  return place;
}

void PhysicalMemory::Created(Ledger* ledger, uint64_t handle, uint64_t bytes, int16_t device,
                             const StackView* stack) {
  Held held(lock_);
  if (!held) return ledger->CountLoss(wire::Loss::kLockTimeout, 1, bytes);
  const uint32_t place = NewPhysical(handle, /*owned=*/true);
  if (place == kNone) return ledger->DriverUntracked(wire::Kind::kVmm, device, bytes);
  ledger->DriverAllocated({.space = Space::kHandle,
                           .kind = wire::Kind::kVmm,
                           .device = device,
                           .address = Key(place),
                           .bytes = bytes},
                          bytes, stack);
}

void PhysicalMemory::Imported(uint64_t handle) {
  Held held(lock_);
  if (!held) return;
  // Importing the same memory again may give the same handle again.
  const uint32_t place = FindHandle(handle);
  if (place != kNone) {
    ++physical_[place].references;
  } else {
    NewPhysical(handle, /*owned=*/false);
  }
}

void PhysicalMemory::Retained(uint64_t address, uint64_t handle) {
  Held held(lock_);
  if (!held) return;
  uint32_t place = FindHandle(handle);
  if (place == kNone) {
    // The last handle was released; a mapping that holds `address` kept the memory alive.
    for (uint32_t i = 0; i < mappings_used_ && place == kNone; ++i) {
      const Mapping& m = mappings_[i];
      if (m.bytes != 0 && address >= m.address && address < m.address + m.bytes) place = m.physical;
    }
    if (place == kNone) return;
    physical_[place].handle = handle;
    LinkHandle(place);
  }
  ++physical_[place].references;
}

void PhysicalMemory::Mapped(uint64_t address, uint64_t bytes, uint64_t handle) {
  Held held(lock_);
  if (!held) return;
  const uint32_t physical = FindHandle(handle);
  if (physical == kNone) return;
  uint32_t place;
  if (mappings_free_ != 0) {
    place = mappings_free_ - 1;
    mappings_free_ = mappings_[place].next;
  } else if (mappings_used_ < kMaxMappings) {
    place = mappings_used_++;
  } else {
    return;
  }
  uint32_t& head = mapping_heads_[Scatter(address) % kBuckets];
  mappings_[place] = {address, bytes, head, physical, 0};
  head = place + 1;
  ++physical_[physical].maps;
}

// The memory goes with the call that begins now: books it out at once, for its handle and addresses
// may be given to others before the call returns.
void PhysicalMemory::TakeIfEnded(Ledger* ledger, uint32_t place) {
  Physical& p = physical_[place];
  if (p.references == 0 && p.maps == 0 && p.owned) {
    ledger->DriverFreeBegan(Space::kHandle, Key(place), &p.taken);
  }
}

void PhysicalMemory::PutBack(Ledger* ledger, uint32_t place) {
  Physical& p = physical_[place];
  if (p.taken.found) ledger->DriverFreeFailed(p.taken);
  p.taken.found = false;
}

void PhysicalMemory::DropIfEnded(uint32_t place) {
  Physical& p = physical_[place];
  if (p.references != 0 || p.maps != 0 || p.pending != 0) return;
  p.next = physical_free_;
  physical_free_ = place + 1;
}

uint32_t PhysicalMemory::ReleaseBegan(Ledger* ledger, uint64_t handle) {
  Held held(lock_);
  if (!held) return kNone;
  const uint32_t place = FindHandle(handle);
  if (place == kNone) return kNone;
  Physical& p = physical_[place];
  ++p.pending;
  if (--p.references == 0) UnlinkHandle(place);
  TakeIfEnded(ledger, place);
  return place;
}

void PhysicalMemory::ReleaseEnded(Ledger* ledger, uint32_t place, bool success) {
  Held held(lock_);
  if (!held) return;
  Physical& p = physical_[place];
  --p.pending;
  if (!success) {
    if (p.references++ == 0) LinkHandle(place);
    PutBack(ledger, place);
  }
  DropIfEnded(place);
}

uint32_t PhysicalMemory::FindMapping(uint64_t address, uint32_t call) const {
  for (uint32_t at = mapping_heads_[Scatter(address) % kBuckets]; at != 0;
       at = mappings_[at - 1].next) {
    if (mappings_[at - 1].address == address && mappings_[at - 1].call == call) return at - 1;
  }
  return kNone;
}

void PhysicalMemory::EraseMapping(uint32_t place) {
  uint32_t* at = &mapping_heads_[Scatter(mappings_[place].address) % kBuckets];
  while (*at != place + 1) at = &mappings_[*at - 1].next;
  *at = mappings_[place].next;
  mappings_[place] = {};
  mappings_[place].next = mappings_free_;
  mappings_free_ = place + 1;
}

// The mappings in the range that belong to the unmap `call`; 0 = those that belong to none. An
// address may be there twice: unmapped by a call that has not returned yet, and mapped again.
// Mappings usually follow one another; where the range has a hole, the whole table is searched.
template <typename Function>
void PhysicalMemory::ForEachMapping(uint64_t address, uint64_t bytes, uint32_t call,
                                    Function function) {
  const uint64_t end = address + bytes;
  uint64_t at = address;
  while (at < end) {
    const uint32_t place = FindMapping(at, call);
    if (place == kNone) break;
    const uint64_t next = at + mappings_[place].bytes;
    function(place);
    at = next;
  }
  if (at >= end) return;
  for (uint32_t place = 0; place < mappings_used_; ++place) {
    const Mapping& m = mappings_[place];
    if (m.bytes != 0 && m.call == call && m.address >= at && m.address < end) function(place);
  }
}

void PhysicalMemory::UnmapBegan(Ledger* ledger, uint64_t address, uint64_t bytes, uint32_t call) {
  Held held(lock_);
  if (!held) return;
  ForEachMapping(address, bytes, 0, [&](uint32_t place) {
    Mapping& m = mappings_[place];
    m.call = call;
    ++physical_[m.physical].pending;
    --physical_[m.physical].maps;
    TakeIfEnded(ledger, m.physical);
  });
}

void PhysicalMemory::UnmapEnded(Ledger* ledger, uint64_t address, uint64_t bytes, uint32_t call,
                                bool success) {
  Held held(lock_);
  if (!held) return;
  ForEachMapping(address, bytes, call, [&](uint32_t place) {
    Mapping& m = mappings_[place];
    const uint32_t physical = m.physical;
    m.call = 0;
    --physical_[physical].pending;
    if (success) {
      EraseMapping(place);
    } else {
      ++physical_[physical].maps;
      PutBack(ledger, physical);
    }
    DropIfEnded(physical);
  });
}

bool PhysicalMemory::IpcOpened(uint64_t address) {
  Held held(lock_);
  if (!held) return true;
  IpcOpen* free = nullptr;
  for (uint32_t i = 0; i < kMaxIpc; ++i) {
    if (ipc_[i].opens != 0 && ipc_[i].address == address) return ++ipc_[i].opens == 1;
    if (ipc_[i].opens == 0 && free == nullptr) free = &ipc_[i];
    if (ipc_[i].address == 0) break;  // never used, nor any after it
  }
  if (free != nullptr) *free = {address, 1};
  return true;
}

bool PhysicalMemory::IpcClosing(uint64_t address) {
  Held held(lock_);
  if (!held) return true;
  for (uint32_t i = 0; i < kMaxIpc && ipc_[i].address != 0; ++i) {
    if (ipc_[i].opens != 0 && ipc_[i].address == address) return --ipc_[i].opens == 0;
  }
  return true;
}

void PhysicalMemory::IpcCloseFailed(uint64_t address) { IpcOpened(address); }

}  // namespace tidemark::agent
