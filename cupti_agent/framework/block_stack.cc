#include "cupti_agent/framework/block_stack.h"

#include <sys/prctl.h>
#include <time.h>

#include <atomic>
#include <cstring>

namespace tidemark::agent {
namespace {

constexpr char kBackwardThreadName[] = "pt_autograd";
constexpr int64_t kNativeStacksPerSecond = 200;

// The last published frames: odd sequence while they are being written. A reader that meets a
// writer does without: the next block will find them.
struct Published {
  std::atomic<uint32_t> sequence{0};
  std::atomic<bool> writing{false};
  uint64_t hash = 0;
  uint16_t count = 0;
  uint8_t flags = 0;
  RawFrame frames[wire::kMaxFrames] = {};
};
constinit Published published;

enum class ThreadKind : uint8_t { kUnknown, kBackward, kOther };
[[gnu::tls_model("initial-exec")]] thread_local ThreadKind thread_kind = ThreadKind::kUnknown;

bool CopyBackwardStack(Stack* stack) {
  uint32_t before = published.sequence.load(std::memory_order_acquire);
  if ((before & 1) != 0 || published.count == 0) return false;
  stack->hash = published.hash;
  stack->count = published.count;
  stack->flags = published.flags;
  memcpy(stack->frames, published.frames, stack->count * sizeof(RawFrame));
  std::atomic_thread_fence(std::memory_order_acquire);
  if (published.sequence.load(std::memory_order_relaxed) == before) return true;
  stack->count = 0;
  return false;
}

// Native unwinding costs microseconds: at most so many a second, over all threads.
bool MayUnwind() {
  static constinit std::atomic<int64_t> second{0};
  static constinit std::atomic<int64_t> used{0};
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  if (second.exchange(now.tv_sec, std::memory_order_relaxed) != now.tv_sec) {
    used.store(0, std::memory_order_relaxed);
  }
  return used.fetch_add(1, std::memory_order_relaxed) < kNativeStacksPerSecond;
}

}  // namespace

bool CaptureForBlock(Stack* stack) {
  if (CapturePython(stack)) return true;
  if (IsBackwardThread() && CopyBackwardStack(stack)) return true;
  return MayUnwind() && CaptureNative(stack);
}

void PublishBackwardStack(const Stack& stack) {
  if (stack.count == 0 || published.writing.exchange(true, std::memory_order_acquire)) return;
  uint32_t sequence = published.sequence.load(std::memory_order_relaxed);
  published.sequence.store(sequence + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  published.hash = stack.hash;
  published.count = stack.count;
  published.flags = stack.flags;
  memcpy(published.frames, stack.frames, stack.count * sizeof(RawFrame));
  published.sequence.store(sequence + 2, std::memory_order_release);
  published.writing.store(false, std::memory_order_release);
}

bool IsBackwardThread() {
  if (thread_kind == ThreadKind::kUnknown) {
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    bool backward = strncmp(name, kBackwardThreadName, sizeof(kBackwardThreadName) - 1) == 0;
    thread_kind = backward ? ThreadKind::kBackward : ThreadKind::kOther;
  }
  return thread_kind == ThreadKind::kBackward;
}

}  // namespace tidemark::agent
