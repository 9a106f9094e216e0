// Finds a CUPTI that is linked statically into a program or library: it shares the process's one
// subscriber slot with libcupti.so, and its calls go through no slot that could be hooked.
#pragma once

#include <cstddef>

namespace tidemark::agent {

// Looks at every loaded module but libcupti's own and this library, once each. True when one holds
// CUPTI's code; its file name goes to `module`.
bool FindStaticCupti(char* module, size_t module_bytes);

// Whether the ELF file at `path` defines cuptiSubscribe in its symbol table, or, stripped, holds a
// text that only CUPTI has. For tests.
bool HoldsStaticCupti(const char* path);

}  // namespace tidemark::agent
