// Finds the processes that deserve a row although no agent speaks for them: those that map the CUDA
// driver, or that a launcher gave a rank. So that "not observed" can say why.
//
// Walking /proc costs time: a thread of its own does it, every two seconds, and looks closely only
// at processes that it has not made up its mind about. Start and Stop belong to one thread; Latest
// may be called from any.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/proc_root.h"

namespace tidemark::procfs {

struct FoundProcess {
  pid_t pid = 0;
  uint64_t start_time_ticks = 0;
  pid_t parent = 0;
  uid_t uid = 0;
  std::string comm;
  std::map<std::string, std::string, std::less<>> variables;  // wire::kIdentityVariables
  bool maps_cuda = false;
};

struct ScanResult {
  uint64_t sequence = 0;
  std::vector<FoundProcess> processes;  // ascending by pid
  std::map<pid_t, pid_t> parents;       // of every process: who descends from whom
};

class ProcessScanner {
 public:
  // `only_uid`: a private daemon looks at its own user's processes only.
  ProcessScanner(ProcRoot root, std::optional<uid_t> only_uid);
  ~ProcessScanner();
  ProcessScanner(const ProcessScanner&) = delete;
  ProcessScanner& operator=(const ProcessScanner&) = delete;

  void Start();
  void Stop();
  // The result of the last finished walk; null before the first.
  std::shared_ptr<const ScanResult> Latest() const;

  // One walk, now. For the thread, and for tests that do without it.
  std::shared_ptr<const ScanResult> Scan();

 private:
  struct Known {
    uint64_t start_time_ticks = 0;
    int looks_left = 0;  // a process may load the driver some time after its start
    std::optional<FoundProcess> found;
  };

  void Run();
  void Look(pid_t pid, Known* known) const;

  const ProcRoot root_;
  const std::optional<uid_t> only_uid_;
  std::map<pid_t, Known> known_;
  uint64_t sequence_ = 0;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::shared_ptr<const ScanResult> latest_;
};

}  // namespace tidemark::procfs
