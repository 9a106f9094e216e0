// Puts one NodeSnapshot together: every source's state, merged by process.
//
//   agents (regions) --+
//   scanner, /proc   --+--> one Record a process --> ProcessSnapshot --+
//   NVML sample      --+        (ledger, judge, waterfalls)            +--> NodeSnapshot
//   BPF              --+                                               |
//                          ended processes: their last ProcessSnapshot +
//
// Owned and used by the tick thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/proc_root.h"
#include "daemon/detect/process_judge.h"
#include "daemon/identity/container.h"
#include "daemon/identity/device_map.h"
#include "daemon/identity/launcher.h"
#include "daemon/ledger/process_ledger.h"
#include "daemon/snapshot/node_snapshot.h"
#include "daemon/snapshot/process_waterfalls.h"
#include "daemon/source/agent/agent_source.h"
#include "daemon/source/agent/symbolizer.h"
#include "daemon/source/bpf/bpf_source.h"
#include "daemon/source/nvml/nvml_source.h"
#include "daemon/source/procfs/process_scanner.h"

namespace tidemark {

struct BuilderOptions {
  std::string training_job;  // names every process's job; empty = as its launcher says
  size_t keep_ended = 64;    // processes whose last state is shown
  std::chrono::seconds keep_ended_for{3600};
};

// Everything a tick knows; pointers are valid during the call and may be null where said.
struct TickInput {
  uint64_t unix_ns = 0;
  uint64_t monotonic_ns = 0;
  AgentSource* agents = nullptr;
  const NvmlSample* nvml = nullptr;          // null: none yet
  const procfs::ScanResult* scan = nullptr;  // null: none yet
  const BpfSnapshot* bpf = nullptr;          // null: no probes
  std::vector<FeatureView> sources;          // beside those the builder knows
  std::vector<LossView> losses;
};

class SnapshotBuilder {
 public:
  SnapshotBuilder(BuilderOptions options, ProcRoot root, Symbolizer* symbolizer);
  ~SnapshotBuilder();
  SnapshotBuilder(const SnapshotBuilder&) = delete;
  SnapshotBuilder& operator=(const SnapshotBuilder&) = delete;

  // Right after the agents' refresh and before the device is asked for its figures.
  void Absorb(const TickInput& input);
  // When the device has answered: reads the totals again, so that both are of one moment.
  void AbsorbFigures(const TickInput& input);
  // The snapshot of everything absorbed.
  std::shared_ptr<NodeSnapshot> Build(const TickInput& input);

  // Processes that ended and whose last state has been absorbed; the caller lets go of them.
  std::vector<pid_t> TakeEnded();

  // Processes that use CUDA, for the probes to watch; true where no agent counts driver calls, so
  // that the probes must keep the ledger.
  std::map<pid_t, bool> CudaProcesses() const;
  // What an agent knew as live when CUPTI was taken from it, once for each process whose probes
  // have begun to count since.
  std::map<pid_t, std::vector<BpfSeed>> TakeSeeds(AgentSource* agents, const BpfSnapshot& bpf);

  // How a process that ended came to its end, told by a source that knows better ("killed by the
  // OOM killer").
  void NoteEnd(pid_t pid, Liveness liveness, std::string reason);

  // Live blocks of a site of a process with a region.
  Result<std::vector<wire::LiveRow>> Holders(AgentSource* agents, pid_t pid, uint64_t site_id);

 private:
  struct Record;

  Record& RecordOf(pid_t pid, uint64_t start_time_ticks, const TickInput& input);
  void Identify(Record* record, const Variables& variables, const TickInput& input);
  void AbsorbAgent(ObservedProcess* process, const TickInput& input);
  void AbsorbUnobserved(const TickInput& input);
  void ReadHost(Record* record, const TickInput& input);
  void AbsorbProbes(const TickInput& input);
  void CompareWitnesses(Record* record, const BpfProcess& probes, const TickInput& input);
  void Judge(Record* record, const ObservedProcess* process, const TickInput& input);
  void JudgeJobs(NodeSnapshot* snapshot);
  ProcessSnapshot Describe(Record* record, const ObservedProcess* process, const TickInput& input);

  const BuilderOptions options_;
  const ProcRoot root_;
  Symbolizer* const symbolizer_;
  std::string node_;
  std::string boot_id_;
  uint64_t sequence_ = 0;
  std::vector<std::string> uuids_;
  std::map<std::string, PodName> pods_;
  uint64_t pods_read_ns_ = 0;
  std::map<std::pair<pid_t, uint64_t>, std::unique_ptr<Record>> records_;
  struct Ended {
    uint64_t monotonic_ns;
    ProcessSnapshot last;
  };
  std::deque<Ended> ended_;
  std::vector<pid_t> let_go_;
  uint64_t scan_seen_ = 0;
};

}  // namespace tidemark
