#include "cupti_agent/stack/python_layout.h"

#include <cstring>

#include "cupti_agent/stack/safe_read.h"

namespace tidemark::agent {
namespace {

constexpr PythonLayout kOld = {
    .version = 0x0308,
    .runtime_interpreters = 32,
    .interpreter_next = 0,
    .interpreter_threads = 8,
    .thread_next = 8,
    .thread_id = 176,
    .thread_frame = 24,
    .has_cframe = false,
    .cframe_frame = 0,
    .frame_code = 32,
    .frame_previous = 24,
    .frame_position = 104,
    .frame_owner = 0,
    .position = Position::kByteOffset,
    .code_filename = 104,
    .code_name = 112,
    .code_qualified_name = 0,
    .code_first_line = 40,
    .code_line_table = 120,
    .code_instructions = 0,
    .line_table = LineTable::kLnotab,
    .ascii_bytes = 48,
    .compact_bytes = 72,
};

constexpr PythonLayout k311 = {
    .version = 0x030B,
    .runtime_interpreters = 40,
    .interpreter_next = 0,
    .interpreter_threads = 16,
    .thread_next = 8,
    .thread_id = 152,
    .thread_frame = 56,
    .has_cframe = true,
    .cframe_frame = 8,
    .frame_code = 32,
    .frame_previous = 48,
    .frame_position = 56,
    .frame_owner = 69,
    .position = Position::kUnitPointer,
    .code_filename = 112,
    .code_name = 120,
    .code_qualified_name = 128,
    .code_first_line = 72,
    .code_line_table = 136,
    .code_instructions = 184,
    .line_table = LineTable::kLocations311,
    .ascii_bytes = 48,
    .compact_bytes = 72,
};

constexpr PythonLayout With310(PythonLayout layout) {
  layout.version = 0x030A;
  layout.frame_position = 96;
  layout.position = Position::kUnitIndex;
  layout.line_table = LineTable::kLineTable310;
  return layout;
}

constexpr PythonLayout With312(PythonLayout layout) {
  layout.version = 0x030C;
  layout.interpreter_threads = 72;
  layout.thread_id = 136;
  layout.cframe_frame = 0;
  layout.frame_code = 0;
  layout.frame_previous = 8;
  layout.frame_owner = 70;
  layout.code_first_line = 68;
  layout.code_instructions = 192;
  layout.ascii_bytes = 40;
  layout.compact_bytes = 56;
  return layout;
}

// _Py_DebugOffsets is a row of uint64_t after an eight-byte cookie. Indices of the fields, counted
// in eight bytes from its start; 3.14 put some in between.
struct DebugIndices {
  uint8_t interpreters_head, interpreter_next, threads_head;
  uint8_t thread_next, current_frame, thread_id;
  uint8_t previous, executable, instr_ptr, owner;
  uint8_t filename, name, qualname, linetable, firstlineno, code_adaptive;
  uint8_t count;
};
constexpr uint8_t kFreeThreaded = 2;
constexpr DebugIndices k313 = {5, 8, 9, 21, 23, 24, 29, 30, 31, 33, 35, 36, 37, 38, 39, 43, 44};
constexpr DebugIndices k314 = {5, 8, 9, 24, 26, 27, 32, 33, 34, 36, 40, 41, 42, 43, 44, 48, 50};

bool FromDebugOffsets(uint16_t version, uint64_t runtime, const DebugIndices& indices,
                      PythonLayout* layout, const char** reason) {
  uint64_t table[64];
  if (!SafeRead(runtime, table, indices.count * sizeof(uint64_t))) {
    *reason = "_PyRuntime cannot be read";
    return false;
  }
  if (memcmp(table, "xdebugpy", 8) != 0 || table[1] >> 16 != version) {
    *reason = "the interpreter's own offset table is not as expected";
    return false;
  }
  if (table[kFreeThreaded] != 0) {
    *reason = "free-threaded interpreter";
    return false;
  }
  auto field = [&table](uint8_t index) { return static_cast<uint16_t>(table[index]); };
  *layout = With312(k311);
  layout->version = version;
  layout->runtime_interpreters = field(indices.interpreters_head);
  layout->interpreter_next = field(indices.interpreter_next);
  layout->interpreter_threads = field(indices.threads_head);
  layout->thread_next = field(indices.thread_next);
  layout->thread_frame = field(indices.current_frame);
  layout->thread_id = field(indices.thread_id);
  layout->has_cframe = false;
  layout->frame_previous = field(indices.previous);
  layout->frame_code = field(indices.executable);
  layout->frame_position = field(indices.instr_ptr);
  layout->frame_owner = field(indices.owner);
  layout->code_filename = field(indices.filename);
  layout->code_name = field(indices.name);
  layout->code_qualified_name = field(indices.qualname);
  layout->code_line_table = field(indices.linetable);
  layout->code_first_line = field(indices.firstlineno);
  layout->code_instructions = field(indices.code_adaptive);
  return true;
}

}  // namespace

bool FindPythonLayout(uint16_t version, uint64_t runtime, PythonLayout* layout,
                      const char** reason) {
  switch (version) {
    case 0x0308:
    case 0x0309:
      *layout = kOld;
      layout->version = version;
      return true;
    case 0x030A:
      *layout = With310(kOld);
      return true;
    case 0x030B:
      *layout = k311;
      return true;
    case 0x030C:
      *layout = With312(k311);
      return true;
    case 0x030D:
      return FromDebugOffsets(version, runtime, k313, layout, reason);
    case 0x030E:
      return FromDebugOffsets(version, runtime, k314, layout, reason);
  }
  *reason = "this version of Python is not known";
  return false;
}

}  // namespace tidemark::agent
