#include "cupti_agent/hooks/loader.h"

#include <dlfcn.h>

namespace tidemark::agent {

LoaderCounters ReadLoaderCounters() {
  LoaderCounters counters;
  ForEachModule([&counters](const dl_phdr_info& info) {
    counters.adds = info.dlpi_adds;
    counters.subs = info.dlpi_subs;
    return false;
  });
  return counters;
}

void WaitForLoads() {
  // Any dlopen takes the load lock; this one finds its library mapped and changes nothing.
  void* libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  if (libc != nullptr) dlclose(libc);
}

}  // namespace tidemark::agent
