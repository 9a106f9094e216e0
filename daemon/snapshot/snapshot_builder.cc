#include "daemon/snapshot/snapshot_builder.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "daemon/detect/job_judge.h"
#include "daemon/ledger/agent_variables.h"
#include "daemon/ledger/probe_ledger.h"
#include "daemon/ledger/witness_check.h"
#include "daemon/source/procfs/node_memory.h"
#include "daemon/source/procfs/process_files.h"

namespace tidemark {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kCgroupEveryNs = 5 * kSecond;
constexpr uint64_t kPodsEveryNs = 30 * kSecond;
constexpr size_t kEventsOfEnded = 64;

uint64_t CpuNs(const rusage& usage) {
  auto ns = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * kSecond +
           static_cast<uint64_t>(time.tv_usec) * 1000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

std::string CgroupPathOf(const std::vector<std::pair<std::string, std::string>>& cgroups) {
  std::string longest;
  for (const auto& [controllers, path] : cgroups) {
    if (path.size() > longest.size()) longest = path;
  }
  return longest;
}

void DropDriverTotals(std::vector<ClassTotal>* totals) {
  std::erase_if(*totals, [](const ClassTotal& total) { return total.witness == Witness::kCupti; });
}

bool HoldsCupti(const RegionCopy& region) {
  for (const wire::FeatureRow& row : region.features) {
    if (row.seq != 0 && row.feature == static_cast<uint8_t>(wire::Feature::kCuptiCallbacks)) {
      return row.state == static_cast<uint8_t>(wire::FeatureState::kOn);
    }
  }
  return false;
}

std::string WhyNotObserved(const RegionCopy& region, const ObservedProcess& process) {
  if (process.broken) return "its region stopped being valid: the last good state is shown";
  if (region.header.state == static_cast<uint32_t>(wire::AgentState::kDetached)) {
    return "detached: `tidemark detach` or TIDEMARK=off";
  }
  return {};
}

}  // namespace

struct SnapshotBuilder::Record {
  Record(ProcessKey k, Symbolizer* symbolizer)
      : key(std::move(k)),
        ledger(key.pid, symbolizer),
        probes(key.pid, symbolizer),
        waterfalls(key.pid) {}

  // Whether the driver's memory is counted by the probes alone.
  bool ProbesCount() const { return uses_cuda && !cupti_counts; }

  ProcessKey key;
  ProcessLedger ledger;
  ProbeLedger probes;
  WitnessCheck witnesses;  // the agent's counts beside the probes'
  bool uses_cuda = false;
  bool cupti_counts = false;  // an agent holds CUPTI and books driver calls
  bool seeded = false;        // the probes' ledger began with what the agent knew
  detect::ProcessJudge judge;
  Identity identity;
  bool identified = false;
  Variables variables;
  DeviceMap devices;
  uint64_t generation = 0;
  uint64_t first_seen_unix_ns = 0;
  uint64_t last_update_unix_ns = 0;
  HostMemory host;
  std::vector<std::pair<std::string, std::string>> cgroups;
  uint64_t cgroup_read_ns = 0;
  ProcessWaterfalls waterfalls;
  std::vector<detect::Verdict> verdicts;
  std::vector<detect::SeriesPoint> series;
  std::vector<detect::LimitPoint> limits;
  bool past_load = false;
  bool observed = false;
  std::string not_observed_reason;
  Liveness liveness = Liveness::kAlive;
  std::string exit_reason;
  std::optional<std::pair<Liveness, std::string>> told_end;  // by a source that knows better
  bool seen = false;                                         // in this tick
};

SnapshotBuilder::SnapshotBuilder(BuilderOptions options, ProcRoot root, Symbolizer* symbolizer)
    : options_(std::move(options)), root_(std::move(root)), symbolizer_(symbolizer) {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) == 0) node_ = name;
  boot_id_ = procfs::ReadLine(root_.Proc() / "sys/kernel/random/boot_id").value_or("");
}

SnapshotBuilder::~SnapshotBuilder() = default;

SnapshotBuilder::Record& SnapshotBuilder::RecordOf(pid_t pid, uint64_t start_time_ticks,
                                                   const TickInput& input) {
  std::unique_ptr<Record>& record = records_[{pid, start_time_ticks}];
  if (record == nullptr) {
    record = std::make_unique<Record>(ProcessKey{boot_id_, pid, start_time_ticks}, symbolizer_);
    record->first_seen_unix_ns = input.unix_ns;
  }
  record->seen = true;
  return *record;
}

void SnapshotBuilder::Identify(Record* record, const Variables& variables, const TickInput& input) {
  record->variables = variables;
  record->cgroups = procfs::ReadCgroups(root_, record->key.pid);
  const std::string cgroup = CgroupPathOf(record->cgroups);
  Identity& identity = record->identity;
  identity.container = ContainerIdOf(cgroup);
  if (!identity.container.empty()) {
    if (pods_read_ns_ == 0 || input.monotonic_ns - pods_read_ns_ > kPodsEveryNs) {
      pods_ = ReadPodNames(root_.Proc().parent_path() / "var/log/containers");
      pods_read_ns_ = input.monotonic_ns;
    }
    const auto pod = pods_.find(identity.container);
    if (pod != pods_.end()) {
      identity.workload_namespace = pod->second.workload_namespace;
      identity.workload_pod = pod->second.pod;
      identity.workload_container = pod->second.container;
    }
  }
  const Launch launch = IdentifyLaunch(variables);
  identity.launcher = launch.launcher;
  identity.rank = launch.rank;
  identity.local_rank = launch.local_rank;
  identity.world_size = launch.world_size;
  identity.local_world_size = launch.local_world_size;
  identity.attempt = launch.attempt;
  const JobName job =
      NameJob(variables, options_.training_job, OwnerOfPod(identity.workload_pod), cgroup);
  identity.training_job = job.name;
  identity.job_source = job.source;
  const auto run = variables.find("TIDEMARK_RUN");
  identity.run = run == variables.end() ? std::string() : run->second.substr(0, 256);
  if (const auto stat = procfs::ReadStat(root_, record->key.pid)) identity.command = stat->comm;
  record->identified = true;
}

void SnapshotBuilder::ReadHost(Record* record, const TickInput& input) {
  const std::optional<procfs::Status> status = procfs::ReadStatus(root_, record->key.pid);
  // A zombie has no memory any more: what it had last is the better answer.
  if (!status || status->vm_rss_bytes < 0) return;
  HostMemory& host = record->host;
  auto or_zero = [](int64_t bytes) { return std::max<int64_t>(0, bytes); };
  host.known = true;
  host.rss_bytes = status->vm_rss_bytes;
  host.anon_bytes = or_zero(status->rss_anon_bytes);
  host.file_bytes = or_zero(status->rss_file_bytes);
  host.shmem_bytes = or_zero(status->rss_shmem_bytes);
  host.swap_bytes = or_zero(status->vm_swap_bytes);
  host.locked_bytes = or_zero(status->vm_locked_bytes);
  host.pinned_vm_bytes = or_zero(status->vm_pinned_bytes);
  host.peak_rss_bytes = or_zero(status->vm_hwm_bytes);
  record->identity.uid = status->uid;
  if (record->cgroup_read_ns == 0 || input.monotonic_ns - record->cgroup_read_ns > kCgroupEveryNs) {
    record->cgroup_read_ns = input.monotonic_ns;
    const procfs::CgroupMemory cgroup = procfs::ReadCgroupMemory(root_, record->cgroups);
    host.cgroup_current_bytes = cgroup.current_bytes;
    host.cgroup_limit_bytes = cgroup.limit_bytes;
  }
}

void SnapshotBuilder::AbsorbAgent(ObservedProcess* process, const TickInput& input) {
  Record& record = RecordOf(process->pid, process->start_time_ticks, input);
  const RegionCopy& region = process->copy();
  const bool new_agent = record.generation != process->generation;
  if (new_agent) {
    record.generation = process->generation;
    record.identity.uid = process->uid;
    Identify(&record, VariablesOf(region), input);
    record.waterfalls.Reset();
  }
  if (process->liveness == Liveness::kAlive) {
    record.devices = DeviceMap(record.variables, uuids_, DevicesHeldBy(process->pid, input.nvml));
    ReadHost(&record, input);
  }
  record.ledger.Update(region, process->changes, record.devices, new_agent);
  record.last_update_unix_ns = input.unix_ns;
  record.uses_cuda = true;
  record.cupti_counts = HoldsCupti(region);
  if (record.cupti_counts) record.seeded = false;
  record.past_load = region.header.load_ended != 0;
  record.not_observed_reason = WhyNotObserved(region, *process);
  record.observed = record.not_observed_reason.empty();
  if (record.liveness == Liveness::kAlive && process->liveness != Liveness::kAlive) {
    record.liveness = record.told_end ? record.told_end->first : process->liveness;
    record.exit_reason = record.told_end ? record.told_end->second : process->exit_reason;
  }
}

void SnapshotBuilder::AbsorbUnobserved(const TickInput& input) {
  if (input.scan == nullptr) return;
  // Ranks and contexts that have no agent: a row each that says why. A process that only inherited
  // its rank from one above it (a worker, a shell) is that one's helper, or its wrapper.
  std::map<pid_t, const procfs::FoundProcess*> found;
  for (const procfs::FoundProcess& process : input.scan->processes) found[process.pid] = &process;
  const auto& agents = input.agents->processes();
  auto speaks = [&](pid_t pid) {
    const auto it = found.find(pid);
    return agents.contains(pid) || (it != found.end() && it->second->maps_cuda);
  };
  std::set<pid_t> wrappers;
  for (const auto& [pid, process] : found) {
    if (!speaks(pid)) continue;
    for (auto up = input.scan->parents.find(pid); up != input.scan->parents.end() && up->second > 1;
         up = input.scan->parents.find(up->second)) {
      if (!speaks(up->second)) wrappers.insert(up->second);
    }
  }
  // A walk is some seconds old and may still show a process that has ended since.
  auto has_ended = [&](const procfs::FoundProcess& process) {
    return std::any_of(ended_.begin(), ended_.end(), [&](const Ended& ended) {
      return ended.last.key.pid == process.pid &&
             ended.last.key.start_time_ticks == process.start_time_ticks;
    });
  };
  for (const auto& [pid, process] : found) {
    if (agents.contains(pid) || wrappers.contains(pid) || has_ended(*process)) continue;
    const Launch launch = IdentifyLaunch(process->variables);
    if (!process->maps_cuda && launch.rank < 0) continue;
    Record& record = RecordOf(pid, process->start_time_ticks, input);
    if (!record.identified || record.variables != process->variables) {
      Identify(&record, process->variables, input);
    }
    record.identity.command = process->comm;
    record.identity.uid = process->uid;
    record.uses_cuda = process->maps_cuda;
    record.observed = false;
    record.not_observed_reason =
        process->maps_cuda
            ? "uses CUDA, but no agent: start it with `tidemark run` or CUDA_INJECTION64_PATH"
            : "has a rank but has not loaded CUDA";
    ReadHost(&record, input);
    record.last_update_unix_ns = input.unix_ns;
  }
  for (const auto& [key, record] : records_) {
    if (!record->seen) continue;
    record->identity.helper_of = 0;
    if (record->identity.rank < 0) continue;
    for (auto up = input.scan->parents.find(key.first);
         up != input.scan->parents.end() && up->second > 1;
         up = input.scan->parents.find(up->second)) {
      for (const auto& [other_key, other] : records_) {
        if (other_key.first == up->second && other->seen &&
            other->identity.rank == record->identity.rank &&
            other->identity.training_job == record->identity.training_job) {
          record->identity.helper_of = other_key.first;
        }
      }
    }
  }
}

void SnapshotBuilder::Absorb(const TickInput& input) {
  if (input.nvml != nullptr) {
    uuids_.clear();
    for (const NvmlDevice& device : input.nvml->devices) uuids_.push_back(device.view.uuid);
  }
  for (auto& [key, record] : records_) record->seen = false;
  for (auto& [pid, process] : input.agents->processes()) AbsorbAgent(&process, input);
  AbsorbUnobserved(input);
}

void SnapshotBuilder::AbsorbFigures(const TickInput& input) {
  for (auto& [pid, process] : input.agents->processes()) {
    const auto it = records_.find({pid, process.start_time_ticks});
    if (it == records_.end()) continue;
    Record& record = *it->second;
    ProcessWaterfalls::Witnesses witnesses;
    witnesses.before = ProcessLedger::Totals(process.copy(), record.devices);
    witnesses.accounts = record.ledger.OwnAccounts();
    witnesses.unix_ns = input.unix_ns;
    if (process.liveness != Liveness::kAlive) {
      witnesses.totals = witnesses.before;
      record.waterfalls.DescribeEnded(witnesses, record.ledger.events());
      continue;
    }
    if (process.region == nullptr || process.broken) continue;
    process.region->RefreshTotals();
    witnesses.totals = ProcessLedger::Totals(process.copy(), record.devices);
    witnesses.observer_device_bytes =
        static_cast<int64_t>(process.copy().header.observer_device_bytes);
    record.waterfalls.Update(input.nvml, witnesses, record.ledger.events());
  }
}

void SnapshotBuilder::Judge(Record* record, const ObservedProcess* process,
                            const TickInput& input) {
  detect::ProcessTick tick;
  tick.now_ns = static_cast<int64_t>(input.monotonic_ns);
  if (record->identity.rank >= 0) tick.rank = record->identity.rank;
  std::vector<detect::SeriesPoint>& series = record->series;
  series.clear();
  std::vector<detect::LimitPoint>& limits = record->limits;
  // A process that is gone, or going, holds no device any more: what it would have met stays as it
  // was.
  const bool alive = record->liveness == Liveness::kAlive;
  auto limit = [&](detect::LimitPoint point) {
    const auto same = std::find_if(limits.begin(), limits.end(),
                                   [&](const auto& known) { return known.name == point.name; });
    if (same != limits.end()) {
      *same = std::move(point);
    } else {
      limits.push_back(std::move(point));
    }
  };
  auto add = [&](MemoryClass memory_class, int device, int64_t bytes) {
    const detect::SeriesId id{memory_class, device};
    const auto same = std::find_if(series.begin(), series.end(),
                                   [&](const auto& point) { return point.id == id; });
    if (same != series.end()) {
      same->floor_bytes += bytes;
    } else {
      series.push_back({id, bytes, 0});
    }
  };
  if (process != nullptr) {
    const wire::Header& header = process->copy().header;
    for (const ClassTotal& total : ProcessLedger::Totals(process->copy(), record->devices)) {
      // Where the probes went on from what the agent knew, its own counts have ended.
      if (record->seeded && total.witness == Witness::kCupti) continue;
      add(total.memory_class, total.device, total.live_bytes);
    }
    for (const Waterfall& fall : record->waterfalls.all()) {
      if (!fall.figure_known) continue;
      for (const WaterfallLine& line : fall.lines) {
        if (line.memory_class == MemoryClass::kUnattributed) {
          add(line.memory_class, fall.device, line.bytes);
        }
      }
    }
    tick.new_steps = record->ledger.new_steps();
    tick.sites = &record->ledger;
    tick.sites_complete = record->ledger.SitesAreComplete(process->copy());
    tick.current_step = header.current_step;
    tick.in_load_phase = header.load_ended == 0;
    int64_t allocated = 0;
    int64_t reserved = 0;
    for (const wire::AllocatorRow& row : process->copy().allocators) {
      allocated += static_cast<int64_t>(row.allocated_bytes);
      reserved += static_cast<int64_t>(row.reserved_bytes);
    }
    if (!process->copy().allocators.empty()) {
      tick.facts.fw_allocated_bytes = allocated;
      tick.facts.fw_reserved_bytes = reserved;
    }
    const ProcessLedger& ledger = record->ledger;
    tick.facts.communicator_events = ledger.EventCount(wire::EventType::kCommunicator);
    tick.facts.module_events = ledger.EventCount(wire::EventType::kModuleLoaded);
    tick.facts.graph_events = ledger.EventCount(wire::EventType::kGraph);
    tick.facts.limit_events = ledger.EventCount(wire::EventType::kLimitRaised);
    tick.facts.allocation_failures = ledger.EventCount(wire::EventType::kAllocationFailed) +
                                     ledger.EventCount(wire::EventType::kOutOfMemory);
  }
  if (record->ProbesCount()) {
    for (const ClassTotal& total : record->probes.totals()) {
      add(total.memory_class, total.device, total.live_bytes);
    }
  }
  if (record->host.known) {
    add(MemoryClass::kAnon, -1, record->host.anon_bytes);
    add(MemoryClass::kShmem, -1, record->host.shmem_bytes);
    add(MemoryClass::kSwap, -1, record->host.swap_bytes);
    tick.facts.rss_bytes = record->host.rss_bytes;
    if (alive && record->host.cgroup_limit_bytes > 0) {
      limit({"cgroup limit", -1, false, record->host.cgroup_limit_bytes,
             record->host.cgroup_current_bytes});
    }
  }
  if (alive && input.nvml != nullptr) {
    for (const int device : DevicesHeldBy(record->key.pid, input.nvml)) {
      const DeviceView& view = input.nvml->devices[static_cast<size_t>(device)].view;
      limit({"device " + std::to_string(device), device, false, view.total_bytes, view.used_bytes});
      ++tick.facts.devices_with_context;
    }
  }
  tick.totals = series;
  tick.limits = limits;
  record->verdicts = record->judge.Judge(tick);
  if (!record->ProbesCount()) return;
  for (detect::Verdict& verdict : record->verdicts) record->probes.Blame(tick.now_ns, &verdict);
}

ProcessSnapshot SnapshotBuilder::Describe(Record* record, const ObservedProcess* process,
                                          const TickInput& input) {
  ProcessSnapshot snapshot;
  snapshot.key = record->key;
  // The dead too, once: their last steps came with the last reading of the region.
  Judge(record, process, input);
  snapshot.identity = record->identity;
  snapshot.liveness = record->liveness;
  snapshot.exit_reason = record->exit_reason;
  snapshot.first_seen_unix_ns = record->first_seen_unix_ns;
  snapshot.last_update_unix_ns = record->last_update_unix_ns;
  snapshot.observed = record->observed;
  snapshot.not_observed_reason = record->not_observed_reason;
  if (process != nullptr) record->ledger.Fill(process->copy(), &snapshot);
  const ProbeLedger& probes = record->probes;
  if (record->ProbesCount()) {
    // The agent's counts of driver memory end where it lost CUPTI; the probes went on from there.
    if (record->seeded) DropDriverTotals(&snapshot.totals);
    snapshot.totals.insert(snapshot.totals.end(), probes.totals().begin(), probes.totals().end());
    if (snapshot.sites->empty()) {
      snapshot.sites = probes.sites();
    } else if (!probes.sites()->empty()) {
      auto sites = std::make_shared<SiteList>(*snapshot.sites);
      sites->insert(sites->end(), probes.sites()->begin(), probes.sites()->end());
      snapshot.sites = std::move(sites);
    }
  }
  if (!probes.state().name.empty()) snapshot.features.push_back(probes.state());
  snapshot.entry_points.insert(snapshot.entry_points.end(), probes.entry_points().begin(),
                               probes.entry_points().end());
  snapshot.witness_differences = record->witnesses.Differences();
  snapshot.losses.insert(snapshot.losses.end(), probes.losses().begin(), probes.losses().end());
  snapshot.waterfalls = record->waterfalls.all();
  snapshot.host = record->host;
  snapshot.verdicts = record->verdicts;
  return snapshot;
}

std::shared_ptr<NodeSnapshot> SnapshotBuilder::Build(const TickInput& input) {
  auto snapshot = std::make_shared<NodeSnapshot>();
  snapshot->sequence = ++sequence_;
  snapshot->unix_ns = input.unix_ns;
  snapshot->monotonic_ns = input.monotonic_ns;
  snapshot->node = node_;
  snapshot->boot_id = boot_id_;
  snapshot->memory = procfs::ReadNodeMemory(root_);
  if (input.nvml != nullptr) {
    for (const NvmlDevice& device : input.nvml->devices) snapshot->devices.push_back(device.view);
    snapshot->sources.push_back(input.nvml->state);
  }
  snapshot->sources.insert(snapshot->sources.end(), input.sources.begin(), input.sources.end());
  snapshot->losses = input.agents->Losses();
  snapshot->losses.insert(snapshot->losses.end(), input.losses.begin(), input.losses.end());

  if (input.bpf != nullptr) {
    for (const BpfFamilyState& family : input.bpf->families) {
      const std::string reason =
          family.hint.empty() ? family.reason : family.reason + " (" + family.hint + ")";
      snapshot->sources.push_back(
          {"bpf_" + family.name, family.attached ? "on" : "unavailable", reason});
    }
    for (const BpfLoss& loss : input.bpf->losses) {
      snapshot->losses.push_back({"bpf_" + std::string(loss.cause), loss.count, 0});
    }
  }
  AbsorbProbes(input);
  let_go_.clear();
  auto& agents = input.agents->processes();
  for (auto it = records_.begin(); it != records_.end();) {
    Record& record = *it->second;
    const auto agent = agents.find(record.key.pid);
    ObservedProcess* process =
        agent != agents.end() && agent->second.start_time_ticks == record.key.start_time_ticks
            ? &agent->second
            : nullptr;
    if (!record.seen) {
      // Without an agent, the end of a process is that the scanner does not find it any more. Of
      // one whose end was told, the last state stays.
      if (record.told_end) {
        std::tie(record.liveness, record.exit_reason) = *record.told_end;
        ended_.push_back({input.monotonic_ns, Describe(&record, nullptr, input)});
      }
      it = records_.erase(it);
      continue;
    }
    ProcessSnapshot described = Describe(&record, process, input);
    if (record.liveness == Liveness::kAlive) {
      snapshot->processes.push_back(std::move(described));
      ++it;
      continue;
    }
    if (described.events.size() > kEventsOfEnded) {
      described.events.erase(described.events.begin(),
                             described.events.end() - static_cast<ptrdiff_t>(kEventsOfEnded));
    }
    let_go_.push_back(record.key.pid);
    ended_.push_back({input.monotonic_ns, std::move(described)});
    it = records_.erase(it);
  }
  const auto keep_ns = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(options_.keep_ended_for).count());
  while (!ended_.empty() && (ended_.size() > options_.keep_ended ||
                             input.monotonic_ns - ended_.front().monotonic_ns > keep_ns)) {
    ended_.pop_front();
  }
  JudgeJobs(snapshot.get());
  for (const Ended& ended : ended_) snapshot->processes.push_back(ended.last);

  rusage usage = {};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    snapshot->daemon_cpu_seconds = static_cast<double>(CpuNs(usage)) / 1e9;
  }
  if (const auto status = procfs::ReadStatus(root_, ::getpid())) {
    snapshot->daemon_rss_bytes = status->vm_rss_bytes;
  }
  return snapshot;
}

std::map<pid_t, bool> SnapshotBuilder::CudaProcesses() const {
  std::map<pid_t, bool> processes;
  for (const auto& [key, record] : records_) {
    if (record->liveness == Liveness::kAlive && record->uses_cuda) {
      processes[key.first] = record->ProbesCount();
    }
  }
  return processes;
}

std::map<pid_t, std::vector<BpfSeed>> SnapshotBuilder::TakeSeeds(AgentSource* agents,
                                                                 const BpfSnapshot& bpf) {
  std::map<pid_t, std::vector<BpfSeed>> seeds;
  for (const BpfProcess& probes : bpf.processes) {
    const auto it = records_.find({probes.pid, probes.start_time_ticks});
    if (it == records_.end() || probes.mode != BpfMode::kLedger ||
        probes.state != BpfAttachState::kAttached) {
      continue;
    }
    Record& record = *it->second;
    const auto process = agents->processes().find(probes.pid);
    if (record.seeded || !record.ProbesCount() || process == agents->processes().end() ||
        process->second.region == nullptr) {
      continue;
    }
    record.seeded = true;
    const RegionCopy& region = process->second.copy();
    for (const wire::LiveRow& row : process->second.region->DriverBlocks()) {
      if (row.site >= region.sites.size()) continue;
      const uint8_t totals_row = region.sites[row.site].totals_row;
      if (totals_row >= region.totals.size()) continue;
      const wire::TotalsRow& totals = region.totals[totals_row];
      const auto words = ClassOf(totals.layer, totals.kind);
      if (words && words->second == Witness::kCupti) {
        seeds[probes.pid].push_back({row.address, row.bytes, words->first});
      }
    }
  }
  return seeds;
}

void SnapshotBuilder::CompareWitnesses(Record* record, const BpfProcess& probes,
                                       const TickInput& input) {
  const auto agent = input.agents->processes().find(record->key.pid);
  if (!record->cupti_counts || probes.mode != BpfMode::kWitness ||
      probes.state != BpfAttachState::kAttached || agent == input.agents->processes().end() ||
      agent->second.broken) {
    record->witnesses.Pause();
    return;
  }
  WitnessCounts by_agent = {};
  WitnessCounts by_probes = {};
  auto compared = [](size_t entry_point) {
    return entry_point < wire::kEntryPointCount &&
           CountedBesideAgent(static_cast<wire::EntryPoint>(entry_point));
  };
  for (const wire::EntryPointRow& row : agent->second.copy().entry_points) {
    if (!compared(row.entry_point)) continue;
    by_agent[row.entry_point] = {row.calls, row.requested_bytes};
  }
  for (const BpfEntryPoint& row : probes.entry_points) {
    const auto entry_point = static_cast<size_t>(row.entry_point);
    if (compared(entry_point)) by_probes[entry_point] = {row.calls, row.requested_bytes};
  }
  record->witnesses.Update(input.monotonic_ns, by_agent, by_probes);
}

void SnapshotBuilder::AbsorbProbes(const TickInput& input) {
  if (input.bpf == nullptr) return;
  for (const BpfProcess& probes : input.bpf->processes) {
    const auto it = records_.find({probes.pid, probes.start_time_ticks});
    if (it == records_.end()) continue;
    const std::vector<int> held = DevicesHeldBy(probes.pid, input.nvml);
    Record& record = *it->second;
    record.probes.Update(probes, record.devices, held.size() == 1 ? held.front() : -1);
    CompareWitnesses(&record, probes, input);
    if (!record.ProbesCount() || probes.mode != BpfMode::kLedger) continue;
    record.probes.KeepGrowth(static_cast<int64_t>(input.monotonic_ns));
    if (probes.state == BpfAttachState::kAttached && !record.observed &&
        !input.agents->processes().contains(probes.pid)) {
      record.observed = true;  // by the probes alone
      record.not_observed_reason.clear();
    }
  }
}

// Compares the ranks of each job that runs here, and tells every rank's verdicts who shares them.
void SnapshotBuilder::JudgeJobs(NodeSnapshot* snapshot) {
  std::map<std::string, std::vector<ProcessSnapshot*>> jobs;
  for (ProcessSnapshot& process : snapshot->processes) {
    const Identity& identity = process.identity;
    if (identity.rank < 0 || identity.helper_of != 0 || !process.observed) continue;
    jobs[identity.training_job].push_back(&process);
  }
  for (const auto& [job, processes] : jobs) {
    if (processes.size() < 2) continue;
    std::vector<detect::RankState> ranks;
    for (const ProcessSnapshot* process : processes) {
      const Record& record = *records_.at({process->key.pid, process->key.start_time_ticks});
      ranks.push_back(
          {process->identity.rank, "", process->verdicts, record.series, record.past_load});
    }
    for (const detect::JobVerdict& found : detect::JudgeJob(ranks)) {
      for (ProcessSnapshot* process : processes) {
        const auto& shared = found.verdict.ranks;
        if (std::find(shared.begin(), shared.end(), process->identity.rank) == shared.end()) {
          continue;
        }
        const bool grows = found.verdict.state == detect::VerdictState::kSuspect ||
                           found.verdict.state == detect::VerdictState::kConfirmed;
        if (!grows) {
          process->verdicts.push_back(found.verdict);
          continue;
        }
        for (detect::Verdict& verdict : process->verdicts) {
          if (verdict.memory_class != found.verdict.memory_class ||
              verdict.cause != found.verdict.cause) {
            continue;
          }
          verdict.ranks = shared;
          if (!found.verdict.evidence.empty()) {
            verdict.evidence.push_back(found.verdict.evidence.back());
          }
        }
      }
    }
  }
}

std::vector<pid_t> SnapshotBuilder::TakeEnded() { return std::exchange(let_go_, {}); }

void SnapshotBuilder::NoteEnd(pid_t pid, Liveness liveness, std::string reason) {
  for (auto& [key, record] : records_) {
    if (key.first == pid) record->told_end = {liveness, reason};
  }
  // The news may come after the end itself was seen.
  for (auto ended = ended_.rbegin(); ended != ended_.rend(); ++ended) {
    if (ended->last.key.pid != pid) continue;
    ended->last.liveness = liveness;
    ended->last.exit_reason = reason;
    return;
  }
}

Result<std::vector<wire::LiveRow>> SnapshotBuilder::Holders(AgentSource* agents, pid_t pid,
                                                            uint64_t site_id) {
  const std::string tried = "list the live blocks of pid " + std::to_string(pid);
  const auto process = agents->processes().find(pid);
  if (process == agents->processes().end() || process->second.region == nullptr) {
    return Error{tried, "it has no agent here", "tidemark ps shows which processes have one"};
  }
  const auto record = records_.find({pid, process->second.start_time_ticks});
  std::vector<uint32_t> rows;
  if (record != records_.end()) rows = record->second->ledger.RowsOfSite(site_id);
  if (rows.empty()) {
    return Error{tried, "it has no such site", "tidemark sites lists the sites with their ids"};
  }
  return process->second.region->LiveBlocks(rows, 65536);
}

}  // namespace tidemark
