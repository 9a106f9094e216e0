// The dynamic loader's list of modules, read consistently.
//
// Two loader locks matter. dl_iterate_phdr holds the *list* lock: a module cannot be unmapped
// during a callback, but one may be on the list that its dlopen has not relocated yet, and
// relocating adds the load bias to whatever a lazy slot holds: patching it then would make a wild
// pointer. dlopen holds the *load* lock until its modules are relocated and their constructors ran.
// So a module seen on the list before WaitForLoads() is safe to patch after it.
//
// Order of locks: load, then list. Nothing here takes the load lock inside a callback.
#pragma once

#include <link.h>

#include <cstdint>
#include <type_traits>

namespace tidemark::agent {

struct LoaderCounters {
  uint64_t adds = 0;
  uint64_t subs = 0;
  bool operator==(const LoaderCounters& other) const = default;
};

LoaderCounters ReadLoaderCounters();

// Returns when every load that was in progress on another thread has finished. On a thread that is
// itself inside dlopen (a constructor) it returns at once, and that load has been relocated.
void WaitForLoads();

// Runs `work()` with the list lock held. Inside, ForEachModule sees one consistent list.
template <typename Work>
void HoldModuleList(Work&& work) {
  dl_iterate_phdr(
      [](dl_phdr_info*, size_t, void* data) {
        (*static_cast<std::remove_reference_t<Work>*>(data))();
        return 1;
      },
      &work);
}

// Calls `visit(const dl_phdr_info&)` for every module until it returns false.
template <typename Visit>
void ForEachModule(Visit&& visit) {
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        return (*static_cast<std::remove_reference_t<Visit>*>(data))(*info) ? 0 : 1;
      },
      &visit);
}

}  // namespace tidemark::agent
