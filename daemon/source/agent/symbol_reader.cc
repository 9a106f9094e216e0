#include "daemon/source/agent/symbol_reader.h"

#include <cxxabi.h>
#include <elf.h>
#include <elfutils/libdw.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace tidemark {
namespace {

constexpr size_t kMaxSections = 4096;
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxShownBytes = 300;
constexpr uint64_t kMaxDebugFileBytes = 512ull << 20;

bool ReadExactly(int fd, uint64_t offset, void* into, size_t bytes) {
  return ::pread(fd, into, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

std::string BuildIdOf(int fd, const Elf64_Shdr& section) {
  std::vector<char> note(std::min<uint64_t>(section.sh_size, 4096));
  if (!ReadExactly(fd, section.sh_offset, note.data(), note.size())) return {};
  size_t at = 0;
  while (at + sizeof(Elf64_Nhdr) <= note.size()) {
    Elf64_Nhdr header;
    std::memcpy(&header, note.data() + at, sizeof(header));
    const size_t name = at + sizeof(header);
    const size_t data = name + (uint64_t{header.n_namesz} + 3) / 4 * 4;
    const size_t end = data + (uint64_t{header.n_descsz} + 3) / 4 * 4;
    if (data + header.n_descsz > note.size() || end <= at) break;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
        std::memcmp(note.data() + name, "GNU", 4) == 0) {
      std::string hex;
      for (size_t i = 0; i < header.n_descsz; ++i) {
        constexpr char kDigits[] = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(note[data + i]);
        hex += kDigits[byte >> 4];
        hex += kDigits[byte & 15];
      }
      return hex;
    }
    at = end;
  }
  return {};
}

std::string Demangle(const std::string& name) {
  std::string shown = name;
  if (name.starts_with("_Z")) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> text(
        abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
    if (status == 0 && text != nullptr) shown = text.get();
  }
  if (shown.size() > kMaxShownBytes) shown = shown.substr(0, kMaxShownBytes - 3) + "...";
  return shown;
}

// Reads `table` through once and names every address that one of its functions covers.
void NameFrom(int fd, const Elf64_Shdr& table, const Elf64_Shdr& strings,
              const std::vector<std::pair<uint64_t, size_t>>& sorted,
              std::vector<Symbol>* symbols) {
  constexpr size_t kRows = 16384;
  std::vector<Elf64_Sym> rows(kRows);
  const uint64_t count = table.sh_size / sizeof(Elf64_Sym);
  for (uint64_t first = 0; first < count; first += kRows) {
    const size_t many = std::min<uint64_t>(kRows, count - first);
    if (!ReadExactly(fd, table.sh_offset + first * sizeof(Elf64_Sym), rows.data(),
                     many * sizeof(Elf64_Sym))) {
      return;
    }
    for (size_t i = 0; i < many; ++i) {
      const Elf64_Sym& row = rows[i];
      const unsigned type = ELF64_ST_TYPE(row.st_info);
      if ((type != STT_FUNC && type != STT_GNU_IFUNC) || row.st_size == 0 ||
          row.st_shndx == SHN_UNDEF || row.st_name >= strings.sh_size) {
        continue;
      }
      auto at = std::lower_bound(sorted.begin(), sorted.end(), std::pair(row.st_value, size_t{0}));
      for (; at != sorted.end() && at->first - row.st_value < row.st_size; ++at) {
        Symbol& symbol = (*symbols)[at->second];
        if (!symbol.function.empty()) continue;
        char name[kMaxNameBytes];
        const size_t room = std::min<uint64_t>(sizeof(name), strings.sh_size - row.st_name);
        const ssize_t got =
            ::pread(fd, name, room, static_cast<off_t>(strings.sh_offset + row.st_name));
        if (got <= 0) continue;
        const size_t length = ::strnlen(name, static_cast<size_t>(got));
        // A name without an end is longer than any demangler should be given.
        symbol.function = length == sizeof(name) ? std::string(name, kMaxShownBytes)
                                                 : Demangle(std::string(name, length));
      }
    }
  }
}

void FindLines(int fd, const std::vector<uint64_t>& addresses, std::vector<Symbol>* symbols) {
  struct stat status = {};
  if (::fstat(fd, &status) != 0 || static_cast<uint64_t>(status.st_size) > kMaxDebugFileBytes) {
    return;
  }
  ::elf_version(EV_CURRENT);
  const std::unique_ptr<Elf, decltype(&::elf_end)> elf(::elf_begin(fd, ELF_C_READ, nullptr),
                                                       &::elf_end);
  if (elf == nullptr) return;
  const std::unique_ptr<Dwarf, decltype(&::dwarf_end)> dwarf(
      ::dwarf_begin_elf(elf.get(), DWARF_C_READ, nullptr), &::dwarf_end);
  if (dwarf == nullptr) return;
  for (size_t i = 0; i < addresses.size(); ++i) {
    Dwarf_Die unit;
    if (::dwarf_addrdie(dwarf.get(), addresses[i], &unit) == nullptr) continue;
    Dwarf_Line* line = ::dwarf_getsrc_die(&unit, addresses[i]);
    int number = 0;
    if (line == nullptr || ::dwarf_lineno(line, &number) != 0 || number <= 0) continue;
    const char* file = ::dwarf_linesrc(line, nullptr, nullptr);
    if (file == nullptr) continue;
    (*symbols)[i].file = std::string(file, ::strnlen(file, kMaxNameBytes));
    (*symbols)[i].line = static_cast<uint32_t>(number);
  }
}

}  // namespace

Result<std::vector<Symbol>> ReadSymbols(int fd, const std::string& build_id,
                                        const std::vector<uint64_t>& addresses) {
  Elf64_Ehdr header;
  if (!ReadExactly(fd, 0, &header, sizeof(header)) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_machine != EM_X86_64) {
    return Error{"read symbols", "not an x86-64 ELF file", ""};
  }
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum > kMaxSections) {
    return Error{"read symbols", "unusual section table", ""};
  }
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (!ReadExactly(fd, header.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr))) {
    return Error{"read symbols", "the section table lies outside the file", ""};
  }
  std::string found_id;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type == SHT_NOTE && found_id.empty()) found_id = BuildIdOf(fd, section);
  }
  if (!build_id.empty() && found_id != build_id) {
    return Error{"read symbols", "the file is not the one that was loaded", ""};
  }
  std::vector<Symbol> symbols(addresses.size());
  std::vector<std::pair<uint64_t, size_t>> sorted;
  for (size_t i = 0; i < addresses.size(); ++i) sorted.emplace_back(addresses[i], i);
  std::sort(sorted.begin(), sorted.end());
  // The full table first: it names local functions too.
  for (const uint32_t type : {uint32_t{SHT_SYMTAB}, uint32_t{SHT_DYNSYM}}) {
    for (const Elf64_Shdr& section : sections) {
      if (section.sh_type != type || section.sh_entsize != sizeof(Elf64_Sym) ||
          section.sh_link >= sections.size()) {
        continue;
      }
      NameFrom(fd, section, sections[section.sh_link], sorted, &symbols);
    }
  }
  FindLines(fd, addresses, &symbols);
  return symbols;
}

}  // namespace tidemark
