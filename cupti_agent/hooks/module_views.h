// All loaded modules as ElfModule views, and the search for a definition among them. Built and used
// inside one HoldModuleList, under the hooks' lock.
#pragma once

#include <cstdint>

#include "cupti_agent/hooks/elf_module.h"

namespace tidemark::agent {

class ModuleViews {
 public:
  static constexpr uint32_t kCapacity = 4096;

  void Build();

  uint32_t count() const { return count_; }
  const ElfModule& operator[](uint32_t i) const { return modules_[i]; }

  // The function that `importer` gets when it imports `name`: the loader's global scope first, then
  // the importer and what it needs, then anything loaded. 0 when nobody defines it.
  uint64_t Resolve(uint32_t importer, const char* name);

  // The first definition in list order; in modules whose file name begins with `home`, nullptr =
  // any.
  uint64_t Find(const char* name, bool prefix, const char* home = nullptr) const;

  // Index of the module that maps `address`, UINT32_MAX when none does.
  uint32_t Containing(uint64_t address) const;

 private:
  // Fills queue_ with `root` and everything it needs, breadth first; returns how many.
  uint32_t Closure(uint32_t root);
  uint32_t IndexOfNeeded(const char* needed) const;

  ElfModule modules_[kCapacity] = {};
  uint32_t count_ = 0;
  uint32_t global_end_ = 0;  // modules before it were loaded with the program; 0 = not known yet
  uint16_t queue_[kCapacity] = {};
  bool queued_[kCapacity] = {};
};

}  // namespace tidemark::agent
