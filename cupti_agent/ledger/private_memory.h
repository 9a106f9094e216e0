// Zeroed memory of the agent's own for indexes into the region: mapped once, touched as used, never
// from malloc, never given back.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace tidemark::agent {

// nullptr when the kernel refuses.
template <typename T>
T* MapPrivate(size_t count) {
  void* memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<T*>(memory);
}

// Bytes of [start, start + bytes) that are in memory.
uint64_t ResidentBytes(const void* start, size_t bytes);

// Scatters addresses, whose low bits are all alike. (The finalizer of MurmurHash3.)
inline uint64_t Scatter(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  x ^= x >> 33;
  return x;
}

}  // namespace tidemark::agent
