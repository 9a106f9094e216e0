// What a process has mapped, and how to open it. Works across mount namespaces and for files that
// were deleted or replaced since: the mapping itself is opened, not its name.
//
// Everything read here is shaped by the process and is untrusted.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/proc_root.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace tidemark {

// Which file a mapping shows, independent of its name.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  auto operator<=>(const FileId&) const = default;
};

struct Mapping {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t file_offset = 0;
  bool executable = false;
  FileId file;       // inode 0: no file
  std::string path;  // as the process sees it; may end in " (deleted)"
};

// One line of /proc/PID/maps; false when it is not one.
bool ParseMapping(std::string_view line, Mapping* mapping);

// The mappings of `pid` in address order. Fails when the process is gone or not ours to read.
Result<std::vector<Mapping>> ReadMappings(const ProcRoot& root, pid_t pid);

// Opens the file behind `mapping` for reading: through map_files, which needs
// CAP_CHECKPOINT_RESTORE, else by name below the process's root directory, and then only when the
// inode is the mapped one.
Result<UniqueFd> OpenMapped(const ProcRoot& root, pid_t pid, const Mapping& mapping);

// Field 22 of /proc/PID/stat: with the pid it says which process this is, for as long as the
// machine is up. Fails when there is no such process.
Result<uint64_t> ReadStartTimeTicks(const ProcRoot& root, pid_t pid);

}  // namespace tidemark
