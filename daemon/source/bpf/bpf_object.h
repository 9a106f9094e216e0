// Loading one probe family: what a refusal means in words, and the parts every family shares.
#pragma once

#include <string>

#include "base/proc_root.h"
#include "base/result.h"

namespace tidemark {

// Keeps libbpf from writing to standard error. Process-wide, so called once, by the source.
void SilenceLibbpf();

// Turns the error number of a refused load or attach of `what` into words: which capability is
// missing, or what the kernel lacks.
Error ExplainBpfError(const ProcRoot& root, const std::string& what, int error);

// The next power of two from `bytes`, within what a ring may have (4 KiB to 1 GiB).
uint32_t RingBytes(uint32_t bytes);

}  // namespace tidemark
