// One loaded module seen through its dynamic section: names it imports, names it defines.
//
// A view only: valid while the module stays loaded, that is inside a dl_iterate_phdr callback,
// where the loader's list is held. The bytes are those the loader itself trusts.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>

namespace tidemark::agent {

class ElfModule {
 public:
  // False when the module has no symbols to speak of (the vdso, a static program).
  bool Load(const dl_phdr_info& info);

  uint64_t base() const { return base_; }
  const char* name() const { return name_; }  // as the loader knows it; "" for the program
  const ElfW(Dyn) * dynamic() const { return dynamic_; }
  const char* soname() const { return soname_; }  // "" when it has none
  // Whether its file's name, without the folder, begins so.
  bool FileBegins(const char* prefix) const;
  bool Contains(uint64_t address) const { return address >= begin_ && address < end_; }
  uint64_t begin() const { return begin_; }
  uint64_t end() const { return end_; }

  // Calls `visit(slot, name, symbol)` for every JUMP_SLOT and GLOB_DAT relocation against a
  // function symbol. Data pointers (R_X86_64_64) are the program's own and are left alone.
  template <typename Visit>
  void ForEachSlot(Visit visit) const {
    VisitTable(plt_relocations_, plt_relocation_count_, visit);
    VisitTable(relocations_, relocation_count_, visit);
  }

  // Address of the function or variable that this module defines under `name`, 0 when it does not.
  // An indirect function (IFUNC) counts as not defined: its symbol is the resolver.
  uint64_t Find(const char* name) const;
  // The same for the first one whose name begins with `prefix`; slow.
  uint64_t FindByPrefix(const char* prefix) const;

  // A number that differs between modules that could follow one another at one address.
  uint64_t Fingerprint() const;

  // Names of DT_NEEDED entries, by index; nullptr at the end.
  const char* Needed(size_t index) const;

 private:
  template <typename Visit>
  void VisitTable(const ElfW(Rela) * table, size_t count, Visit& visit) const {
    for (size_t i = 0; i < count; ++i) {
      uint32_t type = ELF64_R_TYPE(table[i].r_info);
      if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
      const ElfW(Sym)& symbol = symbols_[ELF64_R_SYM(table[i].r_info)];
      uint32_t kind = ELF64_ST_TYPE(symbol.st_info);
      if (kind == STT_OBJECT || kind == STT_TLS) continue;
      visit(reinterpret_cast<uint64_t*>(base_ + table[i].r_offset), strings_ + symbol.st_name);
    }
  }

  bool Defines(uint32_t index, const char* name) const;
  uint32_t SymbolCount() const;

  uint64_t base_ = 0;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
  const char* name_ = nullptr;
  const char* soname_ = nullptr;
  const ElfW(Dyn) * dynamic_ = nullptr;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  const ElfW(Rela) * plt_relocations_ = nullptr;
  size_t plt_relocation_count_ = 0;
  const ElfW(Rela) * relocations_ = nullptr;
  size_t relocation_count_ = 0;
  const uint32_t* gnu_hash_ = nullptr;
  const uint32_t* sysv_hash_ = nullptr;
  const uint16_t* versions_ = nullptr;
};

}  // namespace tidemark::agent
