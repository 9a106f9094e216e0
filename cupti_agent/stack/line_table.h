// Line of an instruction from a code object's line table, in the three forms CPython has used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cupti_agent/stack/python_layout.h"

namespace tidemark::agent {

// Reads the table's bytes one after the other, from memory that may not be there.
class TableReader {
 public:
  TableReader(uint64_t address, uint64_t bytes) : next_(address), left_(bytes) {}

  // The next byte, or -1 at the end or where memory ends.
  int Next();

 private:
  uint64_t next_;
  uint64_t left_;
  uint8_t buffer_[256];
  size_t held_ = 0;
  size_t used_ = 0;
};

// `byte_offset` is that of the instruction within the code. 0 when the table gives it no line.
uint32_t LineOf(LineTable form, TableReader* table, uint32_t first_line, uint64_t byte_offset);

}  // namespace tidemark::agent
