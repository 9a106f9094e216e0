// Tidemark's node daemon: owns every source, the tick and the server.
//
//   main thread:  epoll { signals, timer, agents, NVML's answer, requests from the server }
//     timer   -> agents refresh, ask NVML
//     answer  -> waterfalls, build the snapshot, publish   (or after kFigurePatience without one)
//   other threads: NVML, names, scan, BPF, store, server; they meet the tick by snapshots, queues
//   and this class's mailbox only.
//
// Run belongs to the main thread. Control's methods are called from server threads: each puts a
// task in the mailbox and waits for the tick thread to have done it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/proc_root.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/config/config.h"
#include "daemon/serve/alert/alertmanager_push.h"
#include "daemon/serve/control.h"
#include "daemon/serve/server.h"
#include "daemon/snapshot/snapshot_builder.h"
#include "daemon/snapshot/snapshot_hub.h"
#include "daemon/source/agent/agent_source.h"
#include "daemon/source/agent/symbolizer.h"
#include "daemon/source/bpf/bpf_source.h"
#include "daemon/source/nvml/nvml_source.h"
#include "daemon/source/procfs/process_scanner.h"
#include "daemon/store/history.h"
#include "daemon/store/history_reader.h"
#include "daemon/store/post_mortems.h"
#include "daemon/store/region_store.h"

namespace tidemark {

struct DaemonOptions {
  bool private_mode = false;               // one user's own, for `tidemark run`
  std::chrono::seconds exit_when_idle{0};  // 0 = never
  int ready_fd = -1;                       // told once everything is served, then closed
};

class Daemon : public serve::Control {
 public:
  Daemon(Config config, DaemonOptions options, ProcRoot root);
  ~Daemon() override;

  // Opens everything and runs until SIGTERM or SIGINT, or until it has been idle for long enough.
  // The signals must be blocked in every thread already. Fails when a socket or port cannot be had.
  Result<void> Run();

  Result<void> Detach(pid_t pid) override;
  Result<std::vector<serve::HeldBlock>> Holders(pid_t pid, uint64_t site_id) override;
  Result<void> ReleaseGpu(bool resume) override;

 private:
  Result<void> Open();
  void Loop();
  void Close();

  void Tick();
  void Publish();
  TickInput Input() const;
  void WatchByBpf();
  void KeepEnded();
  void TellHistory(TickInput* input) const;
  Result<void> OpenAlerts();
  void TellAlerts(TickInput* input) const;
  void TellPostMortems(TickInput* input) const;
  void OpenPostMortems();
  bool Idle();
  void TellReady();
  void RunMail();
  // Runs `task` on the tick thread and waits for it; false when the daemon is stopping or the tick
  // is too busy.
  bool OnTickThread(std::function<void()> task);

  const Config config_;
  const DaemonOptions options_;
  const ProcRoot root_;
  SnapshotHub hub_;
  Symbolizer symbolizer_;
  AgentSource agents_;
  std::unique_ptr<NvmlSource> nvml_;
  procfs::ProcessScanner scanner_;
  std::unique_ptr<BpfSource> bpf_;
  RegionStore regions_;
  std::unique_ptr<History> history_;               // null: none is kept
  std::unique_ptr<HistoryReader> history_reader_;  // null with it
  std::unique_ptr<PostMortems> post_mortems_;
  SnapshotBuilder builder_;
  std::unique_ptr<serve::Server> server_;
  serve::AlertBoard alert_board_;
  std::unique_ptr<serve::AlertmanagerPush> alertmanager_;  // null: Prometheus has the alerts

  UniqueFd epoll_;
  UniqueFd signals_;
  UniqueFd timer_;
  UniqueFd mail_event_;
  std::mutex mail_mutex_;
  std::deque<std::function<void()>> mail_;
  bool closed_ = false;  // under mail_mutex_: no more mail is taken

  bool stopping_ = false;
  bool awaiting_figures_ = false;
  std::chrono::steady_clock::time_point tick_began_;
  std::chrono::nanoseconds tick_cost_{0};
  std::chrono::steady_clock::time_point busy_last_;
  std::map<pid_t, BpfWatch> watched_;
  bool store_works_ = false;
};

}  // namespace tidemark
