// What the bundled C++ runtime takes from a glibc newer than 2.34, for systems that have none
// newer. weaken_versions.py lets the loader go on where these versions are missing; then these are
// found.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

// glibc 2.36; std::random_device.
uint32_t arc4random(void) {
  uint32_t value;
  if (getrandom(&value, sizeof value, 0) != sizeof value) abort();
  return value;
}

// As glibc 2.35 and newer lay it out.
struct found_object {
  unsigned long long flags;
  void* map_start;
  void* map_end;
  struct link_map* link_map;
  void* eh_frame;
  unsigned long long reserved[7];
};

struct search {
  uintptr_t pc;
  struct found_object* result;
};

static int Visit(struct dl_phdr_info* info, size_t size, void* raw) {
  (void)size;
  struct search* search = raw;
  uintptr_t low = UINTPTR_MAX;
  uintptr_t high = 0;
  const ElfW(Phdr)* unwind = NULL;
  int inside = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = &info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + header->p_vaddr;
    const uintptr_t end = begin + header->p_memsz;
    if (header->p_type == PT_GNU_EH_FRAME) unwind = header;
    if (header->p_type != PT_LOAD) continue;
    inside |= search->pc >= begin && search->pc < end;
    if (begin < low) low = begin;
    if (end > high) high = end;
  }
  if (!inside || unwind == NULL) return 0;
  *search->result = (struct found_object){.map_start = (void*)low,
                                          .map_end = (void*)high,
                                          .eh_frame = (void*)(info->dlpi_addr + unwind->p_vaddr)};
  return 1;
}

// glibc 2.35; the unwinder, at each frame of an exception.
int _dl_find_object(void* pc, struct dl_find_object* result) {
  struct search search = {(uintptr_t)pc, (struct found_object*)result};
  return dl_iterate_phdr(Visit, &search) == 1 ? 0 : -1;
}
