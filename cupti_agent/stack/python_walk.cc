#include "cupti_agent/stack/python_walk.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "cupti_agent/hooks/import_hooks.h"
#include "cupti_agent/stack/line_table.h"
#include "cupti_agent/stack/module_table.h"
#include "cupti_agent/stack/python_text.h"
#include "cupti_agent/stack/safe_read.h"

// The oldest version of the symbol: the default one of a new glibc is missing in an older.
__asm__(".symver pthread_getspecific,pthread_getspecific@GLIBC_2.2.5");

namespace tidemark::agent {
namespace {

constexpr uint32_t kMaxInterpreters = 64;
constexpr uint32_t kMaxThreads = 4096;
constexpr uint32_t kMaxDepth = 20000;
constexpr uint32_t kMaxLine = 10'000'000;
constexpr uint32_t kMaxKeys = 1024;  // PTHREAD_KEYS_MAX
constexpr uint32_t kComparedFrames = 16;
constexpr uint64_t kRuntimeSearchBytes = 8192;

enum class State : uint8_t { kNone, kUnchecked, kChecking, kOn, kOff };

struct Walk {
  std::atomic<State> state{State::kNone};
  const char* reason = "no Python interpreter in this process";
  uint64_t runtime = 0;
  PythonLayout layout = {};
  TextLayout text = {};
  uint64_t code_type = 0;
  // autoTSSkey, through which every thread finds its own thread state, and the flag before it that
  // says it exists.
  pthread_key_t key = 0;
  const int* key_exists = nullptr;
  uint32_t module = kNoModule;
  // Threads without a Python state keep asking while the check is due: ask ever more rarely.
  std::atomic<uint32_t> attempts{0};
};

constinit Walk walk;

// Reads that believe the address: only once the layout has been checked.
struct Direct {
  template <typename T>
  static bool Load(uint64_t address, T* to) {
    if (address < 4096) return false;
    memcpy(to, reinterpret_cast<const void*>(address), sizeof(T));
    return true;
  }
};

struct Careful {
  template <typename T>
  static bool Load(uint64_t address, T* to) {
    return SafeRead(address, to);
  }
};

template <typename Reader>
uint64_t InnermostFrame(uint64_t thread) {
  uint64_t frame = 0;
  if (!Reader::Load(thread + walk.layout.thread_frame, &frame)) return 0;
  if (walk.layout.has_cframe && !Reader::Load(frame + walk.layout.cframe_frame, &frame)) return 0;
  return frame;
}

// Reads one frame and moves `*frame` to its caller. False when memory ends. `*is_python` is false
// for the entry frames of the interpreter's own C code.
template <typename Reader>
bool ReadFrame(uint64_t* frame, RawFrame* raw, bool* is_python) {
  const PythonLayout& layout = walk.layout;
  uint8_t owner = 0;
  if (layout.frame_owner != 0 && !Reader::Load(*frame + layout.frame_owner, &owner)) return false;
  *is_python = owner < kFirstForeignOwner;
  if (*is_python) {
    uint64_t code;
    if (!Reader::Load(*frame + layout.frame_code, &code)) return false;
    code &= ~uint64_t{7};  // 3.14 keeps tags in the low bits
    raw->code = code;
    if (layout.position == Position::kUnitPointer) {
      uint64_t instruction;
      if (!Reader::Load(*frame + layout.frame_position, &instruction)) return false;
      raw->position = instruction - (code + layout.code_instructions);
    } else {
      int32_t index;
      if (!Reader::Load(*frame + layout.frame_position, &index)) return false;
      raw->position = index < 0 ? 0 : static_cast<uint64_t>(index);
      if (layout.position == Position::kUnitIndex) raw->position *= 2;
    }
  }
  return Reader::Load(*frame + layout.frame_previous, frame);
}

// This thread's PyThreadState by the interpreters' lists, 0 when it has none. Slow, and racing with
// threads that come and go: hence the careful reads.
uint64_t FindThread() {
  const PythonLayout& layout = walk.layout;
  uint64_t self = static_cast<uint64_t>(pthread_self());
  uint64_t interpreter = 0;
  if (!SafeRead(walk.runtime + layout.runtime_interpreters, &interpreter)) return 0;
  for (uint32_t i = 0; i < kMaxInterpreters && interpreter != 0; ++i) {
    uint64_t thread = 0;
    if (!SafeRead(interpreter + layout.interpreter_threads, &thread)) return 0;
    for (uint32_t t = 0; t < kMaxThreads && thread != 0; ++t) {
      uint64_t id = 0;
      if (!SafeRead(thread + layout.thread_id, &id)) return 0;
      if (id == self) return thread;
      if (!SafeRead(thread + layout.thread_next, &thread)) return 0;
    }
    if (!SafeRead(interpreter + layout.interpreter_next, &interpreter)) return 0;
  }
  return 0;
}

// The key under which `thread` is kept: a pthread key with that value whose number stands in
// _PyRuntime behind a flag that is set. (Other libraries keep copies under keys of their own.)
bool FindKey(uint64_t thread) {
  uint64_t words = kRuntimeSearchBytes / sizeof(int);
  for (uint32_t key = 0; key < kMaxKeys; ++key) {
    if (reinterpret_cast<uint64_t>(pthread_getspecific(key)) != thread) continue;
    for (uint64_t i = 0; i + 1 < words; ++i) {
      int pair[2];
      uint64_t address = walk.runtime + i * sizeof(int);
      if (!SafeRead(address, &pair)) break;
      if (pair[0] != 1 || pair[1] != static_cast<int>(key)) continue;
      walk.key = key;
      walk.key_exists = reinterpret_cast<const int*>(address);
      return true;
    }
  }
  return false;
}

bool HasType(uint64_t object, uint64_t type) {
  uint64_t found = 0;
  return object != 0 && (object & 7) == 0 && SafeRead(object + kObjectType, &found) &&
         found == type;
}

// Follows the whole chain of `thread` with careful reads. What must be there: code objects with
// strings for file and function and a believable first line, and an end.
const char* CheckChain(uint64_t thread) {
  const PythonLayout& layout = walk.layout;
  uint64_t frame = InnermostFrame<Careful>(thread);
  for (uint32_t depth = 0; frame != 0; ++depth) {
    RawFrame raw;
    bool is_python;
    if (depth == kMaxDepth || (frame & 7) != 0) return "frames do not end where they should";
    if (!ReadFrame<Careful>(&frame, &raw, &is_python)) return "a frame cannot be read";
    if (!is_python) continue;
    uint64_t file, name;
    uint32_t line;
    if (!HasType(raw.code, walk.code_type)) return "a frame's code is no code object";
    if (!SafeRead(raw.code + layout.code_filename, &file) || !HasType(file, walk.text.type) ||
        !SafeRead(raw.code + layout.code_name, &name) || !HasType(name, walk.text.type)) {
      return "a code object's names are no strings";
    }
    if (!SafeRead(raw.code + layout.code_first_line, &line) || line > kMaxLine) {
      return "a code object's first line is not believable";
    }
    if (walk.text.kind_shift == 0) FindKindShift(name, &walk.text.kind_shift);
  }
  return walk.text.kind_shift == 0 ? "no readable name on the stack" : nullptr;
}

template <typename Function>
Function PublicFunction(const char* name) {
  return reinterpret_cast<Function>(FindDefinition(name));
}

uint32_t LineOfFrame(const RawFrame& raw) {
  const PythonLayout& layout = walk.layout;
  uint32_t first_line;
  uint64_t table, bytes;
  if (!SafeRead(raw.code + layout.code_first_line, &first_line) ||
      !SafeRead(raw.code + layout.code_line_table, &table) ||
      !SafeRead(table + kBytesSize, &bytes)) {
    return 0;
  }
  TableReader reader(table + kBytesData, bytes);
  return LineOf(layout.line_table, &reader, first_line, raw.position);
}

// The public API, asked once at start-up. Every object comes as a new reference and is given back.
class Interpreter {
 public:
  bool Load() {
    current_ = PublicFunction<void* (*)()>("_PyThreadState_UncheckedGet");
    if (current_ == nullptr) current_ = PublicFunction<void* (*)()>("PyThreadState_GetUnchecked");
    top_frame_ = PublicFunction<void* (*)()>("PyEval_GetFrame");
    line_ = PublicFunction<int (*)(void*)>("PyFrame_GetLineNumber");
    attribute_ = PublicFunction<void* (*)(void*, const char*)>("PyObject_GetAttrString");
    release_ = PublicFunction<void (*)(void*)>("Py_DecRef");
    clear_error_ = PublicFunction<void (*)()>("PyErr_Clear");
    none_ = FindDefinition("_Py_NoneStruct");
    return current_ != nullptr && top_frame_ != nullptr && line_ != nullptr &&
           attribute_ != nullptr && release_ != nullptr && clear_error_ != nullptr;
  }

  // The thread state that holds the GIL and is this thread's, or nullptr.
  void* Current() const { return current_(); }
  void* TopFrame() const { return top_frame_(); }  // borrowed
  int Line(void* frame) const { return line_(frame); }

  // nullptr when there is no such attribute, or it is None.
  void* Attribute(void* object, const char* name) const {
    void* value = attribute_(object, name);
    if (value == nullptr) clear_error_();
    if (value != none_) return value;
    release_(value);
    return nullptr;
  }

  bool AttributeIs(void* object, const char* name, uint64_t expected) const {
    void* value = Attribute(object, name);
    Release(value);
    return reinterpret_cast<uint64_t>(value) == expected;
  }

  void Release(void* object) const {
    if (object != nullptr) release_(object);
  }

 private:
  void* (*current_)() = nullptr;
  void* (*top_frame_)() = nullptr;
  int (*line_)(void*) = nullptr;
  void* (*attribute_)(void*, const char*) = nullptr;
  void (*release_)(void*) = nullptr;
  void (*clear_error_)() = nullptr;
  void* none_ = nullptr;
};

const char* CompareFrame(const Interpreter& interpreter, void* theirs, const RawFrame& ours) {
  const PythonLayout& layout = walk.layout;
  void* code = interpreter.Attribute(theirs, "f_code");
  const char* failure = nullptr;
  uint64_t file = 0, name = 0;
  bool qualified = layout.code_qualified_name != 0;
  SafeRead(ours.code + layout.code_filename, &file);
  SafeRead(ours.code + (qualified ? layout.code_qualified_name : layout.code_name), &name);
  if (code == nullptr || reinterpret_cast<uint64_t>(code) != ours.code) {
    failure = "another function than the interpreter reports";
  } else if (!interpreter.AttributeIs(code, "co_filename", file) ||
             !interpreter.AttributeIs(code, qualified ? "co_qualname" : "co_name", name)) {
    failure = "another name than the interpreter reports";
  } else if (static_cast<int>(LineOfFrame(ours)) != interpreter.Line(theirs)) {
    failure = "another line than the interpreter reports";
  }
  interpreter.Release(code);
  return failure;
}

// Compares the innermost frames with what the interpreter itself says, where this thread may ask
// it: when it holds the GIL.
const char* CompareWithInterpreter(uint64_t thread) {
  Interpreter interpreter;
  if (!interpreter.Load()) return nullptr;
  if (reinterpret_cast<uint64_t>(interpreter.Current()) != thread) return nullptr;
  uint64_t frame = InnermostFrame<Careful>(thread);
  void* theirs = interpreter.TopFrame();
  bool owned = false;
  const char* failure = nullptr;
  for (uint32_t i = 0; i < kComparedFrames && theirs != nullptr && failure == nullptr;) {
    RawFrame ours;
    bool is_python;
    if (frame == 0 || !ReadFrame<Careful>(&frame, &ours, &is_python)) {
      failure = "fewer frames than the interpreter reports";
      break;
    }
    if (!is_python) continue;
    ++i;
    failure = CompareFrame(interpreter, theirs, ours);
    void* back = interpreter.Attribute(theirs, "f_back");
    if (owned) interpreter.Release(theirs);
    theirs = back;
    owned = true;
  }
  if (owned) interpreter.Release(theirs);
  return failure;
}

// Decides for good whether the layout holds, on a thread that runs Python code. On any other thread
// nothing is decided.
void CheckLayout(bool starting) {
  State expected = State::kUnchecked;
  if (!walk.state.compare_exchange_strong(expected, State::kChecking)) return;
  uint64_t thread = FindThread();
  if (thread == 0 || InnermostFrame<Careful>(thread) == 0) {
    walk.state.store(State::kUnchecked);
    return;
  }
  const char* failure = CheckChain(thread);
  if (failure == nullptr && !FindKey(thread)) failure = "the thread's own key cannot be found";
  if (failure == nullptr && starting) failure = CompareWithInterpreter(thread);
  walk.reason = failure != nullptr ? failure : "";
  walk.state.store(failure != nullptr ? State::kOff : State::kOn, std::memory_order_release);
}

bool Due(uint32_t attempt) { return attempt < 16 || (attempt & (attempt - 1)) == 0; }

uint16_t VersionOf(const char* text) {
  char* end;
  unsigned long major = strtoul(text, &end, 10);
  unsigned long minor = *end == '.' ? strtoul(end + 1, nullptr, 10) : 0;
  return static_cast<uint16_t>(major << 8 | (minor & 255));
}

}  // namespace

void FindPython(bool starting) {
  if (walk.state.load(std::memory_order_acquire) != State::kNone) return;
  void* runtime = FindDefinition("_PyRuntime");
  if (runtime == nullptr) return;
  uint16_t version = 0;
  auto* constant = static_cast<const uint32_t*>(FindDefinition("Py_Version"));  // from 3.11
  if (constant != nullptr) {
    version = static_cast<uint16_t>(*constant >> 16);
  } else if (auto function = PublicFunction<const char* (*)()>("Py_GetVersion")) {
    version = VersionOf(function());
  }
  PythonLayout layout;
  if (!FindPythonLayout(version, reinterpret_cast<uint64_t>(runtime), &layout, &walk.reason)) {
    walk.layout.version = version;
    walk.state.store(State::kOff, std::memory_order_release);
    return;
  }
  AttachPython(layout, reinterpret_cast<uint64_t>(runtime), starting);
}

void AttachPython(const PythonLayout& layout, uint64_t runtime, bool starting) {
  walk.layout = layout;
  walk.runtime = runtime;
  walk.code_type = reinterpret_cast<uint64_t>(FindDefinition("PyCode_Type"));
  walk.text = {reinterpret_cast<uint64_t>(FindDefinition("PyUnicode_Type")), layout.ascii_bytes,
               layout.compact_bytes, 0};
  walk.module = ModuleContaining(walk.code_type);
  walk.reason = "no Python frames seen yet";
  walk.attempts.store(0, std::memory_order_relaxed);
  walk.state.store(State::kUnchecked, std::memory_order_release);
  CheckLayout(starting);
}

wire::FeatureState PythonState(const char** reason, uint32_t* version) {
  State state = walk.state.load(std::memory_order_acquire);
  *reason = walk.reason;
  *version = walk.layout.version;
  switch (state) {
    case State::kOn:
      return wire::FeatureState::kOn;
    case State::kOff:
    case State::kNone:
      return wire::FeatureState::kUnavailable;
    case State::kUnchecked:
    case State::kChecking:
      return wire::FeatureState::kOff;
  }
  return wire::FeatureState::kUnknown;
}

uint16_t AppendPythonFrames(Stack* stack) {
  State state = walk.state.load(std::memory_order_acquire);
  if (state == State::kUnchecked) {
    if (!Due(walk.attempts.fetch_add(1, std::memory_order_relaxed))) return 0;
    CheckLayout(/*starting=*/false);
    state = walk.state.load(std::memory_order_acquire);
  }
  // The key is gone once the interpreter was finalised; its number may be anybody's then.
  if (state != State::kOn || *walk.key_exists == 0) return 0;
  uint64_t thread = reinterpret_cast<uint64_t>(pthread_getspecific(walk.key));
  if (thread == 0) return 0;
  uint64_t id = 0;
  if (!Direct::Load(thread + walk.layout.thread_id, &id) ||
      id != static_cast<uint64_t>(pthread_self())) {
    return 0;
  }
  uint16_t first = stack->count;
  uint64_t frame = InnermostFrame<Direct>(thread);
  while (frame != 0 && (frame & 7) == 0) {
    if (stack->count == wire::kMaxFrames) {
      stack->flags |= wire::kSiteTruncated;
      break;
    }
    bool is_python;
    if (!ReadFrame<Direct>(&frame, &stack->frames[stack->count], &is_python)) break;
    if (is_python) ++stack->count;
  }
  if (stack->count > first) stack->flags |= wire::kSitePython;
  return static_cast<uint16_t>(stack->count - first);
}

bool ResolvePythonFrame(const RawFrame& raw, Stack* stack, StackFrame* frame) {
  const PythonLayout& layout = walk.layout;
  uint64_t file, function;
  uint16_t name = layout.code_qualified_name != 0 ? layout.code_qualified_name : layout.code_name;
  if (!HasType(raw.code, walk.code_type) || !SafeRead(raw.code + layout.code_filename, &file) ||
      !SafeRead(raw.code + name, &function)) {
    return false;
  }
  frame->kind = wire::FrameKind::kPython;
  frame->line = LineOfFrame(raw);
  return ReadText(walk.text, file, stack->file, sizeof(stack->file), &frame->file) &&
         ReadText(walk.text, function, stack->function, sizeof(stack->function), &frame->function);
}

bool IsInterpreterCode(uint64_t address) {
  return walk.module != kNoModule && ModuleContaining(address) == walk.module;
}

}  // namespace tidemark::agent
