// What stack capture hands to the ledger: a hash that decides whether the site is known, and a way
// to read the frames when it is not. Names are read once per site, never once per allocation.
//
// Lifetime: a StackView and what it points at live on the capturing thread's stack for the length
// of one ledger call. Nothing of it is kept.
#pragma once

#include <cstdint>
#include <string_view>

#include "wire/region.h"

namespace tidemark::agent {

struct StackFrame {
  wire::FrameKind kind = wire::FrameKind::kNative;

  // Python. Bytes of UTF-8; the ledger copies them, at most kMaxStringBytes of each.
  std::string_view file;
  std::string_view function;
  uint32_t line = 0;  // 0 = unknown

  // Native.
  std::string_view module_path;
  const uint8_t* build_id = nullptr;
  uint8_t build_id_bytes = 0;
  uint64_t module_base = 0;  // load bias
  uint32_t offset = 0;       // in the module's file image
};

struct StackView {
  uint64_t hash = 0;   // equal hash = equal frames, as far as the ledger is concerned
  uint16_t count = 0;  // at most wire::kMaxFrames; 0 = a stack was wanted and none was to be had
  uint8_t flags = 0;   // wire::SiteFlags; the ledger adds kSiteSampled itself
  const void* frames = nullptr;  // the capturer's own

  // Fills frame `index` (0 = innermost). Called only for a hash not seen before, under the ledger's
  // lock: it must not allocate, block, fault for long, or call the ledger. False = stop here: the
  // site keeps the frames so far and is marked truncated.
  bool (*resolve)(const StackView& stack, uint16_t index, StackFrame* frame) = nullptr;
};

inline constexpr uint32_t kMaxStringBytes = 1024;

}  // namespace tidemark::agent
