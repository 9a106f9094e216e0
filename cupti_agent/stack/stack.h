// The stack of the current thread, in two steps: *capture* is cheap and leaves raw addresses and a
// hash (Python about 0.1 us, native a few us); names are read through the StackView, only for a
// hash that the ledger has not seen before.
//
// Python frames are read as plain memory with per-version offsets: no GIL, no reference, no
// allocation, no call into the interpreter. That is safe for the thread's own frames, which only
// this thread changes, and which keep their code objects alive. Names are read through the kernel
// (process_vm_readv), so that a pointer that went bad is a failed read, not a fault.
//
// Threads: any. Neither step allocates or takes a lock of the loader: modules are looked up in a
// table that RefreshModules() keeps.
#pragma once

#include <cstdint>

#include "cupti_agent/ledger/stack_view.h"
#include "wire/region.h"

namespace tidemark::agent {

struct RawFrame {
  uint64_t code;      // Python: code object. Native: return address
  uint64_t position;  // Python: byte offset of the instruction; kNativePosition: a native frame
};
inline constexpr uint64_t kNativePosition = UINT64_MAX;

// A captured stack. Lives on the capturing thread's stack for the length of one tap (4 KiB).
struct Stack {
  uint64_t hash = 0;   // of the raw frames; means something within this process only
  uint16_t count = 0;  // innermost frame first
  uint8_t flags = 0;   // wire::SiteFlags: kSitePython, kSiteNative, kSiteTruncated
  RawFrame frames[wire::kMaxFrames];

  // Where names of the frame being resolved are put.
  char file[kMaxStringBytes];
  char function[512];

  Stack() {}  // NOLINT: frames and names stay unset, clearing them would cost more than the walk

  // Valid as long as this object; each resolved frame until the next one is.
  StackView View();
};

// How the walks stand, for the feature rows; reasons are static text.
struct StackStatus {
  wire::FeatureState python;
  const char* python_reason;
  wire::FeatureState native;
  const char* native_reason;
  uint32_t python_version;  // 0x030B for 3.11; 0 = no interpreter
};

// Once, at start-up. Finds the interpreter; checks the offsets against its public API when this
// thread holds the GIL. Otherwise the check is by type pointers at the first capture on a thread
// with frames; until it passed, CapturePython returns false.
void InitStacks();

// Adds newly loaded modules to the table and finds an interpreter that was loaded late; asks the
// loader's counters and costs about 1 us when nothing changed. Never from a tap.
void RefreshModules();

StackStatus GetStackStatus();

// Python frames of this thread. False (count 0) when it has none or the walk is off.
bool CapturePython(Stack* stack);

// Native frames of this thread, the agent's own left out. Where the thread runs Python code, the
// frames from the interpreter outwards are replaced by the Python walk, so that one stack reads
// "cudaMalloc wrapper in C++, called from train.py:12".
bool CaptureNative(Stack* stack);

// File name of the collective library that a native stack runs through ("libnccl.so.2"), else null.
const char* CommunicatorIn(const Stack& stack);

}  // namespace tidemark::agent
