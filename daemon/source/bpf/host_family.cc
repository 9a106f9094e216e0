#include "daemon/source/bpf/host_family.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "daemon/source/bpf/bpf_object.h"
#include "host.skel.h"

namespace tidemark {
namespace {

constexpr std::string_view kSection = "tracepoint/";

// Calls without which the ledger would be wrong; the others add to it.
bool IsRequired(std::string_view tracepoint) {
  for (const char* call : {"_mmap", "_munmap", "_mremap", "_brk"}) {
    if (tracepoint.ends_with(call)) return true;
  }
  return false;
}

}  // namespace

void HostFamily::DestroyObject::operator()(host_bpf* object) const { host_bpf__destroy(object); }

HostFamily::~HostFamily() { DetachTogether(&links_); }

int HostFamily::HandReport(void* family, void* data, size_t bytes) {
  Sink* sink = static_cast<HostFamily*>(family)->sink_;
  if (static_cast<const tm_report*>(data)->kind == TM_REPORT_STACK) {
    if (bytes >= sizeof(tm_stack)) sink->OnHostStack(*static_cast<const tm_stack*>(data));
  } else if (bytes >= sizeof(tm_host_event)) {
    sink->OnHostEvent(*static_cast<const tm_host_event*>(data));
  }
  return 0;
}

Result<std::unique_ptr<HostFamily>> HostFamily::Load(const BpfConfig& config, const ProcRoot& root,
                                                     Sink* sink) {
  const std::string what = "load the host probes";
  Result<Tracefs> tracefs = Tracefs::Open(root);
  std::unique_ptr<HostFamily> family(new HostFamily(sink));
  family->object_.reset(host_bpf__open());
  if (!family->object_) return ExplainBpfError(root, what, errno);
  host_bpf* object = family->object_.get();
  const uint32_t ring_bytes = RingBytes(config.ring_bytes);
  bpf_map__set_max_entries(object->maps.reports, ring_bytes);
  bpf_map__set_max_entries(object->maps.watches, config.max_processes);
  bpf_map__set_max_entries(object->maps.pythons, config.max_processes);
  bpf_map__set_max_entries(object->maps.known_stacks, config.max_stacks);
  object->rodata->wake_above_bytes = ring_bytes / 4;
  object->rodata->sample_one_of = std::bit_ceil(std::max(config.sample_one_fault_of, 1u));
  if (int error = host_bpf__load(object); error != 0) return ExplainBpfError(root, what, -error);
  if (!tracefs) return tracefs.error();
  family->tracefs_ = std::move(tracefs).value();
  family->ring_.reset(
      ring_buffer__new(bpf_map__fd(object->maps.reports), HandReport, family.get(), nullptr));
  if (!family->ring_) return ExplainBpfError(root, what, errno);
  Result<void> attached = family->Attach();
  DetachTogether(&family->links_);
  if (!attached) return attached.error();
  return family;
}

Result<void> HostFamily::Attach() {
  reduced_.clear();
  bpf_program* program;
  bpf_object__for_each_program(program, object_->obj) {
    const std::string_view section = bpf_program__section_name(program);
    if (!section.starts_with(kSection)) {
      LinkPtr link(bpf_program__attach(program));
      if (link) {
        links_.push_back(std::move(link));
      } else {
        reduced_ += "no page faults: " + std::string(strerror(errno)) + "; ";
      }
      continue;
    }
    const std::string tracepoint(section.substr(kSection.size()));
    Result<LinkPtr> link = tracefs_->Attach(program, tracepoint);
    if (link) {
      links_.push_back(std::move(link).value());
    } else if (IsRequired(tracepoint)) {
      links_.clear();
      return link.error();
    } else {
      reduced_ += link.error().tried + ": " + link.error().why + "; ";
    }
  }
  return {};
}

Result<void> HostFamily::AddProcess(pid_t pid, uint32_t generation) {
  tm_host_watch watch = {};
  watch.generation = generation;
  const auto key = static_cast<uint32_t>(pid);
  const int error = bpf_map__update_elem(object_->maps.watches, &key, sizeof(key), &watch,
                                         sizeof(watch), BPF_ANY);
  if (error != 0) {
    return Error{"watch the host memory of process " + std::to_string(pid), strerror(-error),
                 error == -E2BIG ? "raise the number of processes to watch" : ""};
  }
  processes_ += 1;
  return links_.empty() ? Attach() : Result<void>();
}

Result<void> HostFamily::SetPython(pid_t pid, const tm_python_layout& layout) {
  const auto key = static_cast<uint32_t>(pid);
  const int error = bpf_map__update_elem(object_->maps.pythons, &key, sizeof(key), &layout,
                                         sizeof(layout), BPF_ANY);
  if (error != 0) {
    return Error{"watch Python in process " + std::to_string(pid), strerror(-error), ""};
  }
  return {};
}

void HostFamily::RemoveProcess(pid_t pid) {
  const auto key = static_cast<uint32_t>(pid);
  bpf_map__delete_elem(object_->maps.pythons, &key, sizeof(key), 0);
  if (bpf_map__delete_elem(object_->maps.watches, &key, sizeof(key), 0) != 0) return;
  processes_ -= 1;
  if (processes_ == 0) DetachTogether(&links_);
}

std::optional<tm_host_watch> HostFamily::Counts(pid_t pid) const {
  tm_host_watch watch;
  const auto key = static_cast<uint32_t>(pid);
  if (bpf_map__lookup_elem(object_->maps.watches, &key, sizeof(key), &watch, sizeof(watch), 0) !=
      0) {
    return std::nullopt;
  }
  return watch;
}

void HostFamily::Drain() { ring_buffer__consume(ring_.get()); }

}  // namespace tidemark
