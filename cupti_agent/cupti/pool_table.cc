#include "cupti_agent/cupti/pool_table.h"

namespace tidemark::agent {

void PoolTable::Add(abi::CUmemoryPool pool, int16_t device) {
  if (lock_.Acquire() != LedgerLock::Outcome::kHeld) return;
  for (Entry& entry : entries_) {
    if (entry.pool != nullptr && entry.pool != pool) continue;
    entry = {pool, device};
    break;
  }
  lock_.Release();
}

void PoolTable::Remove(abi::CUmemoryPool pool) {
  if (lock_.Acquire() != LedgerLock::Outcome::kHeld) return;
  for (Entry& entry : entries_) {
    if (entry.pool == pool) entry = {};
  }
  lock_.Release();
}

bool PoolTable::DeviceOf(abi::CUmemoryPool pool, int16_t* device) {
  if (lock_.Acquire() != LedgerLock::Outcome::kHeld) return false;
  bool found = false;
  for (const Entry& entry : entries_) {
    if (entry.pool != pool) continue;
    *device = entry.device;
    found = true;
  }
  lock_.Release();
  return found;
}

}  // namespace tidemark::agent
