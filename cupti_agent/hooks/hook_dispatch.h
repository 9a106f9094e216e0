// The pool of thunks: which real function each one jumps to and whom it tells. A thunk belongs to
// one (hook, real function) pair, and is given to another only when the function is gone: a thread
// may stand in a thunk for as long as the function exists.
#pragma once

#include <atomic>
#include <cstdint>

#include "cupti_agent/hooks/import_hooks.h"

namespace tidemark::agent {

inline constexpr uint32_t kMaxThunks = 96;  // kThunkCount of thunk.S

// `alive` as in InitHooks.
void InitDispatch(const volatile uint8_t* alive);

// Address to put into a slot; 0 when the pool is empty. Call under the hooks' lock.
uint64_t ThunkFor(HookId hook, HookObserver observer, uint64_t real);

// Takes back the thunks for which `gone(thunk, real)` holds. Call under the hooks' lock.
void RetireThunks(bool (*gone)(uint64_t thunk, uint64_t real));

// The real function behind a thunk's address; 0 when the address is no thunk.
uint64_t RealBehindThunk(uint64_t address);

// Calls through the hook's thunks no longer reach an observer. A call that is in its observer now
// finishes there.
void SilenceThunks(HookId hook);

}  // namespace tidemark::agent
