#include "daemon/source/agent/process_exit.h"

#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <cstdint>

#include "daemon/source/procfs/process_files.h"

namespace tidemark {
namespace {

// struct pidfd_info of <linux/pidfd.h>, first version; the headers of our distributions are older
// than the call.
struct PidfdInfo {
  uint64_t mask;
  uint64_t cgroup_id;
  uint32_t ids[11];
  int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr uint64_t kPidfdInfoExit = 1u << 3;
constexpr unsigned long kPidfdGetInfo = _IOWR(0xFF, 11, PidfdInfo);

}  // namespace

ProcessExit ExitFromStatus(int status) {
  if (WIFSIGNALED(status)) {
    const char* name = ::sigabbrev_np(WTERMSIG(status));
    return {Liveness::kKilled,
            "killed by " + (name != nullptr ? "SIG" + std::string(name)
                                            : "signal " + std::to_string(WTERMSIG(status)))};
  }
  const int code = WEXITSTATUS(status);
  return {Liveness::kExited, code == 0 ? "exited" : "exited with status " + std::to_string(code)};
}

std::optional<ProcessExit> FindExit(const ProcRoot& root, pid_t pid, int pidfd) {
  const auto kept = [pidfd]() -> std::optional<ProcessExit> {
    PidfdInfo info = {};
    info.mask = kPidfdInfoExit;
    if (::ioctl(pidfd, kPidfdGetInfo, &info) != 0 || (info.mask & kPidfdInfoExit) == 0) {
      return std::nullopt;
    }
    return ExitFromStatus(info.exit_code);
  };
  if (const auto exit = kept()) return exit;
  const std::optional<procfs::Stat> stat = procfs::ReadStat(root, pid);
  if (stat && stat->exit_status) return ExitFromStatus(*stat->exit_status);
  // The parent may have waited for it between the two looks: only since then does the pidfd know.
  return kept();
}

}  // namespace tidemark
