// Attaching one program to many functions of one file in one process.
//
// Kernels from 6.6 do it with a single link (BPF_TRACE_UPROBE_MULTI), which libbpf 1.1 has no call
// for. Older ones need a perf event for each probe, which takes about 0.1 s each to detach and
// CAP_SYS_ADMIN.
#pragma once

#include <bpf/libbpf.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace tidemark {

// BPF_TRACE_UPROBE_MULTI; the system's linux/bpf.h may be older than the running kernel.
inline constexpr uint32_t kUprobeMultiAttachType = 48;

enum class UprobeKind : uint8_t { kEntry, kReturn };
enum class UprobeMethod : uint8_t { kMulti, kPerf };

struct UprobePoint {
  uint64_t file_offset = 0;
  uint64_t cookie = 0;
};

// Whether the kernel has multi links, by trying. Errors say what is refused.
Result<bool> KernelHasUprobeMulti();

// The probes of one kind in one process. Destroying it detaches them.
class UprobeLink {
 public:
  // `program` must have been loaded with the attach type that `method` needs. `file_fd` is the file
  // to probe, needed only during the call.
  static Result<UprobeLink> Attach(const bpf_program* program, UprobeMethod method, UprobeKind kind,
                                   pid_t pid, int file_fd, const std::vector<UprobePoint>& points);

 private:
  struct Destroy {
    void operator()(bpf_link* link) const { bpf_link__destroy(link); }
  };
  UniqueFd multi_;
  std::vector<std::unique_ptr<bpf_link, Destroy>> perf_;
};

}  // namespace tidemark
