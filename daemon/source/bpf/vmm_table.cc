#include "daemon/source/bpf/vmm_table.h"

#include <iterator>

namespace tidemark {

void VmmTable::Create(uint64_t handle) {
  memory_[handle] = {.handles = 1, .mappings = 0};
  memory_of_handle_[handle] = handle;
}

void VmmTable::Retain(uint64_t handle, uint64_t address) {
  auto mapped = mappings_.upper_bound(address);
  if (mapped == mappings_.begin()) return;
  --mapped;
  if (address - mapped->first >= mapped->second.bytes) return;
  memory_of_handle_[handle] = mapped->second.memory;
  memory_[mapped->second.memory].handles += 1;
}

void VmmTable::Map(uint64_t address, uint64_t bytes, uint64_t handle) {
  auto known = memory_of_handle_.find(handle);
  if (known == memory_of_handle_.end()) return;
  mappings_[address] = {bytes, known->second};
  memory_[known->second].mappings += 1;
}

void VmmTable::DropIfFree(uint64_t memory, Change* change) {
  const Memory& held = memory_[memory];
  if (held.handles == 0 && held.mappings == 0) change->freed.push_back(memory);
}

VmmTable::Change VmmTable::Release(uint64_t handle) {
  Change change;
  auto known = memory_of_handle_.find(handle);
  if (known == memory_of_handle_.end()) return change;
  Memory& memory = memory_[known->second];
  if (memory.handles == 0) return change;
  memory.handles -= 1;
  change.released_handle = handle;
  DropIfFree(known->second, &change);
  return change;
}

VmmTable::Change VmmTable::Unmap(uint64_t address, uint64_t bytes) {
  Change change;
  const uint64_t end = address + bytes;
  auto first = mappings_.lower_bound(address);
  if (first != mappings_.begin()) {
    auto before = std::prev(first);
    if (before->first + before->second.bytes > address) return change;
  }
  auto last = first;
  for (; last != mappings_.end() && last->first < end; ++last) {
    if (last->first + last->second.bytes > end) return {};
    change.unmapped.push_back({last->first, last->second.bytes, last->second.memory});
  }
  mappings_.erase(first, last);
  for (const Change::Unmapped& gone : change.unmapped) {
    memory_[gone.memory].mappings -= 1;
    DropIfFree(gone.memory, &change);
  }
  return change;
}

// Memory that became free stays in the tables with nothing holding it: the call may still fail, and
// a new allocation with that handle overwrites it.
void VmmTable::Undo(const Change& change) {
  auto known = memory_of_handle_.find(change.released_handle);
  if (change.released_handle != 0 && known != memory_of_handle_.end()) {
    memory_[known->second].handles += 1;
  }
  for (const Change::Unmapped& gone : change.unmapped) {
    mappings_[gone.address] = {gone.bytes, gone.memory};
    memory_[gone.memory].mappings += 1;
  }
}

void VmmTable::Clear() {
  memory_.clear();
  memory_of_handle_.clear();
  mappings_.clear();
}

}  // namespace tidemark
