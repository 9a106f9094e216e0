// One process the source watches: what is wanted, what was brought about, and what is known.
//
// Written by the source's thread only, under the source's mutex where Collect reads it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "base/unique_fd.h"
#include "bpf/host_intf.h"
#include "daemon/source/bpf/bpf_source.h"
#include "daemon/source/bpf/cuda_calls.h"
#include "daemon/source/bpf/host_calls.h"
#include "daemon/source/bpf/libcuda_family.h"
#include "daemon/source/bpf/process_maps.h"
#include "daemon/source/bpf/stack_table.h"

namespace tidemark {

// RssAnon, RssFile and RssShmem of /proc/PID/status.
struct ResidentBytes {
  uint64_t anon = 0;
  uint64_t file = 0;
  uint64_t shmem = 0;

  uint64_t Of(MemoryClass memory_class) const;
};
ResidentBytes ReadResidentBytes(const ProcRoot& root, pid_t pid);

class WatchedProcess {
 public:
  WatchedProcess(const ProcRoot& root, pid_t pid, uint32_t generation, size_t max_live,
                 ModuleCache* modules)
      : pid(pid), generation(generation), calls(max_live), stacks(root, pid, modules) {}

  // The process as it stands; the counts are the kernel's, or those of its last moment.
  BpfProcess View(const std::optional<tm_cuda_counts>& counts,
                  const std::optional<tm_host_watch>& host_counts) const;

  const pid_t pid;
  const uint32_t generation;  // differs between two processes with one pid
  uint64_t start_time_ticks = 0;
  UniqueFd pidfd;  // readable when the process ends

  BpfWatch wanted;
  BpfMode mode = BpfMode::kOff;  // as attached
  BpfAttachState state = BpfAttachState::kOff;
  std::string reason;
  uint64_t attached_at_ns = 0;
  bool seen_without_libcuda = false;  // the thread's own
  uint64_t next_look_ns = 0;          // when to look for libcuda again
  uint64_t last_vm_pages = 0;         // size of its address space at the last look
  int looks_by_size = 0;              // in a row that went no further than that size

  LibcudaFamily::Attachment attachment;
  std::set<FileId> attached_files;            // the thread's own
  std::optional<tm_cuda_counts> last_counts;  // when the kernel counts no longer
  CudaCalls calls;
  StackTable stacks;  // of both families: an id is the same stack wherever it comes from

  std::optional<HostCalls> host;  // there from the first host watch on
  bool host_on = false;
  std::optional<tm_host_watch> last_host_counts;
  ResidentBytes resident_at_begin;
  ResidentBytes resident_now;
  uint64_t next_host_look_ns = 0;
  int python_looks_left = 0;  // how often to look for an interpreter still

 private:
  void ViewHost(BpfProcess* view) const;
};

}  // namespace tidemark
