#include "cupti_agent/ledger/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "cupti_agent/ledger/monotonic.h"
#include "cupti_agent/ledger/private_memory.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace tidemark::agent {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
constexpr unsigned kNoExecSeal = 0x0008;  // MFD_NOEXEC_SEAL, since 6.3

// Some hosts refuse memfds that could be executed; older kernels do not know the flag.
int CreateMemfd() {
  constexpr char kName[] = "tidemark";
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int fd = memfd_create(kName, kFlags | kNoExecSeal);
  return fd >= 0 ? fd : memfd_create(kName, kFlags);
}

uint64_t RandomId() {
  uint64_t id = 0;
  if (getrandom(&id, sizeof(id), GRND_NONBLOCK) != static_cast<ssize_t>(sizeof(id))) {
    id = Scatter(MonotonicNs() ^ (static_cast<uint64_t>(getpid()) << 40));
  }
  return id;
}

}  // namespace

const char* Region::Create(uint64_t bytes) {
  constexpr uint64_t kPageBytes = 4096;
  bytes = std::clamp(bytes, kMinRegionBytes, wire::kMaxRegionBytes) / kPageBytes * kPageBytes;
  int fd = CreateMemfd();
  if (fd < 0) return "memfd_create failed";
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    close(fd);
    return "the memory file could not be sized";
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    close(fd);
    return "the memory file could not be mapped";
  }
  // After the mapping, because FUTURE_WRITE forbids later ones. A kernel before 5.1 has no such
  // seal, and a daemon must not accept a region that others could write.
  if (fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    munmap(memory, bytes);
    close(fd);
    return "the memory file could not be sealed (Linux 5.1 or newer is needed)";
  }
  fd_ = fd;
  bytes_ = bytes;
  header_ = static_cast<wire::Header*>(memory);

  const RegionLayout layout = LayOut(bytes);
  wire::Header& h = *header_;
  h.abi = wire::kRegionAbi;
  h.header_bytes = sizeof(wire::Header);
  h.region_bytes = bytes;
  h.agent_id = RandomId();
  h.pid = getpid();
  h.uid = static_cast<int32_t>(getuid());
  h.init_monotonic_ns = MonotonicNs();
  h.init_realtime_ns = ClockNs(CLOCK_REALTIME);
  std::copy_n(layout.sections, kSectionCount, h.sections);
  h.section_count = kSectionCount;
  // Last, so that half a header is never taken for one.
  __atomic_store_n(&h.magic, wire::kRegionMagic, __ATOMIC_RELEASE);
  return nullptr;
}

uint64_t Region::TouchedBytes() const { return ResidentBytes(header_, bytes_); }

}  // namespace tidemark::agent
