#include "daemon/source/bpf/remote_read.h"

#include <sys/uio.h>

#include "cupti_agent/stack/safe_read.h"

namespace tidemark {
namespace {

thread_local pid_t target = 0;

}  // namespace

RemoteMemory::RemoteMemory(pid_t pid) : outer_(target) { target = pid; }
RemoteMemory::~RemoteMemory() { target = outer_; }

bool agent::SafeRead(uint64_t address, void* to, size_t bytes) {
  if (target == 0) return false;
  iovec local = {to, bytes};
  iovec remote = {reinterpret_cast<void*>(address), bytes};
  return process_vm_readv(target, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

}  // namespace tidemark
