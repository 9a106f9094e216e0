// Own hidden definitions of symbols that the compiler's static runtime (libgcc_eh, libstdc++) wants
// from a glibc newer than the floor of 2.28.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <cstddef>
#include <cstdint>

namespace {

struct FindObject {
  ElfW(Addr) pc;
  dl_find_object* result;
};

int VisitModule(dl_phdr_info* info, size_t, void* raw) {
  auto& find = *static_cast<FindObject*>(raw);
  const ElfW(Phdr)* unwind = nullptr;
  bool inside = false;
  ElfW(Addr) low = UINTPTR_MAX;
  ElfW(Addr) high = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const ElfW(Addr) begin = info->dlpi_addr + header.p_vaddr;
    const ElfW(Addr) end = begin + header.p_memsz;
    if (header.p_type == PT_LOAD) {
      inside = inside || (find.pc >= begin && find.pc < end);
      if (begin < low) low = begin;
      if (end > high) high = end;
    } else if (header.p_type == PT_GNU_EH_FRAME) {
      unwind = &header;
    }
  }
  if (!inside || unwind == nullptr) return 0;
  *find.result = {};
  find.result->dlfo_map_start = reinterpret_cast<void*>(low);
  find.result->dlfo_map_end = reinterpret_cast<void*>(high);
  find.result->dlfo_eh_frame = reinterpret_cast<void*>(info->dlpi_addr + unwind->p_vaddr);
  return 1;
}

}  // namespace

extern "C" {

// glibc 2.35.
__attribute__((visibility("hidden"))) int _dl_find_object(void* pc,
                                                          dl_find_object* result) noexcept {
  FindObject find{reinterpret_cast<ElfW(Addr)>(pc), result};
  return dl_iterate_phdr(VisitModule, &find) == 1 ? 0 : -1;
}

// glibc 2.32. 0 = assume threads.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

// libstdc++'s would bring its terminate handler, and with it thread-local storage that is allocated
// lazily. No object here is ever in a state where this is called.
__attribute__((visibility("hidden"))) void __cxa_pure_virtual() { __builtin_trap(); }

// glibc 2.34 gave these new versions.
int tidemark_pthread_once(pthread_once_t* once, void (*function)());
int tidemark_pthread_key_create(pthread_key_t* key, void (*destructor)(void*));
__asm__(".symver tidemark_pthread_once,pthread_once@GLIBC_2.2.5");
__asm__(".symver tidemark_pthread_key_create,__pthread_key_create@GLIBC_2.2.5");

__attribute__((visibility("hidden"))) int pthread_once(pthread_once_t* once, void (*function)()) {
  return tidemark_pthread_once(once, function);
}
__attribute__((visibility("hidden"))) int __pthread_key_create(pthread_key_t* key,
                                                               void (*destructor)(void*)) {
  return tidemark_pthread_key_create(key, destructor);
}
}
