// The probes on host memory: loaded once, attached only while a process is watched, because a
// system call's tracepoint costs every process a little. Owned by the source's thread, except where
// noted.
#pragma once

#include <bpf/libbpf.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/proc_root.h"
#include "base/result.h"
#include "bpf/host_intf.h"
#include "daemon/source/bpf/bpf_source.h"
#include "daemon/source/bpf/tracepoint.h"

struct host_bpf;

namespace tidemark {

class HostFamily {
 public:
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void OnHostEvent(const tm_host_event& event) = 0;
    virtual void OnHostStack(const tm_stack& stack) = 0;
  };

  // Loads, and attaches and detaches once to find out whether that works.
  static Result<std::unique_ptr<HostFamily>> Load(const BpfConfig& config, const ProcRoot& root,
                                                  Sink* sink);
  ~HostFamily();

  // Empty, or what is missing.
  const std::string& reduced() const { return reduced_; }

  Result<void> AddProcess(pid_t pid, uint32_t generation);
  Result<void> SetPython(pid_t pid, const tm_python_layout& layout);
  // Detaches with the last one.
  void RemoveProcess(pid_t pid);
  // Any thread.
  std::optional<tm_host_watch> Counts(pid_t pid) const;

  void Drain();

 private:
  struct DestroyObject {
    void operator()(host_bpf* object) const;
  };
  struct FreeRing {
    void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
  };

  explicit HostFamily(Sink* sink) : sink_(sink) {}
  static int HandReport(void* family, void* data, size_t bytes);
  Result<void> Attach();

  Sink* sink_;
  std::unique_ptr<host_bpf, DestroyObject> object_;
  std::unique_ptr<ring_buffer, FreeRing> ring_;
  std::optional<Tracefs> tracefs_;
  std::vector<LinkPtr> links_;
  std::string reduced_;
  size_t processes_ = 0;
};

}  // namespace tidemark
