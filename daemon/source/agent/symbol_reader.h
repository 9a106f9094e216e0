// Names for addresses in one ELF file: the function by symbol table, and the source line where the
// file has debug information.
//
// The file is the job's and hostile: it is read by pread, never mapped (a file that shrinks under a
// mapping kills the reader), every size in it is bounded, and nothing of it is kept but the names
// asked for. A symbol table of hundreds of thousands of entries is read through once for all
// addresses of a batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tidemark {

struct Symbol {
  std::string function;  // demangled; empty = no symbol covers the address
  std::string file;      // source file; empty where `line` is 0
  uint32_t line = 0;
};

// The symbols of `addresses` (ELF virtual addresses) in the file behind `fd`, in their order.
// Fails when it is no x86-64 ELF file, or when `build_id` (lower-case hex, empty = unknown) is not
// the file's: it was replaced since it was loaded.
Result<std::vector<Symbol>> ReadSymbols(int fd, const std::string& build_id,
                                        const std::vector<uint64_t>& addresses);

}  // namespace tidemark
