// What a freeing call has to remember from its beginning to its end. CUPTI gives a subscriber eight
// bytes per call; they hold the number of a slot here.
//
// Threads: any, lock-free. A slot belongs to the thread whose call it is.
#pragma once

#include <atomic>
#include <cstdint>

#include "cupti_agent/ledger/ledger.h"

namespace tidemark::agent {

struct PendingCall {
  uintptr_t thread = 0;
  uint32_t cbid = 0;
  PendingFree free;
  uint32_t place = 0;  // of PhysicalMemory
  uint16_t old_owner = kNoOwner;
  uint16_t new_owner = kNoOwner;
};

class PendingCalls {
 public:
  static constexpr uint32_t kSlots = 1024;

  // Number + 1 of a free slot, cleared and marked with this thread and `cbid`; 0 when more calls
  // than slots are under way: the call is then booked as if it succeeded.
  uint64_t Begin(uint32_t cbid);

  // The slot behind the number, if this thread began `cbid` with it; else null. The number may be
  // anything: a call that began before the callbacks were on has left no number.
  PendingCall* Find(uint64_t number, uint32_t cbid);
  void End(uint64_t number);

 private:
  std::atomic<uint64_t> taken_[kSlots / 64] = {};
  PendingCall slots_[kSlots] = {};
};

}  // namespace tidemark::agent
