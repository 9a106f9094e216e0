// Import hooks: in every loaded module the slot (JUMP_SLOT or GLOB_DAT) through which it calls a
// named function gets the address of a thunk of ours, which shows the call to an observer and then
// jumps on to the real function.
//
//   caller --call *slot--> thunk: saves all argument registers
//                            |-> HookDispatch -> observer(HookCall&)
//                          restores, jmp real   (a tail jump: the return never comes back here)
//
// A thunk leaves nothing on the stack once the real function runs, so exceptions cross it, the real
// function sees its caller's return address (dlsym's RTLD_NEXT keeps its meaning), and while the
// observer runs the call frame information describes the thunk, so an unwinder gets through.
//
// The real definition is looked up in the modules that define the name, in the importer's own
// search order. It is taken from the slot only when the slot already holds a resolved foreign
// address (another tool's hook): an unresolved slot holds a stub of the importer that would
// overwrite ours.
//
// Modules come and go. ScanForNewModules() asks the loader's counters and costs about 100 ns when
// nothing changed. It is called by the agent's thread and by the built-in hooks on dlsym and
// dlopen: a module that a job thread has just loaded is covered when that thread next looks
// something up in it or loads another. A module that calls a hooked function from its constructors
// is not.
//
// Threads: every function may be called from any thread; a bounded lock inside, no allocation.
// Lifetime: for ever; the library is never unloaded (-z nodelete), since a thread may stand in a
// thunk when its slot is put back.
#pragma once

#include <cstdint>

namespace tidemark::agent {

// The call as it arrived. Observers read arguments by position in the System V calling convention;
// a C++ member function's `this` is argument 0. Laid out by thunk.S.
struct alignas(16) HookCall {
  uint64_t arguments[6];  // rdi, rsi, rdx, rcx, r8, r9
  uint64_t rax;           // number of vector registers in use, for variadic functions
  uint64_t r10;
  uint8_t vectors[8][16];  // xmm0-xmm7
  uint64_t target;         // where the thunk jumps; set before the observer runs
  uint64_t reserved;
  uint64_t thunk;  // index of the thunk
  uint64_t return_address;
  uint64_t stack_arguments[1];  // the seventh and later ones

  const char* String(int i) const { return reinterpret_cast<const char*>(arguments[i]); }
  uint64_t StackPointer() const { return reinterpret_cast<uint64_t>(&return_address); }
};

// Runs on the caller's thread, under whatever locks the caller holds. Must not block, throw, or
// call a hooked function of the job. errno is kept by the dispatcher. Never runs in a forked child
// and never inside itself on one thread.
using HookObserver = void (*)(const HookCall& call);

struct HookSpec {
  const char* name;  // the symbol's (mangled) name, static storage
  bool prefix;       // `name` is the beginning of the symbol's name
  HookObserver observer;
  // Beginning of the file name of the module that defines it, where to look when nobody imports it;
  // nullptr = anywhere. Set it for prefixes, which no hash table finds.
  const char* home = nullptr;
};

using HookId = int32_t;
inline constexpr HookId kNoHook = -1;

enum class HookState : uint8_t {
  kNotLoaded,  // no module defines the name
  kNoImport,   // defined, but nobody calls it through a slot (linked statically)
  kOn,         // at least one slot is ours
  kRefused,    // slots exist and none could be made writable
  kDetached,
};

struct HookStatus {
  HookState state;
  uint32_t slots;    // ours now
  uint32_t refused;  // could not be made writable, or no thunk left
};

// Once, before anything else. `alive` is the byte of the MADV_WIPEONFORK page: observers run only
// while it is not 0.
void InitHooks(const volatile uint8_t* alive);

// Registers a hook; slots are patched at the next ScanForNewModules(). kNoHook when the table (48
// hooks) is full. Adding several before one scan costs one pass over the modules.
HookId AddHook(const HookSpec& spec);

// Patches what appeared since the last call, forgets what was unloaded, and looks again at slots
// that a racing lazy binding may have overwritten. Returns true when any slot changed.
// Must not be called under a lock that a module's constructor might wait for: it waits for a load
// in progress on another thread.
bool ScanForNewModules();

// Grows whenever a scan met a changed list of modules or hooks.
uint64_t ScanGeneration();

// Puts the old value back into every slot that still holds ours. DetachHook ends one hook,
// DetachHooks all, for good. Returns the number of slots put back.
uint32_t DetachHook(HookId id);
uint32_t DetachHooks();

HookStatus GetHookStatus(HookId id);

// The first definition of `name` in any loaded module, RTLD_LOCAL ones included; nullptr when there
// is none. No reference to the module is kept.
void* FindDefinition(const char* name, bool prefix = false);

// Is told, on the job's thread and before the lookup proceeds, every name asked of dlsym or dlvsym.
// At most one; set before the first scan.
void SetLookupObserver(void (*observer)(const char* name));

}  // namespace tidemark::agent
