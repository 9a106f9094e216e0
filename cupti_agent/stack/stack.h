// The stack of the current thread, in two steps: *capture* is cheap and leaves raw addresses and a
// key (Python about 0.1 us, native a few us); *resolve* turns a frame into names and runs only when
// a key has not been seen before.
//
// Python frames are read as plain memory with per-version offsets: no GIL, no reference, no
// allocation, no call into the interpreter. That is safe for the thread's own frames, which only
// this thread changes, and which keep their code objects alive. Resolving reads through the kernel
// (process_vm_readv), so that a pointer that went bad is a failed read, not a fault.
//
// Threads: any. Neither step allocates or takes a lock of the loader: modules are looked up in a
// table that RefreshModules() keeps.
#pragma once

#include <cstdint>

#include "wire/region.h"

namespace tidemark::agent {

struct RawFrame {
  uint64_t code;      // Python: code object. Native: return address
  uint64_t position;  // Python: byte offset of the instruction. Native: 0
  wire::FrameKind kind;
};

struct Stack {
  uint64_t key;    // hash of the raw frames; names a stack within this process only. 0 = no frames
  uint16_t count;  // innermost frame first
  uint8_t flags;   // wire::SiteFlags: kSitePython, kSiteNative, kSiteTruncated
  RawFrame frames[wire::kMaxFrames];
};

// One frame with its names; the pointers lead into this object or into the module table and stay
// valid as long as the object does. Text is UTF-8, cut to fit, and zero-terminated.
struct ResolvedFrame {
  wire::FrameKind kind;
  uint32_t line;       // Python; 0 = unknown
  char file[512];      // Python
  char function[256];  // Python: qualified name where the version has it (3.11), else the name
  uint32_t module;     // native: index into the module table, see GetModule; kNoModule = unknown
  uint32_t offset;     // native: of the call within the module's file image
};
inline constexpr uint32_t kNoModule = UINT32_MAX;

struct StackModule {
  uint64_t base;   // load bias
  uint64_t begin;  // mapped range
  uint64_t end;
  uint8_t build_id_bytes;
  uint8_t build_id[24];
  char path[256];
};

// Why a walk is off, for the feature rows; zero-terminated static text.
struct StackStatus {
  wire::FeatureState python;
  const char* python_reason;
  wire::FeatureState native;
  const char* native_reason;
  uint32_t python_version;  // 0x030B for 3.11; 0 = no interpreter
};

// Once, at start-up, after InitHooks. Finds the interpreter; checks the offsets against its public
// API when this thread holds the GIL. Otherwise the check is by type pointers at the first capture
// on a thread with frames; until it passed, CapturePython returns false.
void InitStacks();

// After the loader's counters changed (from ScanForNewModules' callers, never from a tap): adds new
// modules to the table, finds an interpreter that was loaded late.
void RefreshModules();

StackStatus GetStackStatus();

// Python frames of this thread. False (count 0) when it has none or the walk is off.
bool CapturePython(Stack* stack);

// Native frames of this thread, the agent's own left out. Where the thread runs Python code, the
// frames from the interpreter outwards are replaced by the Python walk, so that one stack reads
// "cudaMalloc wrapper in C++, called from train.py:12".
bool CaptureNative(Stack* stack);

// Names of frame `i`. False when it cannot be read (any more).
bool ResolveFrame(const Stack& stack, uint16_t i, ResolvedFrame* frame);

// Modules are never forgotten: an index stays valid. nullptr when out of range.
const StackModule* GetModule(uint32_t index);

}  // namespace tidemark::agent
