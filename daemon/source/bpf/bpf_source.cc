#include "daemon/source/bpf/bpf_source.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/unique_fd.h"
#include "daemon/source/bpf/bpf_object.h"
#include "daemon/source/bpf/host_family.h"
#include "daemon/source/bpf/libcuda_family.h"
#include "daemon/source/bpf/lifecycle_family.h"
#include "daemon/source/bpf/watched_process.h"

namespace tidemark {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
// How often the rings are emptied when they do not fill faster than that.
constexpr int kDrainMilliseconds = 50;
constexpr uint64_t kLookEveryNs = 500 * kMillisecond;
// The size of the address space only hints at what is mapped: a library may come as another goes,
// and a walk over the mappings while they change may miss one. So it is trusted this often in a
// row.
constexpr int kLooksBySizeOnly = 3;
constexpr uint64_t kRetryEveryNs = 10'000 * kMillisecond;
constexpr std::array<const char*, 3> kFamilyNames = {"libcuda", "lifecycle", "host"};
constexpr size_t kMaxEvents = 65536;
// An interpreter that is not mapped a few seconds after the start is none.
constexpr int kPythonLooks = 5;

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// Pages of address space, which change when a library is mapped: a look at the mappings of a big
// process takes milliseconds, this takes microseconds.
uint64_t VmPages(const ProcRoot& root, pid_t pid) {
  uint64_t pages = 0;
  std::ifstream(root.Proc(pid) / "statm") >> pages;
  return pages;
}

std::string_view BaseName(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

}  // namespace

class BpfSource::Impl : public LibcudaFamily::Sink, public HostFamily::Sink {
 public:
  Impl(BpfConfig config, ProcRoot root)
      : config_(std::move(config)), root_(std::move(root)), modules_(root_) {}
  ~Impl() override { Stop(); }

  Result<void> Start();
  void Stop();
  void SetProcess(pid_t pid, BpfWatch watch);
  void Seed(pid_t pid, std::vector<BpfSeed> live);
  std::vector<BpfFamilyState> States() const;
  BpfSnapshot Collect() const;
  std::vector<BpfLifecycleEvent> TakeEvents();

 private:
  bool FamilyWanted(std::string_view name) const {
    return config_.enabled &&
           std::find(config_.disabled_families.begin(), config_.disabled_families.end(), name) ==
               config_.disabled_families.end();
  }
  void LoadFamilies();

  // The thread.
  void Run();
  void Wait();
  void ApplyWanted();
  void ApplySeeds();
  WatchedProcess* Add(pid_t pid, BpfWatch watch);
  void Look(WatchedProcess* process, uint64_t now);
  void ChangeMode(WatchedProcess* process, BpfMode mode);
  void Detach(WatchedProcess* process);
  void NoteExit(WatchedProcess* process);
  void SetHost(WatchedProcess* process, bool on);
  void LookAtHost(WatchedProcess* process, uint64_t now);
  void OnLifecycle(const tm_lifecycle_event& event);
  void DrainRings();

  // Called from DrainRings, with the mutex held.
  void OnCall(const tm_cuda_call& call) override;
  void OnStack(const tm_stack& stack) override;
  void OnHostEvent(const tm_host_event& event) override;
  void OnHostStack(const tm_stack& stack) override { OnStack(stack); }
  WatchedProcess* FindReported(const tm_report& head);

  // The kernel's counts, or those kept when it stopped counting.
  std::optional<tm_cuda_counts> CountsOf(const WatchedProcess& process) const;
  std::optional<tm_host_watch> HostCountsOf(const WatchedProcess& process) const;

  const BpfConfig config_;
  const ProcRoot root_;
  ModuleCache modules_;  // the thread's

  // Set by the thread under the mutex when it begins; from then on it alone uses what is not said
  // to be for any thread.
  std::unique_ptr<LibcudaFamily> libcuda_;
  std::unique_ptr<LifecycleFamily> lifecycle_;
  std::unique_ptr<HostFamily> host_;
  UniqueFd wake_;
  std::thread thread_;

  mutable std::mutex mutex_;  // guards all below; never held across an attach or a detach
  bool stopping_ = false;
  std::vector<BpfFamilyState> states_;
  std::map<pid_t, BpfWatch> wanted_;  // not yet applied
  std::vector<std::pair<pid_t, std::vector<BpfSeed>>> seeds_;
  std::map<pid_t, std::unique_ptr<WatchedProcess>> processes_;  // changed by the thread only
  std::deque<BpfLifecycleEvent> events_;
  uint64_t event_backlog_losses_ = 0;
  uint32_t last_generation_ = 0;
};

// Takes up to a second, so the thread does it: nobody waits for it, and until then every family
// says so.
void BpfSource::Impl::LoadFamilies() {
  // `load` makes the family, `keep` is where it belongs.
  auto bring_up = [this](size_t index, auto load, auto* keep) {
    if (!FamilyWanted(kFamilyNames[index])) {
      std::lock_guard lock(mutex_);
      states_[index].reason = "switched off";
      states_[index].hint = "switch it on in the configuration";
      return;
    }
    auto family = load();
    std::lock_guard lock(mutex_);
    BpfFamilyState& state = states_[index];
    state.attached = family.ok();
    if (family) {
      state.reason = (*family)->reduced();
      *keep = std::move(family).value();
    } else {
      state.reason = family.error().tried + ": " + family.error().why;
      state.hint = family.error().hint;
    }
  };
  bring_up(
      0, [this] { return LibcudaFamily::Load(config_, root_, this); }, &libcuda_);
  bring_up(
      1,
      [this] {
        return LifecycleFamily::Load(config_, root_,
                                     [this](const tm_lifecycle_event& e) { OnLifecycle(e); });
      },
      &lifecycle_);
  bring_up(
      2, [this] { return HostFamily::Load(config_, root_, this); }, &host_);
}

Result<void> BpfSource::Impl::Start() {
  SilenceLibbpf();
  {
    std::lock_guard lock(mutex_);
    stopping_ = false;
    states_.clear();
    for (const char* name : kFamilyNames) {
      BpfFamilyState state;
      state.name = name;
      state.reason = kBeingLoaded;
      states_.push_back(std::move(state));
    }
  }
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return Error{"create an eventfd", strerror(errno), ""};
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return Error{"start the thread tidemark-bpf", error.what(), ""};
  }
  pthread_setname_np(thread_.native_handle(), "tidemark-bpf");
  return {};
}

void BpfSource::Impl::Stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  eventfd_write(wake_.get(), 1);
  thread_.join();
  std::lock_guard lock(mutex_);
  libcuda_.reset();
  lifecycle_.reset();
  host_.reset();
  for (BpfFamilyState& state : states_) {
    state = {.name = state.name, .attached = false, .reason = "stopped", .hint = ""};
  }
}

void BpfSource::Impl::SetProcess(pid_t pid, BpfWatch watch) {
  {
    std::lock_guard lock(mutex_);
    wanted_[pid] = watch;
  }
  if (wake_.valid()) eventfd_write(wake_.get(), 1);
}

void BpfSource::Impl::Seed(pid_t pid, std::vector<BpfSeed> live) {
  {
    std::lock_guard lock(mutex_);
    seeds_.emplace_back(pid, std::move(live));
  }
  if (wake_.valid()) eventfd_write(wake_.get(), 1);
}

std::vector<BpfFamilyState> BpfSource::Impl::States() const {
  std::lock_guard lock(mutex_);
  return states_;
}

std::optional<tm_cuda_counts> BpfSource::Impl::CountsOf(const WatchedProcess& process) const {
  if (process.last_counts || !libcuda_) return process.last_counts;
  return libcuda_->Counts(process.pid);
}

std::optional<tm_host_watch> BpfSource::Impl::HostCountsOf(const WatchedProcess& process) const {
  if (process.last_host_counts || !process.host_on || !host_) return process.last_host_counts;
  return host_->Counts(process.pid);
}

BpfSnapshot BpfSource::Impl::Collect() const {
  std::lock_guard lock(mutex_);
  BpfSnapshot snapshot;
  snapshot.families = states_;
  for (const auto& [pid, process] : processes_) {
    snapshot.processes.push_back(process->View(CountsOf(*process), HostCountsOf(*process)));
  }
  if (event_backlog_losses_ > 0) {
    snapshot.losses.push_back({"lifecycle_backlog", event_backlog_losses_});
  }
  const uint64_t lost = lifecycle_ ? lifecycle_->lost_events() : 0;
  if (lost > 0) snapshot.losses.push_back({"lifecycle_ring_full", lost});
  return snapshot;
}

std::vector<BpfLifecycleEvent> BpfSource::Impl::TakeEvents() {
  std::lock_guard lock(mutex_);
  std::vector<BpfLifecycleEvent> events(events_.begin(), events_.end());
  events_.clear();
  return events;
}

// ---------------------------------------------------------------- the thread

void BpfSource::Impl::Run() {
  LoadFamilies();
  while (true) {
    Wait();
    {
      std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    ApplyWanted();
    DrainRings();
    ApplySeeds();
    const uint64_t now = NowNs();
    for (auto& [pid, process] : processes_) {
      const bool looking =
          process->state == BpfAttachState::kWaiting || process->state == BpfAttachState::kFailed;
      if (looking && now >= process->next_look_ns) Look(process.get(), now);
      if (process->host_on && now >= process->next_host_look_ns) LookAtHost(process.get(), now);
      pollfd ended = {process->pidfd.get(), POLLIN, 0};
      if (process->state != BpfAttachState::kExited && process->pidfd.valid() &&
          poll(&ended, 1, 0) == 1) {
        NoteExit(process.get());
      }
    }
  }
  for (auto& [pid, process] : processes_) {
    SetHost(process.get(), false);
    Detach(process.get());
  }
  std::lock_guard lock(mutex_);
  processes_.clear();
}

void BpfSource::Impl::Wait() {
  // Lifecycle alone is drained less often: nothing in it is older than the reader needs it.
  std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
  if (libcuda_) fds.push_back({libcuda_->WakeFd(), POLLIN, 0});
  poll(fds.data(), fds.size(), kDrainMilliseconds);
  eventfd_t ignored;
  eventfd_read(wake_.get(), &ignored);
}

void BpfSource::Impl::DrainRings() {
  std::lock_guard lock(mutex_);
  // First what tells that a process became another one: its calls are sorted by that.
  if (lifecycle_) lifecycle_->Drain();
  if (libcuda_) libcuda_->Drain();
  if (host_) host_->Drain();
}

void BpfSource::Impl::ApplyWanted() {
  std::map<pid_t, BpfWatch> wanted;
  {
    std::lock_guard lock(mutex_);
    wanted.swap(wanted_);
  }
  for (const auto& [pid, watch] : wanted) {
    auto found = processes_.find(pid);
    WatchedProcess* process = found == processes_.end() ? nullptr : found->second.get();
    const bool forget = watch == BpfWatch{};
    if (process && process->state == BpfAttachState::kExited && !forget) {
      // The same pid again: the same dead process, or a new one?
      Result<uint64_t> start = ReadStartTimeTicks(root_, pid);
      if (!start || *start == process->start_time_ticks) continue;
    }
    if (process && (forget || process->state == BpfAttachState::kExited)) {
      SetHost(process, false);
      Detach(process);
      std::lock_guard lock(mutex_);
      processes_.erase(found);
      process = nullptr;
    }
    if (forget) continue;
    if (!process) {
      process = Add(pid, watch);
    }
    if (process->state == BpfAttachState::kExited) continue;
    {
      std::lock_guard lock(mutex_);
      process->wanted = watch;
    }
    SetHost(process, watch.host);
    if (watch.cuda == BpfMode::kOff) {
      Detach(process);
      std::lock_guard lock(mutex_);
      process->state = BpfAttachState::kOff;
    } else if (process->mode == BpfMode::kOff) {
      if (process->state == BpfAttachState::kOff) {
        std::lock_guard lock(mutex_);
        process->state = BpfAttachState::kWaiting;
        process->last_vm_pages = 0;  // it waits anew
      }
      Look(process, NowNs());
    } else if (process->mode != watch.cuda) {
      ChangeMode(process, watch.cuda);
    }
  }
}

WatchedProcess* BpfSource::Impl::Add(pid_t pid, BpfWatch watch) {
  auto process = std::make_unique<WatchedProcess>(root_, pid, ++last_generation_,
                                                  config_.max_live_allocations, &modules_);
  process->wanted = watch;
  process->pidfd.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  Result<uint64_t> start = ReadStartTimeTicks(root_, pid);
  if (!process->pidfd.valid() || !start) {
    process->state = BpfAttachState::kExited;
    process->reason = "no such process";
  } else {
    process->start_time_ticks = *start;
  }
  WatchedProcess* added = process.get();
  std::lock_guard lock(mutex_);
  processes_[pid] = std::move(process);
  return added;
}

// Looks for libcuda among the mappings and attaches to it when it is there.
void BpfSource::Impl::Look(WatchedProcess* process, uint64_t now) {
  auto become = [&](BpfAttachState state, std::string reason, uint64_t again_ns) {
    std::lock_guard lock(mutex_);
    process->state = state;
    process->reason = std::move(reason);
    process->next_look_ns = again_ns;
  };
  if (!libcuda_) {
    become(BpfAttachState::kFailed, "the libcuda family is not available", UINT64_MAX);
    return;
  }
  const uint64_t pages = VmPages(root_, process->pid);
  if (process->state == BpfAttachState::kWaiting && pages == process->last_vm_pages &&
      process->looks_by_size < kLooksBySizeOnly) {
    process->looks_by_size += 1;
    process->next_look_ns = now + kLookEveryNs;
    return;
  }
  process->looks_by_size = 0;
  process->last_vm_pages = pages;
  Result<std::vector<Mapping>> mappings = ReadMappings(root_, process->pid);
  if (!mappings) {
    become(BpfAttachState::kFailed, mappings.error().ToString(), now + kRetryEveryNs);
    return;
  }
  std::map<FileId, const Mapping*> libraries;
  tm_cuda_watch watch = {
      .generation = process->generation,
      .mode = process->wanted.cuda == BpfMode::kLedger ? TM_MODE_LEDGER : TM_MODE_WITNESS,
      .text_start = 0,
      .text_end = 0};
  for (const Mapping& mapping : *mappings) {
    if (mapping.file.inode == 0 || !BaseName(mapping.path).starts_with(config_.libcuda_prefix)) {
      continue;
    }
    libraries.emplace(mapping.file, &mapping);
    if (mapping.executable && watch.text_end == 0) {
      watch.text_start = mapping.start;
      watch.text_end = mapping.end;
    }
  }
  if (libraries.empty()) {
    process->seen_without_libcuda = true;
    become(BpfAttachState::kWaiting, "", now + kLookEveryNs);
    return;
  }

  const BpfMode mode = process->wanted.cuda;
  LibcudaFamily::Attachment attachment;
  Result<void> done;
  for (const auto& [file, mapping] : libraries) {
    if (!done) break;
    if (process->attached_files.contains(file)) continue;
    Result<UniqueFd> fd = OpenMapped(root_, process->pid, *mapping);
    done = fd ? libcuda_->Attach(process->pid, mode, fd->get(), mapping->path, &attachment)
              : Result<void>(fd.error());
  }
  // Without it stacks are native only, which is no reason to go without them.
  Result<std::optional<PythonNames>> python = PythonNames::Find(root_, process->pid, *mappings);
  if (done && python && *python)
    done = libcuda_->SetPython(process->pid, (*python)->KernelLayout());
  // Only now: the probes that count so far go on counting until the new ones are all there.
  if (done) {
    done = libcuda_->Counts(process->pid) ? libcuda_->SetWatch(process->pid, watch)
                                          : libcuda_->AddProcess(process->pid, watch);
  }
  if (!done) {
    become(BpfAttachState::kFailed, done.error().ToString(), now + kRetryEveryNs);
    return;
  }
  std::lock_guard lock(mutex_);
  process->attachment.Add(std::move(attachment));
  for (const auto& [file, mapping] : libraries) process->attached_files.insert(file);
  process->last_counts.reset();
  if (process->seen_without_libcuda) process->calls.SetSeenFromStart();
  process->mode = mode;
  process->state = BpfAttachState::kAttached;
  process->reason = python ? "" : "no Python frames: " + python.error().ToString();
  if (python) process->stacks.SetPython(*std::move(python));
  process->attached_at_ns = NowNs();
}

// Both kinds of probes are on for a moment and the kernel is told which of them count, so that no
// call is lost or counted twice.
void BpfSource::Impl::ChangeMode(WatchedProcess* process, BpfMode mode) {
  LibcudaFamily::Attachment old;
  std::swap(old, process->attachment);
  process->attached_files.clear();
  Look(process, NowNs());
  if (process->state != BpfAttachState::kAttached) {
    std::lock_guard lock(mutex_);
    process->mode = BpfMode::kOff;
  }
  if (mode == BpfMode::kWitness) {
    std::lock_guard lock(mutex_);
    process->calls = CudaCalls(config_.max_live_allocations);
  }
}

void BpfSource::Impl::Detach(WatchedProcess* process) {
  LibcudaFamily::Attachment attachment;
  std::swap(attachment, process->attachment);
  attachment = {};
  process->attached_files.clear();
  DrainRings();
  if (process->mode == BpfMode::kOff) return;
  std::optional<tm_cuda_counts> counts = CountsOf(*process);
  {
    std::lock_guard lock(mutex_);
    process->last_counts = counts;
    process->mode = BpfMode::kOff;
  }
  libcuda_->RemoveProcess(process->pid);
}

void BpfSource::Impl::NoteExit(WatchedProcess* process) {
  const BpfMode mode = process->mode;
  SetHost(process, false);
  Detach(process);
  std::lock_guard lock(mutex_);
  process->mode = mode;
  process->state = BpfAttachState::kExited;
  process->reason = "the process ended";
  process->pidfd.Reset();
}

void BpfSource::Impl::SetHost(WatchedProcess* process, bool on) {
  if (on == process->host_on || !host_) return;
  if (!on) {
    DrainRings();
    std::optional<tm_host_watch> counts = HostCountsOf(*process);
    {
      std::lock_guard lock(mutex_);
      process->last_host_counts = counts;
      process->host_on = false;
    }
    host_->RemoveProcess(process->pid);
    return;
  }
  Result<void> added = host_->AddProcess(process->pid, process->generation);
  Result<std::vector<Mapping>> mappings = ReadMappings(root_, process->pid);
  std::lock_guard lock(mutex_);
  process->host.emplace(uint64_t{4096} * config_.sample_one_fault_of);
  process->last_host_counts.reset();
  if (!added) process->reason += "host memory: " + added.error().ToString();
  if (mappings) process->host->Begin(*mappings);
  process->host_on = added.ok();
  process->resident_at_begin = process->resident_now = ReadResidentBytes(root_, process->pid);
  process->python_looks_left = kPythonLooks;
  process->next_host_look_ns = 0;
}

// Once a second: how resident bytes stand, whether rings with pinned buffers were closed, and an
// interpreter that was not there before.
void BpfSource::Impl::LookAtHost(WatchedProcess* process, uint64_t now) {
  std::optional<PythonNames> python;
  if (process->python_looks_left > 0) {
    process->python_looks_left -= 1;
    Result<std::vector<Mapping>> mappings = ReadMappings(root_, process->pid);
    Result<std::optional<PythonNames>> found =
        mappings ? PythonNames::Find(root_, process->pid, *mappings)
                 : Result<std::optional<PythonNames>>(mappings.error());
    if (found && *found && host_->SetPython(process->pid, (*found)->KernelLayout())) {
      python = *std::move(found);
      process->python_looks_left = 0;
    }
  }
  const ResidentBytes resident = ReadResidentBytes(root_, process->pid);
  std::lock_guard lock(mutex_);
  process->next_host_look_ns = now + 1000 * kMillisecond;
  if (python) process->stacks.SetPython(std::move(python));
  process->resident_now = resident;
  process->host->PruneRings([&](int descriptor) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(
        root_.Proc(process->pid) / "fd" / std::to_string(descriptor), gone);
    return !gone && target == "anon_inode:[io_uring]";
  });
}

void BpfSource::Impl::OnHostEvent(const tm_host_event& event) {
  WatchedProcess* process = FindReported(event.head);
  if (process && process->host) process->host->Apply(event);
}

void BpfSource::Impl::ApplySeeds() {
  std::lock_guard lock(mutex_);
  for (const auto& [pid, seeds] : seeds_) {
    auto found = processes_.find(pid);
    if (found == processes_.end()) continue;
    for (const BpfSeed& seed : seeds) {
      found->second->calls.Seed(seed.address, seed.bytes, seed.memory_class, NowNs());
    }
  }
  seeds_.clear();
}

void BpfSource::Impl::OnLifecycle(const tm_lifecycle_event& event) {
  using Kind = BpfLifecycleEvent::Kind;
  BpfLifecycleEvent told;
  told.pid = static_cast<pid_t>(event.pid);
  told.parent = static_cast<pid_t>(event.parent);
  told.time_ns = event.time_ns;
  switch (event.kind) {
    case TM_LIFECYCLE_EXEC:
      told.kind = Kind::kExec;
      break;
    case TM_LIFECYCLE_FORK:
      told.kind = Kind::kFork;
      break;
    case TM_LIFECYCLE_EXIT:
      told.kind = Kind::kExit;
      break;
    case TM_LIFECYCLE_OOM_VICTIM:
      told.kind = Kind::kOomVictim;
      break;
    default:
      return;
  }
  if (events_.size() >= kMaxEvents) {
    event_backlog_losses_ += 1;
  } else {
    events_.push_back(told);
  }
  if (told.kind != Kind::kExec) return;
  auto found = processes_.find(told.pid);
  if (found == processes_.end()) return;
  // The links stay: they follow the process and the file, not the program. Should it map another
  // libcuda this time, a look finds that.
  if (found->second->state == BpfAttachState::kAttached) {
    found->second->state = BpfAttachState::kWaiting;
    found->second->next_look_ns = 0;
    found->second->last_vm_pages = 0;
  }
  WatchedProcess* process = found->second.get();
  process->calls.Exec(told.time_ns);
  if (process->host) process->host->Exec(told.time_ns);
  process->stacks.Clear();
  process->python_looks_left = kPythonLooks;
  process->next_host_look_ns = 0;
}

WatchedProcess* BpfSource::Impl::FindReported(const tm_report& head) {
  auto found = processes_.find(static_cast<pid_t>(head.pid));
  if (found == processes_.end() || found->second->generation != head.generation) return nullptr;
  return found->second.get();
}

void BpfSource::Impl::OnCall(const tm_cuda_call& call) {
  if (WatchedProcess* process = FindReported(call.head)) process->calls.Apply(call);
}

void BpfSource::Impl::OnStack(const tm_stack& stack) {
  WatchedProcess* process = FindReported(stack.head);
  if (!process || process->stacks.Contains(stack.id)) return;
  process->stacks.Add(stack);
}

// ---------------------------------------------------------------- the public face

BpfSource::BpfSource(BpfConfig config, ProcRoot root)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(root))) {}
BpfSource::~BpfSource() = default;
Result<void> BpfSource::Start() { return impl_->Start(); }
void BpfSource::Stop() { impl_->Stop(); }
void BpfSource::SetProcess(pid_t pid, BpfWatch watch) { impl_->SetProcess(pid, watch); }
void BpfSource::Seed(pid_t pid, std::vector<BpfSeed> live) { impl_->Seed(pid, std::move(live)); }
std::vector<BpfFamilyState> BpfSource::States() const { return impl_->States(); }
BpfSnapshot BpfSource::Collect() const { return impl_->Collect(); }
std::vector<BpfLifecycleEvent> BpfSource::TakeEvents() { return impl_->TakeEvents(); }

}  // namespace tidemark
