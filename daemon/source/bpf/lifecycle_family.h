// Exec, fork, exit and OOM victims of the whole machine, without polling.
#pragma once

#include <bpf/libbpf.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "base/proc_root.h"
#include "base/result.h"
#include "bpf/lifecycle_intf.h"
#include "daemon/source/bpf/bpf_source.h"

struct lifecycle_bpf;

namespace tidemark {

class LifecycleFamily {
 public:
  using Handler = std::function<void(const tm_lifecycle_event&)>;

  // Loads and attaches. `handler` is called from Drain. A kernel whose mark_victim cannot be
  // attached to still gives the rest: see reduced().
  static Result<std::unique_ptr<LifecycleFamily>> Load(const BpfConfig& config,
                                                       const ProcRoot& root, Handler handler);
  ~LifecycleFamily();

  const std::string& reduced() const { return reduced_; }
  void Drain();
  int WakeFd() const;
  uint64_t lost_events() const;

 private:
  struct DestroyObject {
    void operator()(lifecycle_bpf* object) const;
  };
  struct FreeRing {
    void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
  };

  explicit LifecycleFamily(Handler handler) : handler_(std::move(handler)) {}
  static int HandEvent(void* family, void* data, size_t bytes);

  Handler handler_;
  std::unique_ptr<lifecycle_bpf, DestroyObject> object_;
  std::unique_ptr<ring_buffer, FreeRing> ring_;
  std::string reduced_;
};

}  // namespace tidemark
