#include "cupti_agent/stack/line_table.h"

#include "cupti_agent/stack/safe_read.h"

namespace tidemark::agent {
namespace {

// Pairs of (bytes of code: unsigned, lines: signed); an entry's line holds from the bytes on.
uint32_t FromLnotab(TableReader* table, int64_t line, uint64_t byte_offset) {
  uint64_t address = 0;
  for (;;) {
    int bytes = table->Next();
    int lines = table->Next();
    if (lines < 0) return static_cast<uint32_t>(line);
    address += static_cast<uint64_t>(bytes);
    if (address > byte_offset) return static_cast<uint32_t>(line);
    line += static_cast<int8_t>(lines);
  }
}

// Pairs of (bytes of code: unsigned, lines: signed, -128 = no line); the line moves first and then
// holds for the bytes.
uint32_t FromLineTable310(TableReader* table, int64_t line, uint64_t byte_offset) {
  uint64_t end = 0;
  for (;;) {
    int bytes = table->Next();
    int lines = table->Next();
    if (lines < 0) return 0;
    end += static_cast<uint64_t>(bytes);
    bool none = static_cast<int8_t>(lines) == -128;
    if (!none) line += static_cast<int8_t>(lines);
    if (byte_offset < end) return none ? 0 : static_cast<uint32_t>(line);
  }
}

// Six bits a byte, least significant first; bit 6 = more to come.
bool ReadVarint(TableReader* table, uint64_t* value) {
  *value = 0;
  for (unsigned shift = 0; shift < 60; shift += 6) {
    int byte = table->Next();
    if (byte < 0) return false;
    *value |= static_cast<uint64_t>(byte & 63) << shift;
    if ((byte & 64) == 0) return true;
  }
  return false;
}

bool ReadSignedVarint(TableReader* table, int64_t* value) {
  uint64_t raw;
  if (!ReadVarint(table, &raw)) return false;
  *value = static_cast<int64_t>(raw >> 1);
  if ((raw & 1) != 0) *value = -*value;
  return true;
}

// Entries of 1 | code (4 bits) | length - 1 in two-byte instructions (3 bits), then what the code
// says: columns, which are skipped, and a line delta.
uint32_t FromLocations(TableReader* table, int64_t line, uint64_t byte_offset) {
  constexpr int kOneLineFirst = 10, kOneLineLast = 12, kNoColumns = 13, kLong = 14, kNone = 15;
  uint64_t end = 0;
  for (;;) {
    int head = table->Next();
    if (head < 0 || (head & 0x80) == 0) return 0;
    int code = (head >> 3) & 15;
    end += 2 * (static_cast<uint64_t>(head & 7) + 1);
    int64_t lines = 0;
    uint64_t skipped;
    if (code == kLong) {
      if (!ReadSignedVarint(table, &lines)) return 0;
      for (int i = 0; i < 3; ++i) {
        if (!ReadVarint(table, &skipped)) return 0;
      }
    } else if (code == kNoColumns) {
      if (!ReadSignedVarint(table, &lines)) return 0;
    } else if (code >= kOneLineFirst && code <= kOneLineLast) {
      lines = code - kOneLineFirst;
      table->Next();
      table->Next();
    } else if (code < kOneLineFirst) {
      table->Next();
    }
    line += lines;
    if (byte_offset < end) return code == kNone ? 0 : static_cast<uint32_t>(line);
  }
}

}  // namespace

int TableReader::Next() {
  if (used_ == held_) {
    if (left_ == 0) return -1;
    held_ = left_ < sizeof(buffer_) ? left_ : sizeof(buffer_);
    used_ = 0;
    if (!SafeRead(next_, buffer_, held_)) {
      held_ = left_ = 0;
      return -1;
    }
    next_ += held_;
    left_ -= held_;
  }
  return buffer_[used_++];
}

uint32_t LineOf(LineTable form, TableReader* table, uint32_t first_line, uint64_t byte_offset) {
  switch (form) {
    case LineTable::kLnotab:
      return FromLnotab(table, first_line, byte_offset);
    case LineTable::kLineTable310:
      return FromLineTable310(table, first_line, byte_offset);
    case LineTable::kLocations311:
      return FromLocations(table, first_line, byte_offset);
  }
  return 0;
}

}  // namespace tidemark::agent
