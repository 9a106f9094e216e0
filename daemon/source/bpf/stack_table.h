// Call stacks of one process, from addresses to modules.
//
// An address is looked up in the process's mappings when its stack is first reported, that is,
// within a fraction of a second of the call. A module that was unmapped in between shows as a raw
// address. Owned by the thread that drains the reports.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/proc_root.h"
#include "bpf/stack_intf.h"
#include "daemon/source/bpf/bpf_source.h"
#include "daemon/source/bpf/elf_image.h"
#include "daemon/source/bpf/process_maps.h"
#include "daemon/source/bpf/python_names.h"

namespace tidemark {

// Layouts of files, shared by all processes. Keyed by the file, not by its name.
class ModuleCache {
 public:
  explicit ModuleCache(ProcRoot root) : root_(std::move(root)) {}

  // Null when the file cannot be read or is no ELF file; that is remembered too.
  const ElfImage* Find(pid_t pid, const Mapping& mapping);

 private:
  ProcRoot root_;
  std::map<FileId, std::unique_ptr<const ElfImage>> images_;
};

class StackTable {
 public:
  StackTable(ProcRoot root, pid_t pid, ModuleCache* modules);

  // Frames come out innermost first: native ones down to the interpreter's own, then Python's.
  void Add(const tm_stack& stack);

  // The interpreter whose frames the stacks hold, from now on.
  void SetPython(std::optional<PythonNames> python) { python_ = std::move(python); }

  // Never null: an unknown id gives a stack without frames.
  std::shared_ptr<const BpfStack> Find(uint64_t id) const;

  bool Contains(uint64_t id) const { return stacks_.contains(id); }
  size_t size() const { return stacks_.size(); }

  // Another program: mappings and stacks of before mean nothing.
  void Clear();

 private:
  const Mapping* MappingOf(uint64_t address);
  // `in_interpreter`: the address lies in the interpreter's own code.
  BpfFrame Resolve(uint64_t return_address, bool* in_interpreter);

  ProcRoot root_;
  pid_t pid_;
  ModuleCache* modules_;             // outlives this
  std::vector<Mapping> executable_;  // in address order
  std::optional<PythonNames> python_;
  bool refreshed_ = false;  // mappings were read for the stack at hand
  std::unordered_map<uint64_t, std::shared_ptr<const BpfStack>> stacks_;
  std::shared_ptr<const BpfStack> unknown_ = std::make_shared<BpfStack>();
};

}  // namespace tidemark
