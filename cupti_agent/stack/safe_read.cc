#include "cupti_agent/stack/safe_read.h"

#include <sys/uio.h>
#include <unistd.h>

namespace tidemark::agent {

bool SafeRead(uint64_t address, void* to, size_t bytes) {
  iovec local = {to, bytes};
  iovec remote = {reinterpret_cast<void*>(address), bytes};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

}  // namespace tidemark::agent
