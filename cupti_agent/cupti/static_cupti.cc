#include "cupti_agent/cupti/static_cupti.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "cupti_agent/ledger/private_memory.h"

namespace tidemark::agent {
namespace {

constexpr char kSymbol[] = "cuptiSubscribe";
// From cuptiGetResultString, in pieces so that this library does not hold it.
constexpr char kTextBegin[] = "CUPTI_ERROR_MULTIPLE_";
constexpr char kTextEnd[] = "SUBSCRIBERS_NOT_SUPPORTED";
// A module with CUPTI in it is larger than this: CUPTI 13's code and data are 4 MiB. Opening every
// file of a job that has loaded hundreds of small libraries would cost tenths of a second.
constexpr size_t kLeastModuleBytes = 1 << 20;
constexpr size_t kMostTextBytes = 64 << 20;   // of read-only data searched in a stripped program
constexpr size_t kMostNameBytes = 256 << 20;  // of a symbol table's names

class MappedFile {
 public:
  explicit MappedFile(const char* path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    const off_t end = lseek(fd, 0, SEEK_END);
    if (end > 0) {
      void* at = mmap(nullptr, static_cast<size_t>(end), PROT_READ, MAP_PRIVATE, fd, 0);
      if (at != MAP_FAILED) {
        data_ = static_cast<const char*>(at);
        bytes_ = static_cast<size_t>(end);
      }
    }
    close(fd);
  }
  ~MappedFile() {
    if (data_ != nullptr) munmap(const_cast<char*>(data_), bytes_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Null unless `count` objects at `offset` lie inside the file, aligned.
  template <typename T>
  const T* At(uint64_t offset, uint64_t count = 1) const {
    if (data_ == nullptr || offset > bytes_ || count > (bytes_ - offset) / sizeof(T) ||
        offset % alignof(T) != 0) {
      return nullptr;
    }
    return reinterpret_cast<const T*>(data_ + offset);
  }

 private:
  const char* data_ = nullptr;
  size_t bytes_ = 0;
};

bool DefinesSymbol(const MappedFile& file, const ElfW(Shdr) * sections, unsigned count,
                   const ElfW(Shdr) & table) {
  if (table.sh_link >= count || table.sh_entsize != sizeof(ElfW(Sym))) return false;
  const ElfW(Shdr)& names = sections[table.sh_link];
  const char* text = file.At<char>(names.sh_offset, names.sh_size);
  if (text == nullptr || names.sh_size > kMostNameBytes) return false;
  // The name first, in one fast search; the table only when it is there.
  if (memmem(text, names.sh_size, kSymbol, sizeof(kSymbol)) == nullptr) return false;
  const uint64_t symbols = table.sh_size / sizeof(ElfW(Sym));
  const auto* at = file.At<ElfW(Sym)>(table.sh_offset, symbols);
  if (at == nullptr) return false;
  for (uint64_t i = 0; i < symbols; ++i) {
    if (at[i].st_shndx != SHN_UNDEF && at[i].st_name + sizeof(kSymbol) <= names.sh_size &&
        memcmp(text + at[i].st_name, kSymbol, sizeof(kSymbol)) == 0) {
      return true;
    }
  }
  return false;
}

bool HoldsText(const MappedFile& file, const ElfW(Shdr) * sections, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    const ElfW(Shdr)& s = sections[i];
    if (s.sh_type != SHT_PROGBITS || (s.sh_flags & (SHF_ALLOC | SHF_WRITE)) != SHF_ALLOC ||
        (s.sh_flags & SHF_EXECINSTR) != 0 || s.sh_size > kMostTextBytes) {
      continue;
    }
    const char* text = file.At<char>(s.sh_offset, s.sh_size);
    if (text == nullptr) continue;
    const char* end = text + s.sh_size;
    while ((text = static_cast<const char*>(memmem(text, static_cast<size_t>(end - text),
                                                   kTextBegin, sizeof(kTextBegin) - 1))) !=
           nullptr) {
      text += sizeof(kTextBegin) - 1;
      if (static_cast<size_t>(end - text) >= sizeof(kTextEnd) &&
          memcmp(text, kTextEnd, sizeof(kTextEnd)) == 0) {
        return true;
      }
    }
  }
  return false;
}

const char* BaseName(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

struct Search {
  char* module;
  size_t module_bytes;
  bool first = true;  // dl_iterate_phdr begins with the program itself
  bool found = false;
};

// Modules looked at before, by path: their files do not change.
constexpr uint32_t kSeenSlots = 4096;
uint64_t g_seen[kSeenSlots];

bool SeenBefore(const char* path) {
  uint64_t hash = 1469598103934665603ull;
  for (const char* c = path; *c != 0; ++c) {
    hash = (hash ^ static_cast<unsigned char>(*c)) * 1099511628211ull;
  }
  for (uint64_t i = Scatter(hash);; ++i) {
    uint64_t& slot = g_seen[i % kSeenSlots];
    if (slot == hash) return true;
    if (slot == 0 || i - Scatter(hash) > 64) {
      slot = hash;
      return false;
    }
  }
}

size_t LoadedBytes(const dl_phdr_info& info) {
  size_t bytes = 0;
  for (unsigned i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type == PT_LOAD) bytes += info.dlpi_phdr[i].p_filesz;
  }
  return bytes;
}

int Visit(dl_phdr_info* info, size_t, void* raw) {
  auto& search = *static_cast<Search*>(raw);
  const bool program = search.first;
  search.first = false;
  const char* path = program ? "/proc/self/exe" : info->dlpi_name;
  if (path == nullptr || path[0] != '/') return 0;  // the vdso
  const char* name = BaseName(path);
  if (strncmp(name, "libcupti.so", 11) == 0 || strncmp(name, "libtidemark", 11) == 0) return 0;
  if (LoadedBytes(*info) < kLeastModuleBytes || SeenBefore(path) || !HoldsStaticCupti(path))
    return 0;
  snprintf(search.module, search.module_bytes, "%s", program ? "the program" : name);
  search.found = true;
  return 1;
}

}  // namespace

bool HoldsStaticCupti(const char* path) {
  const MappedFile file(path);
  const auto* header = file.At<ElfW(Ehdr)>(0);
  if (header == nullptr || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_shentsize != sizeof(ElfW(Shdr))) {
    return false;
  }
  const unsigned count = header->e_shnum;
  const auto* sections = file.At<ElfW(Shdr)>(header->e_shoff, count);
  if (sections == nullptr) return false;
  bool stripped = true;
  for (unsigned i = 0; i < count; ++i) {
    const uint32_t type = sections[i].sh_type;
    if (type != SHT_SYMTAB && type != SHT_DYNSYM) continue;
    if (type == SHT_SYMTAB) stripped = false;
    if (DefinesSymbol(file, sections, count, sections[i])) return true;
  }
  // Only in programs: a stripped library of gigabytes is not searched for a text.
  return stripped && strcmp(path, "/proc/self/exe") == 0 && HoldsText(file, sections, count);
}

bool FindStaticCupti(char* module, size_t module_bytes) {
  Search search{module, module_bytes};
  dl_iterate_phdr(Visit, &search);
  return search.found;
}

}  // namespace tidemark::agent
