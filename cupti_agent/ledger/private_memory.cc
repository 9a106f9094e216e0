#include "cupti_agent/ledger/private_memory.h"

namespace tidemark::agent {

uint64_t ResidentBytes(const void* start, size_t bytes) {
  constexpr size_t kPageBytes = 4096;
  constexpr size_t kPagesAtOnce = 1024;
  unsigned char resident[kPagesAtOnce];
  const auto* at = static_cast<const unsigned char*>(start);
  uint64_t total = 0;
  for (size_t done = 0; done < bytes;) {
    size_t length = bytes - done;
    if (length > kPagesAtOnce * kPageBytes) length = kPagesAtOnce * kPageBytes;
    if (mincore(const_cast<unsigned char*>(at) + done, length, resident) != 0) return total;
    for (size_t page = 0; page < (length + kPageBytes - 1) / kPageBytes; ++page) {
      total += (resident[page] & 1) * kPageBytes;
    }
    done += length;
  }
  return total;
}

}  // namespace tidemark::agent
