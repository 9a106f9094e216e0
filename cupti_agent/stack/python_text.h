// A Python string as UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tidemark::agent {

// How a string object is laid out in this interpreter.
struct TextLayout {
  uint64_t type;  // address of PyUnicode_Type
  uint16_t ascii_bytes;
  uint16_t compact_bytes;
  uint8_t kind_shift;  // of the character width (1, 2 or 4) within the state word
};

// Copies the string object at `address` into `to`, cut at a character where it does not fit. An
// unpaired surrogate (an undecodable byte of a file name) becomes U+FFFD. False when the object
// cannot be read or is no compact string.
bool ReadText(const TextLayout& layout, uint64_t address, char* to, size_t capacity,
              std::string_view* text);

// Finds kind_shift from any ASCII string, such as a function's name. False when none fits.
bool FindKindShift(uint64_t address, uint8_t* shift);

}  // namespace tidemark::agent
