// Attaching a program to a kernel tracepoint by name.
//
// The number behind a name stands in tracefs, which need not be mounted: then it is mounted
// detached, visible to nobody, if we may (CAP_SYS_ADMIN).
#pragma once

#include <bpf/libbpf.h>

#include <memory>
#include <string>
#include <vector>

#include "base/proc_root.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace tidemark {

struct DestroyLink {
  void operator()(bpf_link* link) const { bpf_link__destroy(link); }
};
using LinkPtr = std::unique_ptr<bpf_link, DestroyLink>;

// Detaches all of them at once. The kernel waits out a grace period for each, some 40 ms; side by
// side they share it.
void DetachTogether(std::vector<LinkPtr>* links);

class Tracefs {
 public:
  static Result<Tracefs> Open(const ProcRoot& root);

  // `name` is "syscalls/sys_enter_mmap".
  Result<LinkPtr> Attach(const bpf_program* program, const std::string& name) const;

 private:
  UniqueFd directory_;
};

}  // namespace tidemark
