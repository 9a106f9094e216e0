#include "daemon/source/bpf/lifecycle_family.h"

#include <cerrno>

#include "daemon/source/bpf/bpf_object.h"
#include "lifecycle.skel.h"

namespace tidemark {

void LifecycleFamily::DestroyObject::operator()(lifecycle_bpf* object) const {
  lifecycle_bpf__destroy(object);
}

LifecycleFamily::~LifecycleFamily() = default;

int LifecycleFamily::HandEvent(void* family, void* data, size_t bytes) {
  if (bytes >= sizeof(tm_lifecycle_event)) {
    static_cast<LifecycleFamily*>(family)->handler_(*static_cast<const tm_lifecycle_event*>(data));
  }
  return 0;
}

Result<std::unique_ptr<LifecycleFamily>> LifecycleFamily::Load(const BpfConfig& config,
                                                               const ProcRoot& root,
                                                               Handler handler) {
  std::unique_ptr<LifecycleFamily> family(new LifecycleFamily(std::move(handler)));
  int error = 0;
  // Older kernels give mark_victim no task: the second round does without it.
  for (bool with_victim : {true, false}) {
    family->object_.reset(lifecycle_bpf__open());
    if (!family->object_) return ExplainBpfError(root, "load the lifecycle probes", errno);
    lifecycle_bpf* object = family->object_.get();
    bpf_map__set_max_entries(object->maps.events, RingBytes(config.ring_bytes / 4));
    bpf_program__set_autoload(object->progs.lifecycle_oom_victim, with_victim);
    error = lifecycle_bpf__load(object);
    if (error == 0) error = lifecycle_bpf__attach(object);
    if (error == 0) {
      if (!with_victim) family->reduced_ = "OOM victims cannot be told on this kernel";
      break;
    }
  }
  if (error != 0) return ExplainBpfError(root, "load the lifecycle probes", -error);
  family->ring_.reset(ring_buffer__new(bpf_map__fd(family->object_->maps.events), HandEvent,
                                       family.get(), nullptr));
  if (!family->ring_) return ExplainBpfError(root, "load the lifecycle probes", errno);
  return family;
}

void LifecycleFamily::Drain() { ring_buffer__consume(ring_.get()); }

int LifecycleFamily::WakeFd() const { return ring_buffer__epoll_fd(ring_.get()); }

uint64_t LifecycleFamily::lost_events() const {
  return __atomic_load_n(&object_->bss->lost_events, __ATOMIC_RELAXED);
}

}  // namespace tidemark
