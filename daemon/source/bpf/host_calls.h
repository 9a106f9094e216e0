// Turns the reports of the host family into changes of one process's host ledger.
//
// Reports come from the kernel; addresses and sizes inside them are the process's: untrusted.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "bpf/host_intf.h"
#include "daemon/source/bpf/host_ledger.h"
#include "daemon/source/bpf/process_maps.h"

namespace tidemark {

class HostCalls {
 public:
  // `fault_bytes`: what one sampled fault stands for.
  explicit HostCalls(uint64_t fault_bytes) : fault_bytes_(fault_bytes) {}

  void Apply(const tm_host_event& event);

  // What is mapped when the watch begins. Reports from before the reading of `mappings` may still
  // follow: they are applied again, in order, and come to the same.
  void Begin(const std::vector<Mapping>& mappings);

  // The process became another program at `time_ns`.
  void Exec(uint64_t time_ns);

  // Forgets io_uring pins whose ring is closed: nothing tells that but a look.
  void PruneRings(const std::function<bool(int descriptor)>& is_open);

  struct Pin {
    uint64_t bytes = 0;
    uint64_t stack_id = 0;
  };
  const std::map<int, Pin>& io_uring_pins() const { return io_uring_pins_; }
  const HostLedger& ledger() const { return ledger_; }
  // Bytes ever offered for lazy freeing.
  uint64_t lazily_freed_bytes() const { return lazily_freed_bytes_; }

 private:
  struct Taken {
    HostLedger::Pieces pieces;
    uint64_t start = 0;
    bool stays = false;  // the old range stays mapped
  };

  const uint64_t fault_bytes_;
  HostLedger ledger_;
  std::unordered_map<pid_t, Taken> taken_;  // by the call each thread is in
  std::map<int, Pin> io_uring_pins_;        // by the ring's descriptor
  uint64_t lazily_freed_bytes_ = 0;
  uint64_t exec_ns_ = 0;
};

// Class of a mapping by its name in /proc/PID/maps.
MemoryClass ClassOfMapping(const Mapping& mapping);

}  // namespace tidemark
