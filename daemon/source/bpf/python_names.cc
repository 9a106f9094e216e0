#include "daemon/source/bpf/python_names.h"

#include <charconv>
#include <string_view>

#include "cupti_agent/stack/line_table.h"
#include "cupti_agent/stack/safe_read.h"
#include "daemon/source/bpf/elf_image.h"
#include "daemon/source/bpf/remote_read.h"

namespace tidemark {
namespace {

using agent::SafeRead;

constexpr size_t kMaxNameBytes = 4096;

// 0x030B from "libpython3.11.so.1.0" or "python3.11"; 0 when the name does not tell.
uint16_t VersionOfName(std::string_view path) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  if (name.starts_with("lib")) name.remove_prefix(3);
  if (!name.starts_with("python3.")) return 0;
  name.remove_prefix(8);
  unsigned minor = 0;
  if (std::from_chars(name.data(), name.data() + name.size(), minor).ec != std::errc() ||
      minor > 255) {
    return 0;
  }
  return static_cast<uint16_t>(0x0300 | minor);
}

bool MayBeInterpreter(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("libpython3") || name.starts_with("python");
}

bool HasType(uint64_t object, uint64_t type) {
  uint64_t found = 0;
  return object != 0 && (object & 7) == 0 && SafeRead(object + agent::kObjectType, &found) &&
         found == type;
}

}  // namespace

Result<std::optional<PythonNames>> PythonNames::Find(const ProcRoot& root, pid_t pid,
                                                     const std::vector<Mapping>& mappings) {
  const RemoteMemory memory(pid);
  std::optional<Error> failure;
  FileId last;
  for (const Mapping& mapping : mappings) {
    if (mapping.file.inode == 0 || mapping.file == last || !MayBeInterpreter(mapping.path)) {
      continue;
    }
    last = mapping.file;  // its first mapping is that of its first segment
    const std::string tried = "read the Python interpreter " + mapping.path;
    Result<UniqueFd> fd = OpenMapped(root, pid, mapping);
    if (!fd) {
      failure = fd.error();
      continue;
    }
    auto symbols = ElfImage::FindObjects(
        fd->get(), mapping.path, {"_PyRuntime", "PyCode_Type", "PyUnicode_Type", "Py_Version"});
    Result<ElfImage> image = ElfImage::Read(fd->get(), mapping.path);
    if (!symbols || !image || !symbols->contains("_PyRuntime")) continue;  // only links it
    const std::optional<uint64_t> first = image->AddressOfFileOffset(mapping.file_offset);
    if (!first || !symbols->contains("PyCode_Type") || !symbols->contains("PyUnicode_Type")) {
      failure = Error{tried, "symbols are missing", ""};
      continue;
    }
    const uint64_t bias = mapping.start - *first;
    PythonNames names;
    names.pid_ = pid;
    names.file_ = mapping.file;
    names.runtime_ = bias + symbols->at("_PyRuntime");
    names.code_type_ = bias + symbols->at("PyCode_Type");
    uint16_t version = VersionOfName(mapping.path);
    uint32_t told = 0;
    if (version == 0 && symbols->contains("Py_Version") &&
        SafeRead(bias + symbols->at("Py_Version"), &told)) {
      version = static_cast<uint16_t>(told >> 16);
    }
    const char* reason = "";
    if (!agent::FindPythonLayout(version, names.runtime_, &names.layout_, &reason)) {
      failure = Error{tried, reason, ""};
      continue;
    }
    names.text_.type = bias + symbols->at("PyUnicode_Type");
    names.text_.ascii_bytes = names.layout_.ascii_bytes;
    names.text_.compact_bytes = names.layout_.compact_bytes;
    return std::optional<PythonNames>(names);
  }
  if (failure) return *failure;
  return std::optional<PythonNames>();
}

tm_python_layout PythonNames::KernelLayout() const {
  tm_python_layout kernel = {};
  kernel.runtime = runtime_;
  kernel.runtime_interpreters = layout_.runtime_interpreters;
  kernel.interpreter_threads = layout_.interpreter_threads;
  kernel.thread_next = layout_.thread_next;
  kernel.thread_id = layout_.thread_id;
  kernel.thread_frame = layout_.thread_frame;
  kernel.cframe_frame = layout_.cframe_frame;
  kernel.frame_code = layout_.frame_code;
  kernel.frame_previous = layout_.frame_previous;
  kernel.frame_position = layout_.frame_position;
  kernel.frame_owner = layout_.frame_owner;
  kernel.has_cframe = layout_.has_cframe;
  kernel.position_is_int = layout_.position != agent::Position::kUnitPointer;
  return kernel;
}

std::optional<BpfFrame> PythonNames::Resolve(const tm_python_frame& frame) {
  const RemoteMemory memory(pid_);
  const uint64_t code = frame.code & ~uint64_t{7};  // 3.14 keeps tags in the low bits
  uint64_t file, function, table, table_bytes;
  uint32_t first_line;
  const uint16_t name =
      layout_.code_qualified_name != 0 ? layout_.code_qualified_name : layout_.code_name;
  if (!HasType(code, code_type_) || !SafeRead(code + layout_.code_filename, &file) ||
      !SafeRead(code + name, &function)) {
    return std::nullopt;
  }
  if (!text_known_) {
    // Names are mostly ASCII; the first that is tells how strings are laid out.
    text_known_ = agent::FindKindShift(function, &text_.kind_shift) ||
                  agent::FindKindShift(file, &text_.kind_shift);
    if (!text_known_) return std::nullopt;
  }

  BpfFrame resolved;
  resolved.python = true;
  char buffer[kMaxNameBytes];
  std::string_view text;
  if (!agent::ReadText(text_, file, buffer, sizeof(buffer), &text)) return std::nullopt;
  resolved.file = text;
  if (!agent::ReadText(text_, function, buffer, sizeof(buffer), &text)) return std::nullopt;
  resolved.function = text;

  uint64_t position = 0;
  switch (layout_.position) {
    case agent::Position::kUnitPointer:
      position = frame.position - (code + layout_.code_instructions);
      break;
    case agent::Position::kUnitIndex:
    case agent::Position::kByteOffset: {
      const auto index = static_cast<int32_t>(frame.position);
      position = index < 0 ? 0 : static_cast<uint64_t>(index);
      if (layout_.position == agent::Position::kUnitIndex) position *= 2;
      break;
    }
  }
  if (SafeRead(code + layout_.code_first_line, &first_line) &&
      SafeRead(code + layout_.code_line_table, &table) &&
      SafeRead(table + agent::kBytesSize, &table_bytes)) {
    agent::TableReader reader(table + agent::kBytesData, table_bytes);
    resolved.line =
        static_cast<int>(agent::LineOf(layout_.line_table, &reader, first_line, position));
  }
  return resolved;
}

}  // namespace tidemark
