// The interpreter inside a watched process: where it keeps its frames, and the names of what a walk
// in the kernel found.
//
// The walk leaves addresses of code objects; names and lines are read out of the process's memory
// shortly afterwards. Nothing is stopped and no reference is taken, so an object may be gone by
// then: it is used only while it still has the type it must have. All of it is untrusted.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/proc_root.h"
#include "base/result.h"
#include "bpf/stack_intf.h"
#include "cupti_agent/stack/python_layout.h"
#include "cupti_agent/stack/python_text.h"
#include "daemon/source/bpf/bpf_source.h"
#include "daemon/source/bpf/process_maps.h"

namespace tidemark {

class PythonNames {
 public:
  // Looks for an interpreter among `mappings` of `pid`. Nothing when there is none; an error when
  // there is one whose frames cannot be walked.
  static Result<std::optional<PythonNames>> Find(const ProcRoot& root, pid_t pid,
                                                 const std::vector<Mapping>& mappings);

  // For the walk in the kernel.
  tm_python_layout KernelLayout() const;

  // Names of a frame; nothing when its code object is gone.
  std::optional<BpfFrame> Resolve(const tm_python_frame& frame);

  // The file that holds the interpreter's code.
  FileId file() const { return file_; }
  uint16_t version() const { return layout_.version; }

 private:
  pid_t pid_ = 0;
  FileId file_;
  agent::PythonLayout layout_ = {};
  uint64_t runtime_ = 0;
  uint64_t code_type_ = 0;
  agent::TextLayout text_ = {};
  bool text_known_ = false;
};

}  // namespace tidemark
