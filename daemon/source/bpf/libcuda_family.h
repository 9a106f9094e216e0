// The probes on libcuda: loading them, attaching them to a process, and taking their reports.
// Owned by the source's thread, except where noted.
#pragma once

#include <bpf/libbpf.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/proc_root.h"
#include "base/result.h"
#include "bpf/libcuda_intf.h"
#include "daemon/source/bpf/bpf_source.h"
#include "daemon/source/bpf/uprobe_link.h"

struct libcuda_bpf;

namespace tidemark {

class LibcudaFamily {
 public:
  // Links of one process; destroying it detaches. Entry probes go first: a call that one of them
  // saw must find its return probe still there.
  class Attachment {
   public:
    Attachment() = default;
    Attachment(Attachment&&) = default;
    Attachment& operator=(Attachment&& other) noexcept {
      std::swap(entries_, other.entries_);
      std::swap(returns_, other.returns_);
      return *this;
    }
    ~Attachment() { entries_.clear(); }

    void Add(Attachment other);

   private:
    friend class LibcudaFamily;
    std::vector<UprobeLink> entries_;
    std::vector<UprobeLink> returns_;
  };

  // Takes each report; called from Drain.
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void OnCall(const tm_cuda_call& call) = 0;
    virtual void OnStack(const tm_stack& stack) = 0;
  };

  static Result<std::unique_ptr<LibcudaFamily>> Load(const BpfConfig& config, const ProcRoot& root,
                                                     Sink* sink);
  ~LibcudaFamily();

  UprobeMethod method() const { return method_; }
  // Empty, or why it works in a reduced form.
  const std::string& reduced() const { return reduced_; }

  // Makes the kernel count for `pid` from zero.
  Result<void> AddProcess(pid_t pid, const tm_cuda_watch& watch);
  // From now on the probes of `watch.mode` count, and those of the other no longer.
  Result<void> SetWatch(pid_t pid, const tm_cuda_watch& watch);
  // Python frames in the stacks of `pid` from now on.
  Result<void> SetPython(pid_t pid, const tm_python_layout& layout);
  void RemoveProcess(pid_t pid);
  // Any thread.
  std::optional<tm_cuda_counts> Counts(pid_t pid) const;

  // Attaches to the libcuda that `file_fd` is, `name` for messages. kWitness or kLedger.
  Result<void> Attach(pid_t pid, BpfMode mode, int file_fd, const std::string& name,
                      Attachment* attachment);

  // Hands every report that is there to the sink.
  void Drain();
  // Readable when the ring fills faster than Drain is called.
  int WakeFd() const;

 private:
  struct DestroyObject {
    void operator()(libcuda_bpf* object) const;
  };
  struct FreeRing {
    void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
  };

  LibcudaFamily() = default;
  int Open(const BpfConfig& config, bool with_python);

  std::unique_ptr<libcuda_bpf, DestroyObject> object_;
  std::unique_ptr<ring_buffer, FreeRing> ring_;
  UprobeMethod method_ = UprobeMethod::kMulti;
  std::string reduced_;
};

}  // namespace tidemark
