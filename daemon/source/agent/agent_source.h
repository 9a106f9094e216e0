// The processes that have an agent: takes their regions over the agent socket, reads them, and
// notices when they end.
//
//   connection --Hello, memfd--> checks --> ObservedProcess --EOF, pidfd--> dead, last state kept
//        \--> refused with a reason, counted by cause
//
// Owned and used by one thread (the tick thread). Nothing here waits for a peer: sockets are
// non-blocking, and a peer that says nothing in time is dropped. The peer is hostile: who it is
// comes from the kernel (SO_PEERCRED), what it sends is checked, what it may cost is bounded by
// limits per uid.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/proc_root.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/snapshot/node_snapshot.h"
#include "daemon/source/agent/region_reader.h"
#include "wire/handshake.h"

namespace tidemark {

struct AgentSourceOptions {
  std::string socket_path = wire::kAgentSocketPath;
  size_t max_agents_per_uid = 256;
  size_t max_agents = 1024;
  std::chrono::milliseconds handshake_timeout{2000};
  // What agents are told (wire::Reply); zeros and an empty name leave their own settings.
  uint32_t backward_per_step = 0;
  uint32_t taps = 0;
  uint64_t sampling_interval_bytes = 0;
  std::string step_range = {};
};

// A process that showed a valid region. Key: pid and start time; a new agent in the same process
// (after exec) takes the place of the old one.
struct ObservedProcess {
  pid_t pid = 0;
  uint64_t start_time_ticks = 0;
  uid_t uid = 0;
  std::unique_ptr<RegionReader> region;  // null once let go; `last` then holds what was in it
  RegionChanges changes;                 // of the last refresh
  uint64_t generation = 0;               // grows when a new agent takes the place of an old one
  bool connected = false;
  bool broken = false;  // the region stopped being valid: its last good state is shown
  Liveness liveness = Liveness::kAlive;
  std::string exit_reason;
  uint64_t died_monotonic_ns = 0;
  std::unique_ptr<RegionCopy> last;

  const RegionCopy& copy() const { return region ? region->copy() : *last; }
};

class AgentSource {
 public:
  AgentSource(AgentSourceOptions options, ProcRoot root);
  ~AgentSource();
  AgentSource(const AgentSource&) = delete;
  AgentSource& operator=(const AgentSource&) = delete;

  // Binds the socket (mode 0666) in a directory that exists. Fails when another daemon listens
  // there; a socket that nobody listens on any more is replaced.
  Result<void> Start();

  // Readable when Pump has something to do.
  int epoll_fd() const { return epoll_.get(); }
  // Handles what is ready, without waiting.
  void Pump();

  // Reads every region. Processes that ended since the last call are read a last time and marked.
  // Regions that would make the call longer than `budget` have their turn at the next one.
  void Refresh(std::chrono::milliseconds budget = std::chrono::milliseconds(200));

  std::map<pid_t, ObservedProcess>& processes() { return processes_; }
  // Whether a process with an agent ended since the last call.
  bool TakeDeaths() { return std::exchange(deaths_, false); }

  // Gives the region away; null when there is none. What was read of it stays as `last`.
  std::unique_ptr<RegionReader> TakeRegion(pid_t pid);
  void Forget(pid_t pid);

  // Sends a command to the agent of `pid`.
  Result<void> Command(pid_t pid, wire::CommandOp op, uint64_t argument);

  // Refusals and other losses so far, by cause.
  std::vector<LossView> Losses() const;
  size_t connections() const { return connections_.size(); }

 private:
  struct Connection {
    UniqueFd fd;
    pid_t pid = 0;
    uid_t uid = 0;
    bool greeted = false;
    std::chrono::steady_clock::time_point deadline;
  };

  void Accept();
  void Receive(uint64_t id);
  void Admit(Connection& connection, uint64_t id, const wire::Hello& hello, UniqueFd memfd);
  void Refuse(uint64_t id, wire::ReplyCode code, const std::string& cause, const std::string& why);
  void Close(uint64_t id);
  void DropSilent();
  void NoteExit(pid_t pid);
  bool Watch(int fd, uint64_t tag);
  void SetListening(bool on);
  void Reply(const Connection& connection, wire::ReplyCode code) const;
  void Count(const std::string& cause, uint64_t count = 1) { losses_[cause] += count; }

  const AgentSourceOptions options_;
  const ProcRoot root_;
  UniqueFd epoll_;
  UniqueFd listener_;
  uint64_t socket_inode_ = 0;
  bool listening_ = false;
  int accepts_left_ = 0;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Connection> connections_;
  std::map<pid_t, uint64_t> connection_of_;  // greeted ones
  std::map<pid_t, UniqueFd> pidfds_;
  std::map<uid_t, size_t> per_uid_;
  std::map<pid_t, ObservedProcess> processes_;
  std::map<std::string, uint64_t> losses_;
  pid_t refresh_from_ = 0;
  bool deaths_ = false;
};

}  // namespace tidemark
