#include "daemon/source/bpf/elf_image.h"

#include <gelf.h>
#include <libelf.h>

#include <memory>

namespace tidemark {
namespace {

struct EndElf {
  void operator()(Elf* elf) const { elf_end(elf); }
};
using ElfPtr = std::unique_ptr<Elf, EndElf>;

Result<ElfPtr> Begin(int fd, const std::string& name) {
  elf_version(EV_CURRENT);
  ElfPtr elf(elf_begin(fd, ELF_C_READ, nullptr));
  GElf_Ehdr header;
  if (!elf || elf_kind(elf.get()) != ELF_K_ELF || !gelf_getehdr(elf.get(), &header) ||
      header.e_machine != EM_X86_64) {
    return Error{"read " + name, "not an x86-64 ELF file", ""};
  }
  return elf;
}

std::string Hex(const uint8_t* bytes, size_t count) {
  static const char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

std::string FindBuildId(Elf* elf, const GElf_Phdr& segment) {
  Elf_Data* data = elf_getdata_rawchunk(elf, static_cast<int64_t>(segment.p_offset),
                                        segment.p_filesz, ELF_T_NHDR);
  if (!data) return "";
  size_t at = 0;
  size_t name_offset = 0, description_offset = 0;
  GElf_Nhdr note;
  while ((at = gelf_getnote(data, at, &note, &name_offset, &description_offset)) > 0) {
    const auto* bytes = static_cast<const char*>(data->d_buf);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::string_view(bytes + name_offset, 3) == "GNU" && note.n_descsz <= 64) {
      return Hex(reinterpret_cast<const uint8_t*>(bytes) + description_offset, note.n_descsz);
    }
  }
  return "";
}

// Calls `use(name, value)` for each defined symbol of `type` that is one of `names`, in the dynamic
// symbol table first.
template <typename Use>
Result<void> ForEachSymbol(int fd, const std::string& name,
                           const std::vector<std::string_view>& names, int type, Use use) {
  Result<ElfPtr> elf = Begin(fd, name);
  if (!elf) return elf.error();
  for (uint32_t table : {uint32_t{SHT_DYNSYM}, uint32_t{SHT_SYMTAB}}) {
    Elf_Scn* section = nullptr;
    while ((section = elf_nextscn(elf->get(), section))) {
      GElf_Shdr header;
      if (!gelf_getshdr(section, &header) || header.sh_entsize == 0 || header.sh_type != table) {
        continue;
      }
      Elf_Data* data = elf_getdata(section, nullptr);
      if (!data) continue;
      const int count = static_cast<int>(data->d_size / header.sh_entsize);
      for (int i = 0; i < count; ++i) {
        GElf_Sym symbol;
        if (!gelf_getsym(data, i, &symbol)) break;
        if (GELF_ST_TYPE(symbol.st_info) != type || symbol.st_shndx == SHN_UNDEF) continue;
        const char* text = elf_strptr(elf->get(), header.sh_link, symbol.st_name);
        if (!text) continue;
        for (std::string_view wanted : names) {
          if (wanted == text) use(std::string(wanted), symbol.st_value);
        }
      }
    }
  }
  return {};
}

}  // namespace

Result<ElfImage> ElfImage::Read(int fd, const std::string& name) {
  Result<ElfPtr> elf = Begin(fd, name);
  if (!elf) return elf.error();
  ElfImage image;
  size_t count = 0;
  if (elf_getphdrnum(elf->get(), &count) != 0) return Error{"read " + name, elf_errmsg(-1), ""};
  for (size_t i = 0; i < count; ++i) {
    GElf_Phdr header;
    if (!gelf_getphdr(elf->get(), static_cast<int>(i), &header)) break;
    if (header.p_type == PT_LOAD) {
      image.segments_.push_back({header.p_offset, header.p_filesz, header.p_vaddr});
    } else if (header.p_type == PT_NOTE && image.build_id_.empty()) {
      image.build_id_ = FindBuildId(elf->get(), header);
    }
  }
  return image;
}

std::optional<uint64_t> ElfImage::AddressOfFileOffset(uint64_t file_offset) const {
  for (const Segment& segment : segments_) {
    if (file_offset >= segment.file_offset &&
        file_offset - segment.file_offset < segment.file_bytes) {
      return segment.address + (file_offset - segment.file_offset);
    }
  }
  return std::nullopt;
}

Result<std::map<std::string, uint64_t, std::less<>>> ElfImage::FindFunctions(
    int fd, const std::string& name, const std::vector<std::string_view>& names) {
  Result<ElfImage> image = Read(fd, name);
  if (!image) return image.error();
  std::map<std::string, uint64_t, std::less<>> found;
  Result<void> read = ForEachSymbol(fd, name, names, STT_FUNC, [&](auto wanted, uint64_t address) {
    for (const Segment& segment : image->segments_) {
      if (address >= segment.address && address - segment.address < segment.file_bytes) {
        found.emplace(wanted, address - segment.address + segment.file_offset);
      }
    }
  });
  if (!read) return read.error();
  return found;
}

Result<std::map<std::string, uint64_t, std::less<>>> ElfImage::FindObjects(
    int fd, const std::string& name, const std::vector<std::string_view>& names) {
  std::map<std::string, uint64_t, std::less<>> found;
  Result<void> read =
      ForEachSymbol(fd, name, names, STT_OBJECT,
                    [&](auto wanted, uint64_t address) { found.emplace(wanted, address); });
  if (!read) return read.error();
  return found;
}

}  // namespace tidemark
