// Where CPython keeps what a stack walk needs, in bytes, per minor version. Patch releases of one
// minor version share a layout.
//
// Sources: the interpreters' own headers (offsetof over Include/internal
// of 3.8.18, 3.9.18, 3.10.13, 3.11.7, 3.12.1 and 3.13.0). From 3.13 on the interpreter publishes
// its layout itself, in _Py_DebugOffsets at the start of _PyRuntime; that table wins over ours.
#pragma once

#include <cstdint>

namespace tidemark::agent {

enum class LineTable : uint8_t { kLnotab, kLineTable310, kLocations311 };

// What the frame keeps of its position in the code.
enum class Position : uint8_t {
  kByteOffset,   // int: offset in bytes (3.8, 3.9)
  kUnitIndex,    // int: index of the two-byte instruction (3.10)
  kUnitPointer,  // pointer to the instruction (3.11 on)
};

struct PythonLayout {
  uint16_t version;  // 0x030B for 3.11

  uint16_t runtime_interpreters;  // _PyRuntime.interpreters.head
  uint16_t interpreter_next;
  uint16_t interpreter_threads;  // PyInterpreterState.threads.head
  uint16_t thread_next;
  uint16_t thread_id;     // PyThreadState.thread_id: pthread_self()
  uint16_t thread_frame;  // the innermost frame; of the _PyCFrame where has_cframe
  bool has_cframe;
  uint16_t cframe_frame;

  uint16_t frame_code;
  uint16_t frame_previous;
  uint16_t frame_position;
  uint16_t frame_owner;  // 0: all frames are Python's
  Position position;

  uint16_t code_filename;
  uint16_t code_name;
  uint16_t code_qualified_name;  // 0: the version has none
  uint16_t code_first_line;
  uint16_t code_line_table;
  uint16_t code_instructions;  // of the code object; only for kUnitPointer
  LineTable line_table;

  uint16_t ascii_bytes;    // sizeof(PyASCIIObject)
  uint16_t compact_bytes;  // sizeof(PyCompactUnicodeObject)
};

// Stable over all versions above: PyObject.ob_type, PyVarObject.ob_size and bytes' data,
// PyASCIIObject length and state.
inline constexpr uint64_t kObjectType = 8;
inline constexpr uint64_t kBytesSize = 16;
inline constexpr uint64_t kBytesData = 32;
inline constexpr uint64_t kTextLength = 16;
inline constexpr uint64_t kTextState = 32;

// The first owner value that is no Python frame: entry frames of the interpreter's C code.
inline constexpr uint8_t kFirstForeignOwner = 3;

// Finds the layout of `version` (0x030B), for 3.13 and later from the table at `runtime`, the
// address of _PyRuntime. False with a static `reason` when there is none that can be trusted.
bool FindPythonLayout(uint16_t version, uint64_t runtime, PythonLayout* layout,
                      const char** reason);

}  // namespace tidemark::agent
