// Reads of memory that may not be there: a bad address is a false, never a fault.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark::agent {

// Copies `bytes` from `address` of this process through the kernel (about 0.4 us). All or nothing.
// Where process_vm_readv is forbidden (some seccomp profiles) every read fails.
bool SafeRead(uint64_t address, void* to, size_t bytes);

template <typename T>
bool SafeRead(uint64_t address, T* to) {
  return SafeRead(address, to, sizeof(T));
}

}  // namespace tidemark::agent
