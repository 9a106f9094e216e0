#include "daemon/source/bpf/uprobe_link.h"

#include <bpf/bpf.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>

namespace tidemark {
namespace {

constexpr int kBpfLinkCreate = 28;
constexpr uint32_t kUprobeMultiReturn = 1;

// The part of union bpf_attr that BPF_LINK_CREATE reads for a multi link.
struct LinkCreateAttr {
  uint32_t program_fd;
  uint32_t target_fd;
  uint32_t attach_type;
  uint32_t flags;
  uint64_t path;
  uint64_t offsets;
  uint64_t ref_ctr_offsets;
  uint64_t cookies;
  uint32_t count;
  uint32_t multi_flags;
  uint32_t pid;
  uint32_t reserved;
};
static_assert(sizeof(LinkCreateAttr) == 64);

uint64_t Address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

int CreateMultiLink(int program_fd, const char* path, const uint64_t* offsets,
                    const uint64_t* cookies, uint32_t count, uint32_t flags, pid_t pid) {
  LinkCreateAttr attr = {};
  attr.program_fd = static_cast<uint32_t>(program_fd);
  attr.attach_type = kUprobeMultiAttachType;
  attr.path = Address(path);
  attr.offsets = Address(offsets);
  attr.cookies = Address(cookies);
  attr.count = count;
  attr.multi_flags = flags;
  attr.pid = static_cast<uint32_t>(pid);
  return static_cast<int>(syscall(SYS_bpf, kBpfLinkCreate, &attr, sizeof(attr)));
}

// The words for an errno of an attach.
Error AttachError(const std::string& tried, int error, UprobeMethod method) {
  switch (error) {
    case EPERM:
    case EACCES:
      return {tried, strerror(error),
              method == UprobeMethod::kMulti
                  ? "grant CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE"
                  : "grant CAP_SYS_ADMIN, which probes need on kernels before 6.6"};
    case ESRCH:
      return {tried, "the process is gone", ""};
    default:
      return {tried, strerror(error), ""};
  }
}

}  // namespace

Result<bool> KernelHasUprobeMulti() {
  // r0 = 0; exit
  const bpf_insn instructions[] = {{0xb7, 0, 0, 0, 0}, {0x95, 0, 0, 0, 0}};
  LIBBPF_OPTS(bpf_prog_load_opts, options,
              .expected_attach_type = static_cast<bpf_attach_type>(kUprobeMultiAttachType));
  UniqueFd program(
      bpf_prog_load(BPF_PROG_TYPE_KPROBE, nullptr, "Dual BSD/GPL", instructions, 2, &options));
  if (!program.valid()) {
    const int error = errno;
    if (error == EPERM || error == EACCES) {
      return Error{"bpf(BPF_PROG_LOAD)", strerror(error), "grant CAP_BPF and CAP_PERFMON"};
    }
    return false;
  }
  // A kernel that knows multi links looks at the path, and "/" is no file to probe.
  const uint64_t offset = 0;
  UniqueFd link(CreateMultiLink(program.get(), "/", &offset, nullptr, 1, 0, 0));
  return !link.valid() && errno == EBADF;
}

Result<UprobeLink> UprobeLink::Attach(const bpf_program* program, UprobeMethod method,
                                      UprobeKind kind, pid_t pid, int file_fd,
                                      const std::vector<UprobePoint>& points) {
  const std::string path = "/proc/self/fd/" + std::to_string(file_fd);
  const std::string tried = "attach " + std::to_string(points.size()) +
                            (kind == UprobeKind::kEntry ? " entry" : " return") +
                            " probes to process " + std::to_string(pid);
  UprobeLink link;
  if (method == UprobeMethod::kMulti) {
    std::vector<uint64_t> offsets, cookies;
    for (const UprobePoint& point : points) {
      offsets.push_back(point.file_offset);
      cookies.push_back(point.cookie);
    }
    link.multi_.Reset(CreateMultiLink(bpf_program__fd(program), path.c_str(), offsets.data(),
                                      cookies.data(), static_cast<uint32_t>(points.size()),
                                      kind == UprobeKind::kReturn ? kUprobeMultiReturn : 0, pid));
    if (!link.multi_.valid()) return AttachError(tried, errno, method);
    return link;
  }
  for (const UprobePoint& point : points) {
    LIBBPF_OPTS(bpf_uprobe_opts, options, .bpf_cookie = point.cookie,
                .retprobe = kind == UprobeKind::kReturn);
    bpf_link* one =
        bpf_program__attach_uprobe_opts(program, pid, path.c_str(), point.file_offset, &options);
    if (!one) return AttachError(tried, errno, method);
    link.perf_.emplace_back(one);
  }
  return link;
}

}  // namespace tidemark
