#include "daemon/source/bpf/host_calls.h"

#include <sys/mman.h>

#include <string_view>

namespace tidemark {
namespace {

constexpr size_t kMaxThreads = 1u << 16;
constexpr uint64_t kPageBytes = 4096;

uint64_t PageUp(uint64_t address) { return (address + kPageBytes - 1) & ~(kPageBytes - 1); }

MemoryClass ClassOf(uint32_t source) {
  switch (source) {
    case TM_SOURCE_SHMEM:
      return MemoryClass::kShmem;
    case TM_SOURCE_FILE:
      return MemoryClass::kFile;
    default:
      return MemoryClass::kAnon;
  }
}

}  // namespace

MemoryClass ClassOfMapping(const Mapping& mapping) {
  const std::string_view path = mapping.path;
  if (path.starts_with("/dev/shm/") || path.starts_with("/memfd:") ||
      path.starts_with("/dev/zero") || path.starts_with("/SYSV")) {
    return MemoryClass::kShmem;
  }
  return mapping.file.inode != 0 ? MemoryClass::kFile : MemoryClass::kAnon;
}

void HostCalls::Begin(const std::vector<Mapping>& mappings) {
  for (const Mapping& mapping : mappings) {
    ledger_.MapBefore(mapping.start, mapping.end - mapping.start, ClassOfMapping(mapping));
  }
}

void HostCalls::Apply(const tm_host_event& event) {
  if (event.head.time_ns < exec_ns_) return;
  if (taken_.size() > kMaxThreads) taken_.clear();
  const auto tid = static_cast<pid_t>(event.head.tid);
  switch (event.head.kind) {
    case TM_HOST_MMAP:
      ledger_.Map(event.address, event.bytes, ClassOf(event.source), event.stack);
      break;
    case TM_HOST_MUNMAP:
      taken_[tid] = {ledger_.Unmap(event.address, event.bytes), event.address, false};
      break;
    case TM_HOST_MREMAP: {
      // Of size 0: a second mapping of shared pages. Else the range moves, or stays too if asked.
      const bool stays = event.bytes == 0 || (event.flags & MREMAP_DONTUNMAP) != 0;
      Taken& taken =
          taken_[tid] = {ledger_.Unmap(event.address, event.bytes), event.address, stays};
      if (stays) ledger_.PutBack(taken.pieces);
      break;
    }
    case TM_HOST_MREMAP_RETURN: {
      auto found = taken_.find(tid);
      if (found == taken_.end()) break;
      const Taken& taken = found->second;
      if (taken.stays) {
        const MemoryClass memory_class =
            taken.pieces.empty() ? MemoryClass::kShmem : taken.pieces.front().second.memory_class;
        ledger_.Map(event.result, event.bytes, memory_class, event.stack);
      } else {
        ledger_.Move(taken.pieces, taken.start, event.result, event.bytes, event.stack);
      }
      taken_.erase(found);
      break;
    }
    case TM_HOST_FAILED: {
      auto found = taken_.find(tid);
      if (found == taken_.end()) break;
      if (!found->second.stays) ledger_.PutBack(found->second.pieces);
      taken_.erase(found);
      break;
    }
    case TM_HOST_BRK: {
      const uint64_t before = PageUp(event.address), after = PageUp(event.result);
      if (after > before) {
        ledger_.Map(before, after - before, MemoryClass::kAnon, event.stack);
      } else {
        ledger_.Unmap(after, before - after);
      }
      break;
    }
    case TM_HOST_MADVISE:
      if (event.flags == MADV_FREE) lazily_freed_bytes_ += event.bytes;
      if (event.flags == MADV_FREE || event.flags == MADV_DONTNEED || event.flags == MADV_REMOVE) {
        ledger_.Discard(event.address, event.bytes);
      }
      break;
    case TM_HOST_MLOCK:
      ledger_.Lock(event.address, event.bytes);
      break;
    case TM_HOST_MUNLOCK:
      ledger_.Unlock(event.address, event.bytes);
      break;
    case TM_HOST_MUNLOCK_ALL:
      ledger_.UnlockAll();
      break;
    case TM_HOST_IO_URING_PIN:
      io_uring_pins_[static_cast<int>(event.address)] = {event.bytes, event.stack};
      break;
    case TM_HOST_IO_URING_UNPIN:
      io_uring_pins_.erase(static_cast<int>(event.address));
      break;
    case TM_HOST_FAULT:
      ledger_.Touch(event.address, event.stack, fault_bytes_);
      break;
    default:
      break;
  }
}

void HostCalls::Exec(uint64_t time_ns) {
  exec_ns_ = time_ns;
  ledger_.Clear();
  taken_.clear();
}

void HostCalls::PruneRings(const std::function<bool(int descriptor)>& is_open) {
  std::erase_if(io_uring_pins_, [&](const auto& pin) { return !is_open(pin.first); });
}

}  // namespace tidemark
