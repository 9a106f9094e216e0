#include "daemon/ledger/blame.h"

#include <array>
#include <string_view>
#include <utility>

namespace tidemark {
namespace {

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// ".../lib/python3.11/..." is the standard library (or site-packages).
bool InPythonLibrary(std::string_view file) {
  if (Contains(file, "/site-packages/") || Contains(file, "/dist-packages/")) return true;
  const size_t at = file.find("/python3");
  if (at == std::string_view::npos) return false;
  const size_t end = file.find('/', at + 1);
  const std::string_view parent = file.substr(0, at);
  return end != std::string_view::npos && (parent.ends_with("/lib") || parent.ends_with("/lib64"));
}

std::string_view BaseName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool IsLibraryModule(std::string_view path) {
  // Installed below a system's library folder or a wheel, or one of the names that may lie
  // anywhere.
  for (const std::string_view place : {"/site-packages/", "/dist-packages/"}) {
    if (Contains(path, place)) return true;
  }
  if (path.starts_with("/lib/") || path.starts_with("/lib64/") || path.starts_with("/usr/lib/") ||
      path.starts_with("/usr/lib64/") || path.starts_with("/usr/local/cuda")) {
    return true;
  }
  constexpr std::array<std::string_view, 22> kNames = {
      "libtorch",  "libc10",      "libcuda",   "libcupti", "libnccl",     "libtidemark",
      "libcublas", "libcudnn",    "libstdc++", "libgcc_s", "libc.so",     "libpthread",
      "libpython", "python",      "ld-linux",  "libgomp",  "libcusparse", "libcufft",
      "libcurand", "libcusolver", "libnvrtc",  "libshm"};
  const std::string_view name = BaseName(path);
  for (const std::string_view prefix : kNames) {
    if (name.starts_with(prefix)) return true;
  }
  return path.starts_with("[") || path.starts_with("?") || path.empty();
}

// The CUDA driver, the runtime (linked statically too), a tool around them, or nobody knows.
bool IsDriverFrame(const FrameView& frame, std::string_view module) {
  if (frame.kind != wire::FrameKind::kNative) return false;
  const std::string_view name = BaseName(module);
  for (const std::string_view prefix : {"libcuda.", "libcudart", "libcupti", "?"}) {
    if (name.starts_with(prefix)) return true;
  }
  std::string_view function = frame.function;
  if (function.starts_with("__cuda")) return true;
  for (const std::string_view prefix : {"cuda", "cu"}) {
    if (!function.starts_with(prefix) || function.size() == prefix.size()) continue;
    const char next = function[prefix.size()];
    if (next >= 'A' && next <= 'Z') return true;
  }
  return name.empty();
}

// Statically linked library code lies in the job's own module.
bool IsLibraryFunction(std::string_view function) {
  for (const std::string_view prefix :
       {"c10::", "at::", "torch::", "std::", "__gnu_cxx::", "cu", "Py", "_Py", "__libc_"}) {
    if (function.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace

bool IsLibraryFrame(const FrameView& frame, std::string_view module) {
  if (frame.kind == wire::FrameKind::kPython) {
    return frame.file.empty() || frame.file.front() == '<' || InPythonLibrary(frame.file);
  }
  return IsLibraryModule(module) || IsLibraryFunction(frame.function);
}

size_t BlamedFrame(const std::vector<FrameView>& frames, const std::vector<std::string>& modules) {
  for (const wire::FrameKind kind : {wire::FrameKind::kPython, wire::FrameKind::kNative}) {
    for (size_t i = 0; i < frames.size(); ++i) {
      if (frames[i].kind == kind && !IsLibraryFrame(frames[i], modules[i])) return i;
    }
  }
  for (size_t i = 0; i < frames.size(); ++i) {
    if (frames[i].kind == wire::FrameKind::kPython) return i;
  }
  for (size_t i = 0; i < frames.size(); ++i) {
    if (!IsDriverFrame(frames[i], modules[i])) return i;
  }
  return 0;
}

std::string OwnAccount(const std::vector<FrameView>& frames,
                       const std::vector<std::string>& modules) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kLibraries = {
      {{"libnccl", "communicator"},
       {"libnvshmem", "communicator"},
       {"libmpi", "communicator"},
       {"libucc", "communicator"},
       {"libuct", "communicator"},
       {"libcublas", "workspace"},
       {"libcudnn", "workspace"},
       {"libcusparse", "workspace"},
       {"libcusolver", "workspace"},
       {"libcufft", "workspace"}}};
  for (size_t i = 0; i < frames.size(); ++i) {
    if (IsDriverFrame(frames[i], modules[i])) continue;
    const std::string_view name = BaseName(modules[i]);
    for (const auto& [prefix, word] : kLibraries) {
      if (name.starts_with(prefix)) return std::string(word) + " (" + std::string(name) + ")";
    }
    return {};
  }
  return {};
}

}  // namespace tidemark
