// Strings and modules, each kept once in the region. Nothing is ever forgotten: an offset or an
// index stays valid for the life of the process, because the daemon keeps it too.
//
// Threads: whoever holds the ledger's lock.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "cupti_agent/ledger/region.h"
#include "cupti_agent/ledger/stack_view.h"

namespace tidemark::agent {

class StringTable {
 public:
  bool Init(const Region& region);

  // Offset of `text`, cut to kMaxStringBytes at a character boundary; nullopt when the pool is
  // full. The empty string is at offset 0.
  std::optional<uint32_t> Intern(std::string_view text);

 private:
  std::string_view At(uint32_t offset) const;

  char* pool_ = nullptr;
  wire::SectionEntry* entry_ = nullptr;
  uint32_t* slots_ = nullptr;  // offset + 1, open addressing, never erased
  uint32_t slot_count_ = 0;
  uint32_t strings_ = 0;
};

class ModuleTable {
 public:
  bool Init(const Region& region, StringTable* strings);

  // Index of the module that `frame` names; nullopt when this or the string table is full.
  std::optional<uint32_t> Intern(const StackFrame& frame);

 private:
  StringTable* strings_ = nullptr;
  wire::ModuleRow* rows_ = nullptr;
  wire::SectionEntry* entry_ = nullptr;
  uint32_t* slots_ = nullptr;  // index + 1
  uint32_t slot_count_ = 0;
};

}  // namespace tidemark::agent
