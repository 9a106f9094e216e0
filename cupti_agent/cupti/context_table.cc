#include "cupti_agent/cupti/context_table.h"

namespace tidemark::agent {

ContextTable::Entry* ContextTable::FindLocked(abi::CUcontext context) {
  for (uint32_t i = 0; i < used_; ++i) {
    if (entries_[i].context == context) return &entries_[i];
  }
  return nullptr;
}

uint16_t ContextTable::NextOwner() {
  const uint16_t owner = next_owner_++;
  if (next_owner_ == kNoOwner) next_owner_ = 0;
  return owner;
}

bool ContextTable::Find(abi::CUcontext context, ContextInfo* info) {
  if (lock_.Acquire() != LedgerLock::Outcome::kHeld) return false;
  const Entry* entry = FindLocked(context);
  if (entry != nullptr) *info = entry->info;
  lock_.Release();
  return entry != nullptr;
}

ContextInfo ContextTable::Add(abi::CUcontext context, int16_t device) {
  ContextInfo info = {device, kNoOwner};
  if (lock_.Acquire() != LedgerLock::Outcome::kHeld) return info;
  Entry* entry = FindLocked(context);
  if (entry == nullptr && used_ < kCapacity) {
    entry = &entries_[used_++];
    *entry = {context, {device, NextOwner()}};
  }
  if (entry != nullptr) info = entry->info;
  lock_.Release();
  return info;
}

void ContextTable::SetPrimary(int16_t device, abi::CUcontext context) {
  if (device >= 0 && device < kMaxDevices) primaries_[device] = context;
}

abi::CUcontext ContextTable::Primary(int16_t device) const {
  return device >= 0 && device < kMaxDevices ? primaries_[device].load() : nullptr;
}

uint16_t ContextTable::Retire(abi::CUcontext context, uint16_t* next) {
  *next = kNoOwner;
  if (lock_.Acquire() != LedgerLock::Outcome::kHeld) return kNoOwner;
  Entry* entry = FindLocked(context);
  const uint16_t old = entry == nullptr ? kNoOwner : entry->info.owner;
  if (entry != nullptr) *next = entry->info.owner = NextOwner();
  lock_.Release();
  return old;
}

void ContextTable::Forget(abi::CUcontext context, uint16_t owner) {
  if (lock_.Acquire() != LedgerLock::Outcome::kHeld) return;
  Entry* entry = FindLocked(context);
  if (entry != nullptr && entry->info.owner == owner) *entry = entries_[--used_];
  lock_.Release();
}

}  // namespace tidemark::agent
