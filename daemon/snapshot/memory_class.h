// The words for memory that ledger, JSON, metrics and pages share, and who vouches for a number.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tidemark {

enum class MemoryClass : uint8_t {
  // Device, as the driver hands it out.
  kDevice,   // cuMemAlloc, cuMemAllocPitch
  kPool,     // stream-ordered
  kVmm,      // cuMemCreate
  kManaged,  // cuMemAllocManaged; adds nothing to the device figure
  kArray,
  kGraph,         // graph memory nodes
  kIpc,           // imported, not owned
  kContext,       // smallest device figure minus tracked, in the first seconds
  kUnattributed,  // device figure minus everything known; may be negative
  // The framework's caching allocator, inside the driver's device memory.
  kFwLive,
  kFwCache,  // reserved and not live
  // Pinned host memory.
  kPinned,       // allocated by CUDA
  kRegistered,   // the job's own memory, registered with CUDA
  kPinnedOther,  // RDMA, io_uring
  // Host.
  kAnon,
  kFile,
  kShmem,
  kSwap,
  kLazyFree,
  kLocked,
  kFwHost,    // CPU tensors, inside anon
  kObserver,  // Tidemark's own
};

inline constexpr std::array<std::string_view, 22> kMemoryClassNames = {
    "device",     "pool",         "vmm",          "managed", "array",    "graph",
    "ipc",        "context",      "unattributed", "fw_live", "fw_cache", "pinned",
    "registered", "pinned_other", "anon",         "file",    "shmem",    "swap",
    "lazyfree",   "locked",       "fw_host",      "observer"};
static_assert(kMemoryClassNames.size() == static_cast<size_t>(MemoryClass::kObserver) + 1);

constexpr std::string_view ToString(MemoryClass c) {
  return kMemoryClassNames[static_cast<size_t>(c)];
}

constexpr std::optional<MemoryClass> MemoryClassFromString(std::string_view name) {
  for (size_t i = 0; i < kMemoryClassNames.size(); ++i) {
    if (kMemoryClassNames[i] == name) return static_cast<MemoryClass>(i);
  }
  return std::nullopt;
}

// Whether the bytes of this class lie on a device (and so carry a device ordinal).
constexpr bool OnDevice(MemoryClass c) { return c <= MemoryClass::kFwCache; }

// Who counted the bytes.
enum class Witness : uint8_t { kCupti, kBpf, kTorch, kNvml, kProc };

inline constexpr std::array<std::string_view, 5> kWitnessNames = {"cupti", "bpf", "torch", "nvml",
                                                                  "proc"};
constexpr std::string_view ToString(Witness w) { return kWitnessNames[static_cast<size_t>(w)]; }

}  // namespace tidemark
