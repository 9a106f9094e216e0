#include "daemon/source/bpf/bpf_object.h"

#include <bpf/libbpf.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "daemon/source/bpf/capabilities.h"

namespace tidemark {

void SilenceLibbpf() { libbpf_set_print(nullptr); }

Error ExplainBpfError(const ProcRoot& root, const std::string& what, int error) {
  Error explained{what, strerror(error), ""};
  std::error_code ignored;
  switch (error) {
    case EPERM:
    case EACCES: {
      const std::string missing =
          MissingCapabilities(root, {Capability::kBpf, Capability::kPerfmon});
      if (!missing.empty()) {
        explained.why += ", missing " + missing;
        explained.hint =
            "run the daemon with CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and "
            "CAP_CHECKPOINT_RESTORE (its systemd unit and DaemonSet do)";
      } else if (!InInitialUserNamespace(root)) {
        explained.why += ", in a user namespace";
        explained.hint =
            "capabilities of a user namespace do not reach bpf(2): run the daemon "
            "outside of it";
      } else {
        explained.hint = "a security module, seccomp filter or kernel lockdown refuses bpf(2)";
      }
      break;
    }
    case ENOSYS:
      explained.hint = "the kernel is built without bpf(2)";
      break;
    case ESRCH:
    case ENOENT:
    case EINVAL:
    case ENOTSUP:
    case E2BIG:
      if (!std::filesystem::exists(root.Sys() / "kernel" / "btf" / "vmlinux", ignored)) {
        explained.why += ", no kernel BTF";
        explained.hint = "use a kernel built with CONFIG_DEBUG_INFO_BTF";
      } else {
        explained.hint = "this kernel lacks what the family needs; 5.15 or newer is known to work";
      }
      break;
    case ENOMEM:
      explained.hint = "lower the ring and map sizes in the configuration";
      break;
    default:
      break;
  }
  return explained;
}

uint32_t RingBytes(uint32_t bytes) { return std::bit_ceil(std::clamp(bytes, 4096u, 1u << 30)); }

}  // namespace tidemark
