#include "cupti_agent/stack/python_text.h"

#include <cstring>

#include "cupti_agent/stack/python_layout.h"
#include "cupti_agent/stack/safe_read.h"

namespace tidemark::agent {
namespace {

constexpr uint32_t kCompact = 1u << 3;  // after the three bits of the kind
constexpr uint32_t kAscii = 1u << 4;

// Bytes written, 0 when there is no room for the whole character.
size_t PutUtf8(uint32_t c, char* to, size_t room) {
  if ((c >= 0xD800 && c < 0xE000) || c > 0x10FFFF) c = 0xFFFD;
  auto put = [to](size_t i, uint32_t byte) { to[i] = static_cast<char>(byte); };
  if (c < 0x80) {
    if (room < 1) return 0;
    put(0, c);
    return 1;
  }
  if (c < 0x800) {
    if (room < 2) return 0;
    put(0, 0xC0 | c >> 6);
    put(1, 0x80 | (c & 63));
    return 2;
  }
  if (c < 0x10000) {
    if (room < 3) return 0;
    put(0, 0xE0 | c >> 12);
    put(1, 0x80 | (c >> 6 & 63));
    put(2, 0x80 | (c & 63));
    return 3;
  }
  if (room < 4) return 0;
  put(0, 0xF0 | c >> 18);
  put(1, 0x80 | (c >> 12 & 63));
  put(2, 0x80 | (c >> 6 & 63));
  put(3, 0x80 | (c & 63));
  return 4;
}

}  // namespace

bool ReadText(const TextLayout& layout, uint64_t address, char* to, size_t capacity,
              std::string_view* text) {
  uint8_t header[40];
  if (address == 0 || (address & 7) != 0 || !SafeRead(address, header, sizeof(header)))
    return false;
  uint64_t type, length;
  uint32_t state;
  memcpy(&type, header + kObjectType, sizeof(type));
  memcpy(&length, header + kTextLength, sizeof(length));
  memcpy(&state, header + kTextState, sizeof(state));
  state >>= layout.kind_shift;
  uint32_t width = state & 7;
  if (type != layout.type || (state & kCompact) == 0) return false;
  if (width != 1 && width != 2 && width != 4) return false;
  bool ascii = (state & kAscii) != 0;
  uint64_t data = address + (ascii ? layout.ascii_bytes : layout.compact_bytes);

  size_t written = 0;
  if (ascii) {
    written = length < capacity ? length : capacity;
    if (!SafeRead(data, to, written)) return false;
  } else {
    uint8_t chunk[256];
    uint64_t left = length * width;
    bool full = false;
    while (left > 0 && !full) {
      size_t bytes = left < sizeof(chunk) ? left : sizeof(chunk);
      if (!SafeRead(data, chunk, bytes)) return false;
      for (size_t i = 0; i < bytes && !full; i += width) {
        uint32_t c = 0;
        memcpy(&c, chunk + i, width);
        size_t put = PutUtf8(c, to + written, capacity - written);
        full = put == 0;
        written += put;
      }
      data += bytes;
      left -= bytes;
    }
  }
  *text = std::string_view(to, written);
  return true;
}

bool FindKindShift(uint64_t address, uint8_t* shift) {
  uint32_t state;
  if (!SafeRead(address + kTextState, &state)) return false;
  // Up to 3.13 two bits precede the kind, or a byte; 3.14 gave them sixteen.
  for (uint8_t candidate : {2, 8, 16}) {
    if ((state >> candidate & 31) == (1 | kCompact | kAscii)) {
      *shift = candidate;
      return true;
    }
  }
  return false;
}

}  // namespace tidemark::agent
