// Memory behind handles (cuMemCreate) and imported memory that is opened more than once (cuIpc...):
// things with counts of references, which the ledger's live table does not have.
//
// Bytes of a cuMemCreate are live until its last handle is released AND its last mapping is gone,
// in either order. The handle's number may be given to a new allocation as soon as the last release
// begins, although mappings keep the old memory alive; so the ledger knows the memory by its place
// in this table, not by its handle.
//
//   handle --> Physical { references, maps } <-- Mapping { address, bytes }
//
// Threads: any; a bounded lock inside, taken before the ledger's.
#pragma once

#include <cstdint>

#include "cupti_agent/ledger/ledger.h"
#include "cupti_agent/ledger/ledger_lock.h"

namespace tidemark::agent {

class PhysicalMemory {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  bool Init();

  // A cuMemCreate (owned) or an import of somebody else's memory (not owned, never booked).
  void Created(Ledger* ledger, uint64_t handle, uint64_t bytes, int16_t device,
               const StackView* stack);
  void Imported(uint64_t handle);
  void Retained(uint64_t address, uint64_t handle);
  void Mapped(uint64_t address, uint64_t bytes, uint64_t handle);

  // A release begins. Returns its place for ReleaseEnded; kNone when the handle is unknown.
  uint32_t ReleaseBegan(Ledger* ledger, uint64_t handle);
  void ReleaseEnded(Ledger* ledger, uint32_t place, bool success);

  // An unmap of [address, address + bytes) begins; `call` is any number but 0 that UnmapEnded
  // repeats.
  void UnmapBegan(Ledger* ledger, uint64_t address, uint64_t bytes, uint32_t call);
  void UnmapEnded(Ledger* ledger, uint64_t address, uint64_t bytes, uint32_t call, bool success);

  // Opens of imported addresses. True when this is the first one, or the last close.
  bool IpcOpened(uint64_t address);
  bool IpcClosing(uint64_t address);
  void IpcCloseFailed(uint64_t address);

 private:
  struct Physical {
    uint64_t handle;
    uint32_t next;  // place + 1 in the handle's bucket, or of the free list
    uint32_t references;
    uint32_t maps;
    uint32_t pending;  // calls between their begin and their end that need this place
    bool owned;
    PendingFree taken;  // while a call that ends it is under way
  };
  struct Mapping {
    uint64_t address;
    uint64_t bytes;
    uint32_t next;  // place + 1 in the address's bucket, or of the free list
    uint32_t physical;
    uint32_t call;  // the unmap under way; 0 = none
  };
  struct IpcOpen {
    uint64_t address;
    uint32_t opens;
  };
  static constexpr uint32_t kMaxPhysical = 1 << 17;
  static constexpr uint32_t kMaxMappings = 1 << 18;
  static constexpr uint32_t kBuckets = 1 << 16;
  static constexpr uint32_t kMaxIpc = 4096;

  uint32_t FindHandle(uint64_t handle) const;
  void LinkHandle(uint32_t place);
  void UnlinkHandle(uint32_t place);
  uint32_t NewPhysical(uint64_t handle, bool owned);
  void TakeIfEnded(Ledger* ledger, uint32_t place);
  void PutBack(Ledger* ledger, uint32_t place);
  void DropIfEnded(uint32_t place);
  uint32_t FindMapping(uint64_t address, uint32_t call) const;
  void EraseMapping(uint32_t place);
  template <typename Function>
  void ForEachMapping(uint64_t address, uint64_t bytes, uint32_t call, Function function);

  LedgerLock lock_;
  Physical* physical_ = nullptr;
  Mapping* mappings_ = nullptr;
  uint32_t* handle_heads_ = nullptr;
  uint32_t* mapping_heads_ = nullptr;
  IpcOpen* ipc_ = nullptr;
  uint32_t physical_used_ = 0;
  uint32_t physical_free_ = 0;
  uint32_t mappings_used_ = 0;
  uint32_t mappings_free_ = 0;
};

}  // namespace tidemark::agent
