#include "cupti_agent/hooks/elf_module.h"

#include <cstring>

namespace tidemark::agent {
namespace {

constexpr uint16_t kHiddenVersion = 0x8000;  // name@VERSION, not the default name@@VERSION

uint32_t GnuHash(const char* name) {
  uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<uint8_t>(*name);
  return hash;
}

uint32_t SysvHash(const char* name) {
  uint32_t hash = 0;
  for (; *name != '\0'; ++name) {
    hash = (hash << 4) + static_cast<uint8_t>(*name);
    uint32_t high = hash & 0xf0000000;
    hash = (hash ^ (high >> 24)) & ~high;
  }
  return hash;
}

}  // namespace

bool ElfModule::Load(const dl_phdr_info& info) {
  *this = ElfModule();
  base_ = info.dlpi_addr;
  name_ = info.dlpi_name != nullptr ? info.dlpi_name : "";
  soname_ = "";
  begin_ = UINT64_MAX;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    uint64_t address = base_ + header.p_vaddr;
    if (header.p_type == PT_DYNAMIC) dynamic_ = reinterpret_cast<const ElfW(Dyn)*>(address);
    if (header.p_type != PT_LOAD) continue;
    if (address < begin_) begin_ = address;
    if (address + header.p_memsz > end_) end_ = address + header.p_memsz;
  }
  if (dynamic_ == nullptr || begin_ >= end_) return false;

  // glibc writes absolute addresses into most dynamic sections; those of the vdso and of modules
  // with a read-only dynamic section stay relative.
  auto absolute = [this](uint64_t value) { return value < begin_ ? base_ + value : value; };
  uint64_t soname_offset = 0;
  size_t relative_count = 0;
  for (const ElfW(Dyn)* entry = dynamic_; entry->d_tag != DT_NULL; ++entry) {
    uint64_t value = entry->d_un.d_val;
    switch (entry->d_tag) {
      case DT_SYMTAB:
        symbols_ = reinterpret_cast<const ElfW(Sym)*>(absolute(value));
        break;
      case DT_STRTAB:
        strings_ = reinterpret_cast<const char*>(absolute(value));
        break;
      case DT_JMPREL:
        plt_relocations_ = reinterpret_cast<const ElfW(Rela)*>(absolute(value));
        break;
      case DT_PLTRELSZ:
        plt_relocation_count_ = value / sizeof(ElfW(Rela));
        break;
      case DT_RELA:
        relocations_ = reinterpret_cast<const ElfW(Rela)*>(absolute(value));
        break;
      case DT_RELASZ:
        relocation_count_ = value / sizeof(ElfW(Rela));
        break;
      case DT_RELACOUNT:
        relative_count = value;
        break;
      case DT_GNU_HASH:
        gnu_hash_ = reinterpret_cast<const uint32_t*>(absolute(value));
        break;
      case DT_HASH:
        sysv_hash_ = reinterpret_cast<const uint32_t*>(absolute(value));
        break;
      case DT_VERSYM:
        versions_ = reinterpret_cast<const uint16_t*>(absolute(value));
        break;
      case DT_SONAME:
        soname_offset = value;
        break;
    }
  }
  if (symbols_ == nullptr || strings_ == nullptr) return false;
  if (soname_offset != 0) soname_ = strings_ + soname_offset;
  if (plt_relocations_ == nullptr) plt_relocation_count_ = 0;
  if (relocations_ == nullptr) relocation_count_ = 0;
  // The linker sorts relative relocations, by far the most, to the front: a torch library has a
  // million of them.
  if (relative_count <= relocation_count_) {
    relocations_ += relative_count;
    relocation_count_ -= relative_count;
  }
  return true;
}

bool ElfModule::FileBegins(const char* prefix) const {
  const char* slash = strrchr(name_, '/');
  return strncmp(slash != nullptr ? slash + 1 : name_, prefix, strlen(prefix)) == 0;
}

bool ElfModule::Defines(uint32_t index, const char* name) const {
  const ElfW(Sym)& symbol = symbols_[index];
  if (symbol.st_shndx == SHN_UNDEF || symbol.st_value == 0) return false;
  uint32_t kind = ELF64_ST_TYPE(symbol.st_info);
  if (kind != STT_FUNC && kind != STT_OBJECT && kind != STT_NOTYPE) return false;
  if (versions_ != nullptr && (versions_[index] & kHiddenVersion) != 0) return false;
  return strcmp(strings_ + symbol.st_name, name) == 0;
}

uint64_t ElfModule::Find(const char* name) const {
  if (gnu_hash_ != nullptr) {
    uint32_t bucket_count = gnu_hash_[0];
    uint32_t first_symbol = gnu_hash_[1];
    uint32_t bloom_words = gnu_hash_[2];
    uint32_t bloom_shift = gnu_hash_[3];
    if (bucket_count == 0 || bloom_words == 0) return 0;
    const auto* bloom = reinterpret_cast<const uint64_t*>(gnu_hash_ + 4);
    const auto* buckets = reinterpret_cast<const uint32_t*>(bloom + bloom_words);
    const uint32_t* chain = buckets + bucket_count;
    uint32_t hash = GnuHash(name);
    uint64_t word = bloom[(hash / 64) % bloom_words];
    if (((word >> (hash % 64)) & (word >> ((hash >> bloom_shift) % 64)) & 1) == 0) return 0;
    uint32_t index = buckets[hash % bucket_count];
    if (index < first_symbol) return 0;
    for (;; ++index) {
      uint32_t entry = chain[index - first_symbol];
      if ((entry | 1) == (hash | 1) && Defines(index, name))
        return base_ + symbols_[index].st_value;
      if ((entry & 1) != 0) return 0;
    }
  }
  if (sysv_hash_ != nullptr && sysv_hash_[0] != 0) {
    const uint32_t* buckets = sysv_hash_ + 2;
    const uint32_t* chain = buckets + sysv_hash_[0];
    for (uint32_t index = buckets[SysvHash(name) % sysv_hash_[0]]; index != 0;
         index = chain[index]) {
      if (Defines(index, name)) return base_ + symbols_[index].st_value;
    }
  }
  return 0;
}

uint32_t ElfModule::SymbolCount() const {
  if (sysv_hash_ != nullptr) return sysv_hash_[1];
  if (gnu_hash_ == nullptr) return 0;
  // A GNU hash table does not say how many symbols there are: the last chain ends with the last
  // one.
  uint32_t bucket_count = gnu_hash_[0];
  uint32_t first_symbol = gnu_hash_[1];
  const uint32_t* buckets = gnu_hash_ + 4 + 2 * static_cast<size_t>(gnu_hash_[2]);
  const uint32_t* chain = buckets + bucket_count;
  uint32_t last = 0;
  for (uint32_t i = 0; i < bucket_count; ++i) {
    if (buckets[i] > last) last = buckets[i];
  }
  if (last < first_symbol) return first_symbol;
  while ((chain[last - first_symbol] & 1) == 0) ++last;
  return last + 1;
}

uint64_t ElfModule::FindByPrefix(const char* prefix) const {
  size_t length = strlen(prefix);
  uint32_t count = SymbolCount();
  for (uint32_t i = 1; i < count; ++i) {
    const char* name = strings_ + symbols_[i].st_name;
    if (strncmp(name, prefix, length) == 0 && Defines(i, name)) {
      return base_ + symbols_[i].st_value;
    }
  }
  return 0;
}

uint64_t ElfModule::Fingerprint() const {
  uint64_t hash = 0xcbf29ce484222325;
  auto mix = [&hash](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (const char* c = name_; *c != '\0'; ++c) mix(static_cast<uint8_t>(*c));
  mix(end_ - begin_);
  mix(plt_relocation_count_);
  mix(relocation_count_);
  // The first names of the string table are those of the first imports.
  for (int i = 1; i <= 64; ++i) mix(static_cast<uint8_t>(strings_[i]));
  return hash;
}

const char* ElfModule::Needed(size_t index) const {
  for (const ElfW(Dyn)* entry = dynamic_; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_NEEDED && index-- == 0) return strings_ + entry->d_un.d_val;
  }
  return nullptr;
}

}  // namespace tidemark::agent
