#include "cupti_agent/hooks/module_views.h"

#include <cstring>

#include "cupti_agent/hooks/loader.h"

namespace tidemark::agent {

void ModuleViews::Build() {
  count_ = 0;
  global_end_ = 0;
  ForEachModule([this](const dl_phdr_info& info) {
    if (count_ == kCapacity) return false;
    if (modules_[count_].Load(info)) ++count_;
    return true;
  });
}

uint32_t ModuleViews::IndexOfNeeded(const char* needed) const {
  for (uint32_t i = 0; i < count_; ++i) {
    if (strcmp(modules_[i].soname(), needed) == 0 || strcmp(modules_[i].name(), needed) == 0) {
      return i;
    }
    const char* slash = strrchr(modules_[i].name(), '/');
    if (slash != nullptr && strcmp(slash + 1, needed) == 0) return i;
  }
  return UINT32_MAX;
}

uint32_t ModuleViews::Closure(uint32_t root) {
  memset(queued_, 0, count_);
  uint32_t tail = 0;
  queue_[tail++] = static_cast<uint16_t>(root);
  queued_[root] = true;
  for (uint32_t head = 0; head < tail; ++head) {
    const char* needed;
    for (size_t i = 0; (needed = modules_[queue_[head]].Needed(i)) != nullptr; ++i) {
      uint32_t next = IndexOfNeeded(needed);
      if (next == UINT32_MAX || queued_[next]) continue;
      queued_[next] = true;
      queue_[tail++] = static_cast<uint16_t>(next);
    }
  }
  return tail;
}

uint64_t ModuleViews::Resolve(uint32_t importer, const char* name) {
  // Whatever stands on the list before the last module that the program needs was loaded with it,
  // preloaded libraries included, and the list has the order of the global scope.
  if (global_end_ == 0) {
    uint32_t needed = Closure(0);
    for (uint32_t i = 0; i < needed; ++i) {
      if (queue_[i] >= global_end_) global_end_ = queue_[i] + 1u;
    }
  }
  for (uint32_t i = 0; i < global_end_; ++i) {
    uint64_t found = modules_[i].Find(name);
    if (found != 0) return found;
  }
  uint32_t needed = Closure(importer);
  for (uint32_t i = 0; i < needed; ++i) {
    uint64_t found = modules_[queue_[i]].Find(name);
    if (found != 0) return found;
  }
  return Find(name, /*prefix=*/false);
}

uint64_t ModuleViews::Find(const char* name, bool prefix, const char* home) const {
  for (uint32_t i = 0; i < count_; ++i) {
    if (home != nullptr && !modules_[i].FileBegins(home)) continue;
    uint64_t found = prefix ? modules_[i].FindByPrefix(name) : modules_[i].Find(name);
    if (found != 0) return found;
  }
  return 0;
}

uint32_t ModuleViews::Containing(uint64_t address) const {
  for (uint32_t i = 0; i < count_; ++i) {
    if (modules_[i].Contains(address)) return i;
  }
  return UINT32_MAX;
}

}  // namespace tidemark::agent
