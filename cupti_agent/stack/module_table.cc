#include "cupti_agent/stack/module_table.h"

#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "cupti_agent/hooks/loader.h"

namespace tidemark::agent {
namespace {

constexpr uint32_t kMaxModules = 4096;

struct Range {
  uint64_t begin;
  uint64_t end;
  uint32_t module;
};

// Two sorted lists of ranges: readers use `current` while the writer prepares the other. A reader
// that is still in the old list when the writer comes around a second time sees `version` change.
struct Ranges {
  uint32_t count = 0;
  Range items[kMaxModules] = {};
};

struct Table {
  StackModule modules[kMaxModules] = {};
  std::atomic<uint32_t> module_count{0};
  Ranges lists[2];
  std::atomic<uint32_t> version{0};  // list in use: version % 2
  std::atomic<bool> refreshing{false};
  LoaderCounters covered;  // whoever is refreshing
};

constinit Table table;

void ReadBuildId(const dl_phdr_info& info, StackModule* module) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const char* note = reinterpret_cast<const char*>(info.dlpi_addr + header.p_vaddr);
    const char* end = note + header.p_memsz;
    while (note + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) head;
      memcpy(&head, note, sizeof(head));
      // The property note's segment is aligned to 8, which its descriptor sizes respect anyhow.
      const char* name = note + sizeof(head);
      const char* descriptor = name + ((head.n_namesz + 3) & ~3u);
      if (descriptor + head.n_descsz > end) break;
      if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
        module->build_id_bytes =
            static_cast<uint8_t>(std::min<size_t>(head.n_descsz, sizeof(module->build_id)));
        memcpy(module->build_id, descriptor, module->build_id_bytes);
        return;
      }
      note = descriptor + ((head.n_descsz + 3) & ~3u);
    }
  }
}

void CopyPath(const char* path, StackModule* module) {
  char own[256];
  if (path == nullptr || path[0] == '\0') {  // the program
    ssize_t got = readlink("/proc/self/exe", own, sizeof(own) - 1);
    own[got > 0 ? got : 0] = '\0';
    path = own;
  }
  size_t length = strlen(path);
  if (length >= sizeof(module->path)) {
    path += length - sizeof(module->path) + 1;
    length = sizeof(module->path) - 1;
  }
  memcpy(module->path, path, length);
}

bool Describe(const dl_phdr_info& info, StackModule* module) {
  *module = {};
  module->base = info.dlpi_addr;
  module->begin = UINT64_MAX;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    uint64_t address = info.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_GNU_EH_FRAME) module->eh_frame_header = address;
    if (header.p_type != PT_LOAD) continue;
    module->begin = std::min(module->begin, address);
    module->end = std::max(module->end, address + header.p_memsz);
  }
  if (module->begin >= module->end) return false;
  ReadBuildId(info, module);
  CopyPath(info.dlpi_name, module);
  const char* slash = strrchr(module->path, '/');
  const char* name = slash == nullptr ? module->path : slash + 1;
  module->is_cupti = strncmp(name, "libcupti.", 9) == 0;
  module->is_communicator = strncmp(name, "libnccl.", 8) == 0;
  return true;
}

uint32_t Known(const StackModule& module) {
  uint32_t count = table.module_count.load(std::memory_order_relaxed);
  for (uint32_t i = count; i-- > 0;) {
    const StackModule& known = table.modules[i];
    if (known.begin == module.begin && known.end == module.end &&
        known.build_id_bytes == module.build_id_bytes &&
        memcmp(known.build_id, module.build_id, module.build_id_bytes) == 0 &&
        strcmp(known.path, module.path) == 0) {
      return i;
    }
  }
  return kNoModule;
}

}  // namespace

bool RefreshModuleTable() {
  if (table.refreshing.exchange(true, std::memory_order_acquire)) return false;
  LoaderCounters counters = ReadLoaderCounters();
  if (counters == table.covered) {
    table.refreshing.store(false, std::memory_order_release);
    return false;
  }
  uint32_t version = table.version.load(std::memory_order_relaxed);
  Ranges& next = table.lists[(version + 1) % 2];
  next.count = 0;
  ForEachModule([&next](const dl_phdr_info& info) {
    StackModule module;
    if (!Describe(info, &module)) return true;
    uint32_t index = Known(module);
    if (index == kNoModule) {
      index = table.module_count.load(std::memory_order_relaxed);
      if (index == kMaxModules) return true;
      table.modules[index] = module;
      table.module_count.store(index + 1, std::memory_order_release);
    }
    if (next.count < kMaxModules) next.items[next.count++] = {module.begin, module.end, index};
    return true;
  });
  std::sort(next.items, next.items + next.count,
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  table.version.store(version + 1, std::memory_order_release);
  table.covered = counters;
  table.refreshing.store(false, std::memory_order_release);
  return true;
}

uint32_t ModuleContaining(uint64_t address) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    uint32_t version = table.version.load(std::memory_order_acquire);
    const Ranges& ranges = table.lists[version % 2];
    uint32_t low = 0;
    uint32_t high = std::min(ranges.count, kMaxModules);
    while (low < high) {
      uint32_t middle = (low + high) / 2;
      if (ranges.items[middle].begin <= address) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    uint32_t found = kNoModule;
    if (low > 0 && address < ranges.items[low - 1].end) found = ranges.items[low - 1].module;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (table.version.load(std::memory_order_relaxed) == version) return found;
  }
  return kNoModule;
}

const StackModule& ModuleAt(uint32_t index) { return table.modules[index]; }

uint32_t OwnModule() {
  static constinit std::atomic<uint32_t> own{kNoModule};
  uint32_t index = own.load(std::memory_order_relaxed);
  if (index == kNoModule) {
    index = ModuleContaining(reinterpret_cast<uint64_t>(&OwnModule));
    own.store(index, std::memory_order_relaxed);
  }
  return index;
}

}  // namespace tidemark::agent
