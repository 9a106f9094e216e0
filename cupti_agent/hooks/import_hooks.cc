#include "cupti_agent/hooks/import_hooks.h"

#include <atomic>
#include <cstring>

#include "cupti_agent/hooks/bounded_lock.h"
#include "cupti_agent/hooks/hook_dispatch.h"
#include "cupti_agent/hooks/loader.h"
#include "cupti_agent/hooks/module_views.h"
#include "cupti_agent/hooks/page_protection.h"

namespace tidemark::agent {
namespace {

constexpr uint32_t kMaxHooks = 48;
constexpr uint32_t kMaxSlots = 4096;
constexpr uint64_t kScanPatienceNs = 50'000'000;
constexpr uint64_t kDetachPatienceNs = 2'000'000'000;

struct Hook {
  HookSpec spec;
  size_t length;
  bool detached;
  uint32_t slots;
  uint32_t refused;
};

// A module that was seen, and up to which hook its slots have been looked through.
struct KnownModule {
  uint64_t base;
  const ElfW(Dyn) * dynamic;
  uint64_t fingerprint;  // tells another module at the same place
  uint64_t marked_by;    // number of the scan that first saw it
  uint32_t hooks_scanned;
  bool present;
};

struct Slot {
  uint64_t* address;
  uint64_t old_value;
  uint64_t thunk;
  HookId hook;
  uint64_t module_base;
  const ElfW(Dyn) * module_dynamic;
};

struct State {
  BoundedLock lock;
  Hook hooks[kMaxHooks] = {};
  std::atomic<uint32_t> hook_count{0};
  KnownModule modules[ModuleViews::kCapacity] = {};
  uint32_t module_count = 0;
  Slot slots[kMaxSlots] = {};
  uint32_t slot_count = 0;
  WordToWrite words[kMaxSlots] = {};
  uint32_t word_slot[kMaxSlots] = {};  // which slot words[i] belongs to
  ModuleViews views;
  uint64_t scans = 0;
  // What the last finished scan covered; read without the lock.
  std::atomic<uint64_t> covered_adds{0};
  std::atomic<uint64_t> covered_subs{0};
  std::atomic<uint32_t> covered_hooks{0};
  void (*lookup_observer)(const char*) = nullptr;
};

constinit State state;

class Locked {
 public:
  explicit Locked(uint64_t patience_ns) : held_(state.lock.Acquire(patience_ns)) {}
  ~Locked() {
    if (held_) state.lock.Release();
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  bool held() const { return held_; }

 private:
  bool held_;
};

KnownModule* FindKnown(const ElfModule& module) {
  for (uint32_t i = 0; i < state.module_count; ++i) {
    KnownModule& known = state.modules[i];
    if (known.base == module.base() && known.dynamic == module.dynamic()) {
      return known.fingerprint == module.Fingerprint() ? &known : nullptr;
    }
  }
  return nullptr;
}

bool Loses(const Slot& slot) {
  return __atomic_load_n(slot.address, __ATOMIC_ACQUIRE) != slot.thunk;
}

bool Belongs(const Slot& slot, const KnownModule& known) {
  return known.base == slot.module_base && known.dynamic == slot.module_dynamic;
}

// Slots of unloaded modules are forgotten, never written: the address may be anybody's by now. A
// module that lost every slot at once was unloaded and loaded again at its old place: it is looked
// through anew. (One that lost some has met another tool.)
void ForgetUnloaded(bool unloaded, uint64_t scan) {
  for (uint32_t m = 0; m < state.module_count; ++m) {
    KnownModule& known = state.modules[m];
    uint32_t slots = 0;
    uint32_t lost = 0;
    if (!known.present || !unloaded) continue;
    for (uint32_t i = 0; i < state.slot_count; ++i) {
      if (!Belongs(state.slots[i], known)) continue;
      ++slots;
      if (Loses(state.slots[i])) ++lost;
    }
    if (slots == 0 || lost < slots) continue;
    known.hooks_scanned = 0;
    known.marked_by = scan;
  }
  uint32_t kept = 0;
  for (uint32_t i = 0; i < state.slot_count; ++i) {
    const Slot& slot = state.slots[i];
    bool keep = false;
    for (uint32_t m = 0; m < state.module_count && !keep; ++m) {
      const KnownModule& known = state.modules[m];
      keep = known.present && known.hooks_scanned > 0 && Belongs(slot, known);
    }
    if (keep) {
      state.slots[kept++] = slot;
    } else {
      --state.hooks[slot.hook].slots;
    }
  }
  state.slot_count = kept;
  kept = 0;
  for (uint32_t m = 0; m < state.module_count; ++m) {
    if (state.modules[m].present) state.modules[kept++] = state.modules[m];
  }
  state.module_count = kept;
  if (!unloaded) return;
  RetireThunks([](uint64_t thunk, uint64_t real) {
    if (state.views.Containing(real) != UINT32_MAX) return false;
    for (uint32_t i = 0; i < state.slot_count; ++i) {
      if (state.slots[i].thunk == thunk) return false;
    }
    return true;
  });
}

// First half of a scan: which modules are there. Returns the scan's number.
uint64_t MarkModules(LoaderCounters* counters) {
  uint64_t scan = ++state.scans;
  HoldModuleList([&] {
    *counters = ReadLoaderCounters();
    bool unloaded = counters->subs != state.covered_subs.load(std::memory_order_relaxed);
    state.views.Build();
    for (uint32_t m = 0; m < state.module_count; ++m) state.modules[m].present = false;
    for (uint32_t i = 0; i < state.views.count(); ++i) {
      const ElfModule& module = state.views[i];
      KnownModule* known = FindKnown(module);
      if (known != nullptr) {
        known->present = true;
      } else if (state.module_count < ModuleViews::kCapacity) {
        state.modules[state.module_count++] = {
            module.base(), module.dynamic(), module.Fingerprint(), scan, 0, true};
      }
    }
    ForgetUnloaded(unloaded, scan);
  });
  return scan;
}

bool Matches(const Hook& hook, const char* name) {
  if (hook.spec.prefix) return strncmp(name, hook.spec.name, hook.length) == 0;
  return strcmp(name, hook.spec.name) == 0;
}

// A slot that the loader has not filled yet holds 0 or an address as linked, without the load bias.
bool IsBound(const ElfModule& module, uint64_t value) {
  return value != 0 &&
         (module.base() == 0 || value >= module.base() || value >= module.end() - module.base());
}

// What the slot's thunk must jump to: see the header on when the slot itself is believed.
uint64_t RealFunction(uint32_t importer, const char* name, uint64_t slot_value) {
  uint64_t real = RealBehindThunk(slot_value);
  if (real != 0) return real;
  real = state.views.Resolve(importer, name);
  uint32_t holder = state.views.Containing(slot_value);
  // A program's own procedure linkage table (holder 0) can be a function's official address;
  // jumping there would come back through the program's hooked slot.
  bool stub = holder == importer || holder == 0;
  if (real == 0 || (!stub && slot_value != real)) return stub ? 0 : slot_value;
  return real;
}

void AddWord(uint64_t* address, uint64_t value, uint32_t slot, uint32_t* count) {
  state.words[*count] = {address, value, -1};
  state.word_slot[(*count)++] = slot;
}

Slot* FindSlot(const uint64_t* address) {
  for (uint32_t i = 0; i < state.slot_count; ++i) {
    if (state.slots[i].address == address) return &state.slots[i];
  }
  return nullptr;
}

void ConsiderSlot(uint32_t module_index, uint32_t first_hook, uint64_t* address, const char* name,
                  uint32_t* words) {
  uint32_t hook_count = state.hook_count.load(std::memory_order_relaxed);
  for (uint32_t h = first_hook; h < hook_count; ++h) {
    Hook& hook = state.hooks[h];
    if (hook.detached || !Matches(hook, name)) continue;
    const ElfModule& module = state.views[module_index];
    uint64_t value = __atomic_load_n(address, __ATOMIC_ACQUIRE);
    if (!IsBound(module, value) || FindSlot(address) != nullptr) return;
    uint64_t real = RealFunction(module_index, name, value);
    uint64_t thunk = real == 0 ? 0 : ThunkFor(static_cast<HookId>(h), hook.spec.observer, real);
    if (thunk == 0 || state.slot_count == kMaxSlots) {
      ++hook.refused;
      return;
    }
    Slot& slot = state.slots[state.slot_count];
    slot = {address, value, thunk, static_cast<HookId>(h), module.base(), module.dynamic()};
    ++hook.slots;
    AddWord(address, thunk, state.slot_count++, words);
    return;
  }
}

// A thread that was inside the lazy resolver when its slot was patched writes the real address over
// our thunk; a module that was unloaded and loaded again at its old place has fresh slots. Any
// other value in the slot is another tool's, and stays.
void RepairOverwritten(uint32_t* words) {
  for (uint32_t i = 0; i < state.slot_count && *words < kMaxSlots; ++i) {
    const Slot& slot = state.slots[i];
    uint64_t value = __atomic_load_n(slot.address, __ATOMIC_ACQUIRE);
    if (value == RealBehindThunk(slot.thunk)) {
      AddWord(slot.address, slot.thunk, i, words);
    }
  }
}

// Writes state.words; slots that refuse are dropped. Returns whether any was written.
bool WriteSlots(uint32_t words) {
  if (words == 0) return false;
  bool wrote = false;
  ReadProtections(state.words, words);
  // Backwards, so that dropping a slot moves none that is still to be written.
  for (uint32_t i = words; i-- > 0;) {
    if (WriteWord(state.words[i])) {
      wrote = true;
      continue;
    }
    uint32_t index = state.word_slot[i];
    Hook& hook = state.hooks[state.slots[index].hook];
    --hook.slots;
    ++hook.refused;
    state.slots[index] = state.slots[--state.slot_count];
  }
  return wrote;
}

// Second half of a scan, after WaitForLoads: only modules that this or an earlier scan marked.
// False when something was unloaded since: a known address may then be that of a module being
// loaded.
bool PatchModules(uint64_t scan, const LoaderCounters& marked, bool* wrote) {
  bool valid = true;
  HoldModuleList([&] {
    valid = ReadLoaderCounters().subs == marked.subs;
    if (!valid) return;
    uint32_t words = 0;
    uint32_t hook_count = state.hook_count.load(std::memory_order_relaxed);
    state.views.Build();
    RepairOverwritten(&words);
    for (uint32_t i = 0; i < state.views.count(); ++i) {
      const ElfModule& module = state.views[i];
      KnownModule* known = FindKnown(module);
      if (known == nullptr || known->marked_by > scan || known->hooks_scanned >= hook_count) {
        continue;
      }
      uint32_t first_hook = known->hooks_scanned;
      known->hooks_scanned = hook_count;
      if (module.Contains(reinterpret_cast<uint64_t>(&ScanForNewModules))) continue;
      module.ForEachSlot([&](uint64_t* slot, const char* name) {
        if (words < kMaxSlots) ConsiderSlot(i, first_hook, slot, name, &words);
      });
    }
    if (WriteSlots(words)) *wrote = true;
  });
  return valid;
}

bool Covered(const LoaderCounters& counters) {
  return state.covered_adds.load(std::memory_order_acquire) == counters.adds &&
         state.covered_subs.load(std::memory_order_relaxed) == counters.subs &&
         state.covered_hooks.load(std::memory_order_relaxed) ==
             state.hook_count.load(std::memory_order_relaxed);
}

// On a job's thread, before it looks something up in, or loads, a module.
void CoverNewModules() {
  if (!Covered(ReadLoaderCounters())) ScanForNewModules();
}

void OnLookup(const HookCall& call) {
  CoverNewModules();
  if (state.lookup_observer != nullptr && call.arguments[1] != 0) {
    state.lookup_observer(call.String(1));
  }
}

void OnLoad(const HookCall&) { CoverNewModules(); }

// Nothing was loaded: only the slots are looked at again.
bool RepairSlots(const LoaderCounters& counters) {
  Locked locked(kScanPatienceNs);
  if (!locked.held()) return false;
  bool wrote = false;
  HoldModuleList([&] {
    if (ReadLoaderCounters() != counters) return;
    uint32_t words = 0;
    RepairOverwritten(&words);
    wrote = WriteSlots(words);
  });
  return wrote;
}

uint32_t PutBack(HookId only) {
  Locked locked(kDetachPatienceNs);
  if (!locked.held()) return 0;
  uint32_t put_back = 0;
  uint32_t hook_count = state.hook_count.load(std::memory_order_relaxed);
  auto ends = [only](HookId hook) { return only == kNoHook || hook == only; };
  HoldModuleList([&] {
    state.views.Build();
    for (uint32_t m = 0; m < state.module_count; ++m) state.modules[m].present = false;
    for (uint32_t i = 0; i < state.views.count(); ++i) {
      KnownModule* known = FindKnown(state.views[i]);
      if (known != nullptr) known->present = true;
    }
    ForgetUnloaded(/*unloaded=*/false, state.scans);
    uint32_t words = 0;
    for (uint32_t i = 0; i < state.slot_count; ++i) {
      const Slot& slot = state.slots[i];
      if (!ends(slot.hook)) continue;
      if (Loses(slot)) continue;
      AddWord(slot.address, slot.old_value, i, &words);
    }
    ReadProtections(state.words, words);
    for (uint32_t i = 0; i < words; ++i) put_back += WriteWord(state.words[i]) ? 1 : 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < state.slot_count; ++i) {
      if (!ends(state.slots[i].hook)) state.slots[kept++] = state.slots[i];
    }
    state.slot_count = kept;
  });
  for (uint32_t h = 0; h < hook_count; ++h) {
    if (!ends(static_cast<HookId>(h))) continue;
    state.hooks[h].detached = true;
    state.hooks[h].slots = 0;
    SilenceThunks(static_cast<HookId>(h));
  }
  return put_back;
}

}  // namespace

void InitHooks(const volatile uint8_t* alive) {
  InitDispatch(alive);
  AddHook({"dlsym", false, OnLookup});
  AddHook({"dlvsym", false, OnLookup});
  AddHook({"dlopen", false, OnLoad});
}

HookId AddHook(const HookSpec& spec) {
  Locked locked(kDetachPatienceNs);
  uint32_t count = state.hook_count.load(std::memory_order_relaxed);
  if (!locked.held() || count == kMaxHooks) return kNoHook;
  state.hooks[count] = {spec, strlen(spec.name), false, 0, 0};
  state.hook_count.store(count + 1, std::memory_order_release);
  return static_cast<HookId>(count);
}

bool ScanForNewModules() {
  LoaderCounters counters = ReadLoaderCounters();
  if (Covered(counters)) return RepairSlots(counters);
  bool wrote = false;
  for (int attempt = 0; attempt < 3; ++attempt) {
    uint64_t scan;
    uint32_t hooks = state.hook_count.load(std::memory_order_acquire);
    {
      Locked locked(kScanPatienceNs);
      if (!locked.held()) return false;
      scan = MarkModules(&counters);
    }
    // Without our lock: another thread may hold the load lock and want ours.
    WaitForLoads();
    Locked locked(kScanPatienceNs);
    if (!locked.held()) return wrote;
    if (!PatchModules(scan, counters, &wrote)) continue;
    state.covered_adds.store(counters.adds, std::memory_order_relaxed);
    state.covered_subs.store(counters.subs, std::memory_order_relaxed);
    state.covered_hooks.store(hooks, std::memory_order_release);
    break;
  }
  return wrote;
}

uint64_t ScanGeneration() {
  return state.covered_adds.load(std::memory_order_relaxed) +
         state.covered_subs.load(std::memory_order_relaxed) +
         state.covered_hooks.load(std::memory_order_relaxed);
}

uint32_t DetachHook(HookId id) { return id == kNoHook ? 0 : PutBack(id); }

uint32_t DetachHooks() { return PutBack(kNoHook); }

HookStatus GetHookStatus(HookId id) {
  Locked locked(kScanPatienceNs);
  if (!locked.held() || id < 0 ||
      static_cast<uint32_t>(id) >= state.hook_count.load(std::memory_order_relaxed)) {
    return {HookState::kNotLoaded, 0, 0};
  }
  const Hook& hook = state.hooks[id];
  HookStatus status = {HookState::kNotLoaded, hook.slots, hook.refused};
  if (hook.detached) {
    status.state = HookState::kDetached;
  } else if (hook.slots > 0) {
    status.state = HookState::kOn;
  } else if (hook.refused > 0) {
    status.state = HookState::kRefused;
  } else {
    HoldModuleList([&] {
      state.views.Build();
      if (state.views.Find(hook.spec.name, hook.spec.prefix, hook.spec.home) != 0) {
        status.state = HookState::kNoImport;
      }
    });
  }
  return status;
}

void* FindDefinition(const char* name, bool prefix) {
  Locked locked(kScanPatienceNs);
  if (!locked.held()) return nullptr;
  uint64_t found = 0;
  HoldModuleList([&] {
    state.views.Build();
    found = state.views.Find(name, prefix);
  });
  return reinterpret_cast<void*>(found);
}

void SetLookupObserver(void (*observer)(const char* name)) { state.lookup_observer = observer; }

}  // namespace tidemark::agent
