#include "daemon/source/bpf/libcuda_family.h"

#include <cerrno>
#include <cstring>
#include <set>

#include "daemon/source/bpf/bpf_object.h"
#include "daemon/source/bpf/cuda_probes.h"
#include "daemon/source/bpf/elf_image.h"
#include "libcuda.skel.h"

namespace tidemark {
namespace {

int HandReport(void* sink_pointer, void* data, size_t bytes) {
  auto* sink = static_cast<LibcudaFamily::Sink*>(sink_pointer);
  const auto* head = static_cast<const tm_report*>(data);
  switch (head->kind) {
    case TM_REPORT_ENTER:
    case TM_REPORT_RETURN:
      if (bytes >= sizeof(tm_cuda_call)) sink->OnCall(*static_cast<const tm_cuda_call*>(data));
      break;
    case TM_REPORT_STACK:
      if (bytes >= sizeof(tm_stack)) sink->OnStack(*static_cast<const tm_stack*>(data));
      break;
    default:
      break;
  }
  return 0;
}

}  // namespace

void LibcudaFamily::DestroyObject::operator()(libcuda_bpf* object) const {
  libcuda_bpf__destroy(object);
}

LibcudaFamily::~LibcudaFamily() = default;

void LibcudaFamily::Attachment::Add(Attachment other) {
  for (UprobeLink& link : other.entries_) entries_.push_back(std::move(link));
  for (UprobeLink& link : other.returns_) returns_.push_back(std::move(link));
}

Result<std::unique_ptr<LibcudaFamily>> LibcudaFamily::Load(const BpfConfig& config,
                                                           const ProcRoot& root, Sink* sink) {
  const std::string what = "load the libcuda probes";
  Result<bool> multi = KernelHasUprobeMulti();
  if (!multi) return ExplainBpfError(root, what, EPERM);

  std::unique_ptr<LibcudaFamily> family(new LibcudaFamily());
  if (!*multi) {
    family->method_ = UprobeMethod::kPerf;
    family->reduced_ = "one perf event a probe (kernel before 6.6): slow to detach";
  }
  int error = 0;
  // Kernels before 5.17 refuse the walk of Python frames: the second round does without it.
  for (bool with_python : {true, false}) {
    error = family->Open(config, with_python);
    if (error == 0) {
      if (!with_python) family->reduced_ += " no Python frames (kernel before 5.17)";
      break;
    }
    if (error == -EPERM) break;
  }
  if (error != 0) return ExplainBpfError(root, what, -error);
  libcuda_bpf* object = family->object_.get();
  family->ring_.reset(
      ring_buffer__new(bpf_map__fd(object->maps.reports), HandReport, sink, nullptr));
  if (!family->ring_) return ExplainBpfError(root, what, errno);
  return family;
}

// Opens and loads with the sizes of `config`; 0 or a negative error number.
int LibcudaFamily::Open(const BpfConfig& config, bool with_python) {
  object_.reset(libcuda_bpf__open());
  if (!object_) return -errno;
  if (method_ == UprobeMethod::kMulti) {
    for (bpf_program* program : {object_->progs.libcuda_enter, object_->progs.libcuda_return}) {
      bpf_program__set_expected_attach_type(program,
                                            static_cast<bpf_attach_type>(kUprobeMultiAttachType));
    }
  }
  const uint32_t ring_bytes = RingBytes(config.ring_bytes);
  bpf_map__set_max_entries(object_->maps.reports, ring_bytes);
  bpf_map__set_max_entries(object_->maps.watches, config.max_processes);
  bpf_map__set_max_entries(object_->maps.counts, config.max_processes);
  bpf_map__set_max_entries(object_->maps.pythons, config.max_processes);
  bpf_map__set_max_entries(object_->maps.known_stacks, config.max_stacks);
  object_->rodata->wake_above_bytes = ring_bytes / 4;
  object_->rodata->walk_python = with_python;
  return libcuda_bpf__load(object_.get());
}

Result<void> LibcudaFamily::SetPython(pid_t pid, const tm_python_layout& layout) {
  const auto key = static_cast<uint32_t>(pid);
  const int error = bpf_map__update_elem(object_->maps.pythons, &key, sizeof(key), &layout,
                                         sizeof(layout), BPF_ANY);
  if (error != 0)
    return Error{"watch Python in process " + std::to_string(pid), strerror(-error), ""};
  return {};
}

Result<void> LibcudaFamily::AddProcess(pid_t pid, const tm_cuda_watch& watch) {
  const tm_cuda_counts zero = {};
  const auto key = static_cast<uint32_t>(pid);
  const int error =
      bpf_map__update_elem(object_->maps.counts, &key, sizeof(key), &zero, sizeof(zero), BPF_ANY);
  if (error != 0) {
    return Error{"watch process " + std::to_string(pid), strerror(-error),
                 error == -E2BIG ? "raise the number of processes to watch" : ""};
  }
  return SetWatch(pid, watch);
}

Result<void> LibcudaFamily::SetWatch(pid_t pid, const tm_cuda_watch& watch) {
  const auto key = static_cast<uint32_t>(pid);
  const int error = bpf_map__update_elem(object_->maps.watches, &key, sizeof(key), &watch,
                                         sizeof(watch), BPF_ANY);
  if (error != 0) return Error{"watch process " + std::to_string(pid), strerror(-error), ""};
  return {};
}

void LibcudaFamily::RemoveProcess(pid_t pid) {
  const auto key = static_cast<uint32_t>(pid);
  bpf_map__delete_elem(object_->maps.watches, &key, sizeof(key), 0);
  bpf_map__delete_elem(object_->maps.counts, &key, sizeof(key), 0);
  bpf_map__delete_elem(object_->maps.pythons, &key, sizeof(key), 0);
}

std::optional<tm_cuda_counts> LibcudaFamily::Counts(pid_t pid) const {
  tm_cuda_counts counts;
  const auto key = static_cast<uint32_t>(pid);
  if (bpf_map__lookup_elem(object_->maps.counts, &key, sizeof(key), &counts, sizeof(counts), 0) !=
      0) {
    return std::nullopt;
  }
  return counts;
}

Result<void> LibcudaFamily::Attach(pid_t pid, BpfMode mode, int file_fd, const std::string& name,
                                   Attachment* attachment) {
  const bool ledger = mode == BpfMode::kLedger;
  std::vector<std::string_view> symbols;
  for (const CudaProbe& probe : CudaProbes()) symbols.push_back(probe.symbol);
  auto functions = ElfImage::FindFunctions(file_fd, name, symbols);
  if (!functions) return functions.error();

  std::vector<UprobePoint> points;
  std::set<uint64_t> taken;  // two names of one function are one function
  for (const CudaProbe& probe : CudaProbes()) {
    auto found = functions->find(std::string_view(probe.symbol));
    if (found == functions->end() || (!ledger && probe.where == ProbeWhere::kLedgerOnly)) continue;
    if (taken.insert(found->second).second) points.push_back({found->second, probe.Cookie(ledger)});
  }
  if (points.empty()) {
    return Error{"attach to " + name, "it defines none of the memory calls",
                 "name the real libcuda in the configuration"};
  }
  // Returns first: an entry probe that is on must find its return probe on too.
  if (ledger) {
    auto link = UprobeLink::Attach(object_->progs.libcuda_return, method_, UprobeKind::kReturn, pid,
                                   file_fd, points);
    if (!link) return link.error();
    attachment->returns_.push_back(std::move(link).value());
  }
  auto link = UprobeLink::Attach(object_->progs.libcuda_enter, method_, UprobeKind::kEntry, pid,
                                 file_fd, points);
  if (!link) return link.error();
  attachment->entries_.push_back(std::move(link).value());
  return {};
}

void LibcudaFamily::Drain() { ring_buffer__consume(ring_.get()); }

int LibcudaFamily::WakeFd() const { return ring_buffer__epoll_fd(ring_.get()); }

}  // namespace tidemark
