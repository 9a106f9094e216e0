#include "cupti_agent/hooks/hook_dispatch.h"

#include <cerrno>
#include <cstddef>

namespace tidemark::agent {
namespace {

constexpr uint64_t kThunkBytes = 16;

struct Thunk {
  std::atomic<uint64_t> real{0};
  std::atomic<HookObserver> observer{nullptr};
  HookId hook = kNoHook;
};

constinit Thunk thunks[kMaxThunks];
constinit std::atomic<uint32_t> thunk_count{0};
constinit const volatile uint8_t* alive_byte = nullptr;

// Initial-exec: the general model would allocate this thread's copy at its first use, inside
// whatever lock the caller holds.
[[gnu::tls_model("initial-exec")]] thread_local bool inside_observer = false;

}  // namespace
}  // namespace tidemark::agent

extern "C" {
[[gnu::visibility("hidden")]] extern const char TidemarkThunks[];
[[gnu::visibility("hidden")]] extern const uint64_t TidemarkThunkCount;

// Called by every thunk. The target is set first and unconditionally: the job's call must go on
// whatever the agent's state is.
[[gnu::visibility("hidden")]] void TidemarkHookDispatch(tidemark::agent::HookCall* call) {
  using namespace tidemark::agent;
  Thunk& thunk = thunks[call->thunk];
  call->target = thunk.real.load(std::memory_order_relaxed);
  HookObserver observer = thunk.observer.load(std::memory_order_relaxed);
  if (observer == nullptr || *alive_byte == 0 || inside_observer) return;
  inside_observer = true;
  int saved_errno = errno;
  observer(*call);
  errno = saved_errno;
  inside_observer = false;
}
}

namespace tidemark::agent {

static_assert(offsetof(HookCall, rax) == 48 && offsetof(HookCall, vectors) == 64 &&
                  offsetof(HookCall, target) == 192 && offsetof(HookCall, thunk) == 208 &&
                  offsetof(HookCall, return_address) == 216 &&
                  offsetof(HookCall, stack_arguments) == 224,
              "thunk.S builds this layout");

void InitDispatch(const volatile uint8_t* alive) { alive_byte = alive; }

uint64_t ThunkFor(HookId hook, HookObserver observer, uint64_t real) {
  uint64_t first = reinterpret_cast<uint64_t>(TidemarkThunks);
  uint32_t count = thunk_count.load(std::memory_order_relaxed);
  uint32_t chosen = count;
  for (uint32_t i = 0; i < count; ++i) {
    if (thunks[i].hook == hook && thunks[i].real.load(std::memory_order_relaxed) == real) {
      return first + i * kThunkBytes;
    }
    if (thunks[i].hook == kNoHook) chosen = i;
  }
  if (chosen == kMaxThunks || chosen >= TidemarkThunkCount) return 0;
  thunks[chosen].hook = hook;
  thunks[chosen].real.store(real, std::memory_order_relaxed);
  thunks[chosen].observer.store(observer, std::memory_order_release);
  if (chosen == count) thunk_count.store(count + 1, std::memory_order_release);
  return first + chosen * kThunkBytes;
}

void RetireThunks(bool (*gone)(uint64_t thunk, uint64_t real)) {
  uint64_t first = reinterpret_cast<uint64_t>(TidemarkThunks);
  uint32_t count = thunk_count.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) {
    if (thunks[i].hook == kNoHook) continue;
    if (!gone(first + i * kThunkBytes, thunks[i].real.load(std::memory_order_relaxed))) continue;
    thunks[i].hook = kNoHook;
    thunks[i].observer.store(nullptr, std::memory_order_relaxed);
  }
}

uint64_t RealBehindThunk(uint64_t address) {
  uint64_t offset = address - reinterpret_cast<uint64_t>(TidemarkThunks);
  if (offset >= thunk_count.load(std::memory_order_acquire) * kThunkBytes) return 0;
  return thunks[offset / kThunkBytes].real.load(std::memory_order_relaxed);
}

void SilenceThunks(HookId hook) {
  uint32_t count = thunk_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    if (thunks[i].hook == hook) thunks[i].observer.store(nullptr, std::memory_order_relaxed);
  }
}

}  // namespace tidemark::agent
