// One process as /proc tells it. Every function reads one file once, below the injected root, and
// answers nullopt when the process is gone or the file may not be read. The text is the kernel's,
// except for names (comm, environment), which the process chooses itself.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/proc_root.h"

namespace tidemark::procfs {

struct Stat {
  std::string comm;
  char state = '?';
  pid_t parent = 0;
  pid_t session = 0;
  uint64_t start_time_ticks = 0;
  uint64_t cpu_ticks = 0;          // user + system
  std::optional<int> exit_status;  // as of wait(2); of a zombie, where the kernel shows it
};
std::optional<Stat> ReadStat(const ProcRoot& root, pid_t pid);

// /proc/PID/status; -1 = the line is not there.
struct Status {
  uid_t uid = 0;                      // effective
  std::vector<pid_t> namespace_pids;  // NSpid: outermost first
  int64_t vm_hwm_bytes = -1;
  int64_t vm_rss_bytes = -1;
  int64_t rss_anon_bytes = -1;
  int64_t rss_file_bytes = -1;
  int64_t rss_shmem_bytes = -1;
  int64_t vm_swap_bytes = -1;
  int64_t vm_locked_bytes = -1;
  int64_t vm_pinned_bytes = -1;
};
std::optional<Status> ReadStatus(const ProcRoot& root, pid_t pid);

// smaps_rollup costs the kernel milliseconds per GiB: ask rarely.
struct SmapsRollup {
  int64_t private_dirty_bytes = 0;
  int64_t lazy_free_bytes = 0;
  int64_t pss_bytes = 0;
  int64_t locked_bytes = 0;
};
std::optional<SmapsRollup> ReadSmapsRollup(const ProcRoot& root, pid_t pid);

// /proc/PID/environ, only the variables in `allowed`: the rest is nobody's business.
std::map<std::string, std::string, std::less<>> ReadEnvironment(
    const ProcRoot& root, pid_t pid, std::span<const std::string_view> allowed);

// "controllers:path" lines of /proc/PID/cgroup: ("" or "memory,..." -> path).
std::vector<std::pair<std::string, std::string>> ReadCgroups(const ProcRoot& root, pid_t pid);

// Whether the process maps a file whose name begins with `name` ("libcuda.so").
bool MapsLibrary(const ProcRoot& root, pid_t pid, std::string_view name);

// The pids that /proc lists, ascending.
std::vector<pid_t> ListPids(const ProcRoot& root);

// A whole small file; nullopt when it cannot be read. At most `limit` bytes.
std::optional<std::string> ReadFile(const std::filesystem::path& path, size_t limit = 1u << 20);

// First line without its end; nullopt as above.
std::optional<std::string> ReadLine(const std::filesystem::path& path);

}  // namespace tidemark::procfs
