#include "daemon/source/procfs/process_scanner.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "daemon/source/procfs/process_files.h"
#include "wire/identity_variables.h"

namespace tidemark::procfs {
namespace {

constexpr std::chrono::seconds kBetweenScans{2};
constexpr int kRestPerWork =
    100;                    // thousands of processes: walk less often, stay below 1 % of a core
constexpr int kLooks = 60;  // two minutes

bool NamesARank(const FoundProcess& process) {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID",
                           "JAX_PROCESS_ID"}) {
    if (process.variables.contains(name)) return true;
  }
  return false;
}

}  // namespace

ProcessScanner::ProcessScanner(ProcRoot root, std::optional<uid_t> only_uid)
    : root_(std::move(root)), only_uid_(only_uid) {}

ProcessScanner::~ProcessScanner() { Stop(); }

void ProcessScanner::Start() {
  thread_ = std::thread([this] { Run(); });
}

void ProcessScanner::Stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::shared_ptr<const ScanResult> ProcessScanner::Latest() const {
  std::lock_guard lock(mutex_);
  return latest_;
}

void ProcessScanner::Run() {
  ::pthread_setname_np(::pthread_self(), "tidemark-scan");
  ::setpriority(PRIO_PROCESS, 0, 10);  // of this thread alone, on Linux
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const auto begin = std::chrono::steady_clock::now();
    std::shared_ptr<const ScanResult> result = Scan();
    const auto rest = (std::chrono::steady_clock::now() - begin) * kRestPerWork;
    lock.lock();
    latest_ = std::move(result);
    wake_.wait_for(lock, std::max<std::chrono::nanoseconds>(kBetweenScans, rest),
                   [&] { return stopping_; });
  }
}

void ProcessScanner::Look(pid_t pid, Known* known) const {
  FoundProcess process = known->found.value_or(FoundProcess{});
  process.pid = pid;
  process.start_time_ticks = known->start_time_ticks;
  process.variables = ReadEnvironment(root_, pid, wire::kIdentityVariables);
  process.maps_cuda = MapsLibrary(root_, pid, "libcuda.so");
  if (!process.maps_cuda && !NamesARank(process) && !process.variables.contains("TIDEMARK_RUN")) {
    return;
  }
  const std::optional<Status> status = ReadStatus(root_, pid);
  if (!status) return;
  process.uid = status->uid;
  known->found = std::move(process);
}

std::shared_ptr<const ScanResult> ProcessScanner::Scan() {
  auto result = std::make_shared<ScanResult>();
  result->sequence = ++sequence_;
  std::map<pid_t, Known> still_there;
  for (const pid_t pid : ListPids(root_)) {
    const std::optional<Stat> stat = ReadStat(root_, pid);
    if (!stat || stat->state == 'Z' || stat->state == 'X') continue;
    result->parents[pid] = stat->parent;
    const auto before = known_.find(pid);
    Known known;
    if (before != known_.end() && before->second.start_time_ticks == stat->start_time_ticks) {
      known = std::move(before->second);
    } else {
      known = {stat->start_time_ticks, kLooks, std::nullopt};
      if (only_uid_) {
        const std::optional<Status> status = ReadStatus(root_, pid);
        if (!status || status->uid != *only_uid_) known.looks_left = 0;
      }
    }
    if (known.looks_left > 0 && !(known.found && known.found->maps_cuda)) {
      --known.looks_left;
      Look(pid, &known);
    }
    if (known.found) {
      known.found->parent = stat->parent;
      known.found->comm = stat->comm;
      result->processes.push_back(*known.found);
    }
    still_there.emplace(pid, std::move(known));
  }
  known_ = std::move(still_there);
  return result;
}

}  // namespace tidemark::procfs
