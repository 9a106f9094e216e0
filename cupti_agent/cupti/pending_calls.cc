#include "cupti_agent/cupti/pending_calls.h"

#include <bit>

namespace tidemark::agent {

uint64_t PendingCalls::Begin(uint32_t cbid) {
  for (uint32_t word = 0; word < kSlots / 64; ++word) {
    uint64_t taken = taken_[word].load(std::memory_order_relaxed);
    while (taken != UINT64_MAX) {
      const uint32_t bit = static_cast<uint32_t>(std::countr_one(taken));
      if (!taken_[word].compare_exchange_weak(
              taken, taken | (1ull << bit), std::memory_order_acquire, std::memory_order_relaxed)) {
        continue;
      }
      const uint32_t index = word * 64 + bit;
      slots_[index] = {};
      slots_[index].thread = ThisThread();
      slots_[index].cbid = cbid;
      return index + 1;
    }
  }
  return 0;
}

PendingCall* PendingCalls::Find(uint64_t number, uint32_t cbid) {
  if (number == 0 || number > kSlots) return nullptr;
  const uint64_t index = number - 1;
  if ((taken_[index / 64].load(std::memory_order_acquire) >> (index % 64) & 1) == 0) return nullptr;
  PendingCall& slot = slots_[index];
  return slot.thread == ThisThread() && slot.cbid == cbid ? &slot : nullptr;
}

void PendingCalls::End(uint64_t number) {
  const uint64_t index = number - 1;
  taken_[index / 64].fetch_and(~(1ull << (index % 64)), std::memory_order_release);
}

}  // namespace tidemark::agent
