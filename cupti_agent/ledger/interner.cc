#include "cupti_agent/ledger/interner.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "cupti_agent/ledger/private_memory.h"

namespace tidemark::agent {
namespace {

constexpr uint32_t kLengthBytes = sizeof(uint16_t);

uint64_t HashText(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return Scatter(hash);
}

std::string_view Cut(std::string_view text) {
  if (text.size() <= kMaxStringBytes) return text;
  size_t end = kMaxStringBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace

bool StringTable::Init(const Region& region) {
  pool_ = region.Rows<char>(wire::Section::kStrings);
  entry_ = &region.Entry(wire::Section::kStrings);
  // A slot for every 16 bytes of pool: names are longer, so the pool fills first.
  slot_count_ = std::bit_ceil(static_cast<uint32_t>(entry_->capacity / 16 + 64));
  slots_ = MapPrivate<uint32_t>(slot_count_);
  return slots_ != nullptr && Intern("") == 0u;
}

std::string_view StringTable::At(uint32_t offset) const {
  uint16_t length;
  memcpy(&length, pool_ + offset, kLengthBytes);
  return {pool_ + offset + kLengthBytes, length};
}

std::optional<uint32_t> StringTable::Intern(std::string_view text) {
  text = Cut(text);
  uint64_t slot = HashText(text) & (slot_count_ - 1);
  for (; slots_[slot] != 0; slot = (slot + 1) & (slot_count_ - 1)) {
    if (At(slots_[slot] - 1) == text) return slots_[slot] - 1;
  }
  const uint64_t offset = entry_->used;
  if (offset + kLengthBytes + text.size() > entry_->capacity || strings_ >= slot_count_ / 4 * 3) {
    return std::nullopt;
  }
  const auto length = static_cast<uint16_t>(text.size());
  memcpy(pool_ + offset, &length, kLengthBytes);
  memcpy(pool_ + offset + kLengthBytes, text.data(), text.size());
  __atomic_store_n(&entry_->used, offset + kLengthBytes + text.size(), __ATOMIC_RELEASE);
  slots_[slot] = static_cast<uint32_t>(offset) + 1;
  ++strings_;
  return static_cast<uint32_t>(offset);
}

bool ModuleTable::Init(const Region& region, StringTable* strings) {
  strings_ = strings;
  rows_ = region.Rows<wire::ModuleRow>(wire::Section::kModules);
  entry_ = &region.Entry(wire::Section::kModules);
  slot_count_ = std::bit_ceil(static_cast<uint32_t>(entry_->capacity * 2));
  slots_ = MapPrivate<uint32_t>(slot_count_);
  return slots_ != nullptr;
}

std::optional<uint32_t> ModuleTable::Intern(const StackFrame& frame) {
  const std::optional<uint32_t> path = strings_->Intern(frame.module_path);
  if (!path) return std::nullopt;
  // The base is part of the key: a module may be unloaded and its address reused by another.
  uint64_t slot = Scatter(frame.module_base ^ *path) & (slot_count_ - 1);
  for (; slots_[slot] != 0; slot = (slot + 1) & (slot_count_ - 1)) {
    const wire::ModuleRow& row = rows_[slots_[slot] - 1];
    if (row.base == frame.module_base && row.path == *path) return slots_[slot] - 1;
  }
  if (entry_->used >= entry_->capacity) return std::nullopt;
  const auto index = static_cast<uint32_t>(entry_->used);
  wire::ModuleRow& row = rows_[index];
  row.path = *path;
  row.base = frame.module_base;
  row.build_id_bytes =
      static_cast<uint8_t>(std::min<size_t>(frame.build_id_bytes, sizeof(row.build_id)));
  if (row.build_id_bytes > 0) memcpy(row.build_id, frame.build_id, row.build_id_bytes);
  __atomic_store_n(&entry_->used, entry_->used + 1, __ATOMIC_RELEASE);
  slots_[slot] = index + 1;
  return index;
}

}  // namespace tidemark::agent
