#include "daemon/source/agent/agent_source.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "daemon/source/agent/process_exit.h"
#include "daemon/source/procfs/process_files.h"

namespace tidemark {
namespace {

using std::chrono::steady_clock;
using wire::ReplyCode;

// What an epoll event is about: its kind in the low bits, a connection id or pid above.
enum Tag : uint64_t { kTagListener = 0, kTagConnection = 1, kTagPidfd = 2 };
constexpr uint64_t MakeTag(Tag kind, uint64_t id) { return id << 2 | kind; }

constexpr int kAcceptsARefresh = 1024;  // a flood of connections waits for the next tick
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

uint64_t MonotonicNs() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(now.tv_nsec);
}

Error SystemError(std::string tried, std::string hint = "") {
  return Error{std::move(tried), std::strerror(errno), std::move(hint)};
}

bool HasProcessEnded(int pidfd) {
  // A pidfd becomes readable when the last thread is gone.
  pollfd state = {pidfd, POLLIN, 0};
  return ::poll(&state, 1, 0) == 1;
}

}  // namespace

AgentSource::AgentSource(AgentSourceOptions options, ProcRoot root)
    : options_(std::move(options)), root_(std::move(root)) {}

AgentSource::~AgentSource() {
  struct stat status = {};
  // Another daemon may have put its own socket there since.
  if (listener_.valid() && ::stat(options_.socket_path.c_str(), &status) == 0 &&
      status.st_ino == socket_inode_) {
    ::unlink(options_.socket_path.c_str());
  }
}

Result<void> AgentSource::Start() {
  const std::string tried = "listen for agents on " + options_.socket_path;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (options_.socket_path.size() >= sizeof(address.sun_path)) {
    return Error{tried, "the path is longer than a unix socket's may be", "use a shorter path"};
  }
  std::memcpy(address.sun_path, options_.socket_path.c_str(), options_.socket_path.size() + 1);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);

  epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!epoll_.valid() || !listener.valid()) return SystemError(tried);
  if (::bind(listener.get(), generic, sizeof(address)) != 0) {
    if (errno != EADDRINUSE) return SystemError(tried, "the directory must exist and be writable");
    const UniqueFd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(probe.get(), generic, sizeof(address)) == 0 || errno == EAGAIN) {
      return Error{tried, "another daemon listens there",
                   "stop it, or give this one another --agent-socket"};
    }
    ::unlink(options_.socket_path.c_str());
    if (::bind(listener.get(), generic, sizeof(address)) != 0) return SystemError(tried);
  }
  struct stat status = {};
  if (::chmod(options_.socket_path.c_str(), 0666) != 0 ||
      ::stat(options_.socket_path.c_str(), &status) != 0 || ::listen(listener.get(), 512) != 0) {
    return SystemError(tried);
  }
  socket_inode_ = status.st_ino;
  listener_ = std::move(listener);
  accepts_left_ = kAcceptsARefresh;
  SetListening(true);
  return {};
}

bool AgentSource::Watch(int fd, uint64_t tag) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = tag;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void AgentSource::SetListening(bool on) {
  if (on == listening_) return;
  if (on) {
    Watch(listener_.get(), MakeTag(kTagListener, 0));
  } else {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
  }
  listening_ = on;
}

void AgentSource::Pump() {
  std::array<epoll_event, 64> events;
  // One round: what becomes ready meanwhile wakes the caller again.
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = events[static_cast<size_t>(i)].data.u64;
    switch (static_cast<Tag>(tag & 3)) {
      case kTagListener:
        Accept();
        break;
      case kTagConnection:
        Receive(tag >> 2);
        break;
      case kTagPidfd:
        NoteExit(static_cast<pid_t>(tag >> 2));
        break;
    }
  }
}

void AgentSource::Accept() {
  for (int i = 0; i < 64; ++i) {
    if (accepts_left_ == 0) {
      Count("agent_flood");
      SetListening(false);
      return;
    }
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      if (errno == EAGAIN) return;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // Out of descriptors or memory: the listener stays readable, so look away until later.
      Count("agent_accept_failed");
      accepts_left_ = 0;
      SetListening(false);
      return;
    }
    --accepts_left_;
    ucred peer = {};
    socklen_t bytes = sizeof(peer);
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) continue;
    const uint64_t id = next_id_++;
    Connection& connection = connections_[id];
    connection.fd = std::move(fd);
    connection.pid = peer.pid;
    connection.uid = peer.uid;
    connection.deadline = steady_clock::now() + options_.handshake_timeout;
    if (++per_uid_[peer.uid] > options_.max_agents_per_uid ||
        connections_.size() > options_.max_agents) {
      Refuse(id, ReplyCode::kRefusedLimit, "agent_refused_limit", "too many agents");
    } else if (peer.pid == 0) {
      Refuse(id, ReplyCode::kRefusedHeader, "agent_refused_pid_namespace",
             "its pid is not visible from the daemon's pid namespace");
    } else if (!Watch(connection.fd.get(), MakeTag(kTagConnection, id))) {
      Close(id);
    }
  }
}

void AgentSource::Close(uint64_t id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  const Connection& connection = it->second;
  const auto uid = per_uid_.find(connection.uid);
  if (uid != per_uid_.end() && --uid->second == 0) per_uid_.erase(uid);
  const auto current = connection_of_.find(connection.pid);
  if (current != connection_of_.end() && current->second == id) {
    connection_of_.erase(current);
    const auto process = processes_.find(connection.pid);
    if (process != processes_.end()) process->second.connected = false;
  }
  connections_.erase(it);
}

void AgentSource::Reply(const Connection& connection, ReplyCode code) const {
  wire::Reply reply = {};
  reply.magic = wire::kHandshakeMagic;
  reply.code = static_cast<uint32_t>(code);
  reply.backward_per_step = options_.backward_per_step;
  reply.taps = options_.taps;
  reply.sampling_interval_bytes = options_.sampling_interval_bytes;
  options_.step_range.copy(reply.step_range, sizeof(reply.step_range) - 1);
  // A peer that does not read has its own queue full, and goes without.
  (void)!::send(connection.fd.get(), &reply, sizeof(reply), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void AgentSource::Refuse(uint64_t id, ReplyCode code, const std::string& cause,
                         const std::string& why) {
  const Connection& connection = connections_[id];
  Count(cause);
  spdlog::debug("agent of pid {} (uid {}) refused: {}: {}", connection.pid, connection.uid, cause,
                why);
  Reply(connection, code);
  Close(id);
}

void AgentSource::Receive(uint64_t id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  Connection& connection = it->second;
  wire::Hello hello = {};
  iovec part = {&hello, sizeof(hello)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t bytes = ::recvmsg(connection.fd.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // Every descriptor that the kernel put into our table is ours to close. Alignment leaves room for
  // one more than was asked for.
  std::vector<UniqueFd> descriptors;
  for (cmsghdr* part_of = bytes >= 0 ? CMSG_FIRSTHDR(&message) : nullptr; part_of != nullptr;
       part_of = CMSG_NXTHDR(&message, part_of)) {
    if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= part_of->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, reinterpret_cast<const char*>(part_of) + at, sizeof(fd));
      descriptors.emplace_back(fd);
    }
  }
  if (bytes <= 0) {
    Close(id);
    return;
  }
  if (connection.greeted) {
    // An agent says Hello once and then only listens.
    Count("agent_protocol_error");
    Close(id);
    return;
  }
  if (bytes != sizeof(hello) || descriptors.size() > 1 ||
      (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    Refuse(id, ReplyCode::kRefusedHeader, "agent_refused_hello", "malformed greeting");
  } else if (hello.magic != wire::kHandshakeMagic) {
    Refuse(id, ReplyCode::kRefusedMagic, "agent_refused_magic", "wrong magic in its greeting");
  } else if (descriptors.empty()) {
    Refuse(id, ReplyCode::kRefusedHeader, "agent_refused_no_region", "no memfd came along");
  } else {
    Admit(connection, id, hello, std::move(descriptors.front()));
  }
}

void AgentSource::Admit(Connection& connection, uint64_t id, const wire::Hello& hello,
                        UniqueFd memfd) {
  if (hello.abi > wire::kRegionAbi) {
    Refuse(id, ReplyCode::kRefusedNewerAbi, "agent_refused_newer_abi",
           "ABI " + std::to_string(hello.abi) + ": update the daemon first");
    return;
  }
  // Only a memfd has seals; without them it could shrink under a read or be written by others.
  const int seals = ::fcntl(memfd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals ||
      (seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)) == 0) {
    Refuse(id, ReplyCode::kRefusedSeals, "agent_refused_seals", "the memfd is not sealed");
    return;
  }
  struct stat status = {};
  if (::fstat(memfd.get(), &status) != 0 ||
      static_cast<uint64_t>(status.st_size) != hello.region_bytes ||
      hello.region_bytes > wire::kMaxRegionBytes || hello.region_bytes < sizeof(wire::Header)) {
    Refuse(id, ReplyCode::kRefusedSize, "agent_refused_size",
           std::to_string(hello.region_bytes) + " bytes announced");
    return;
  }
  ReplyCode refusal = ReplyCode::kAccepted;
  std::string why;
  std::unique_ptr<RegionReader> region =
      RegionReader::Open(std::make_unique<FdRegionFile>(std::move(memfd)), hello, &refusal, &why);
  if (region == nullptr) {
    static const std::map<ReplyCode, std::string> kCauses = {
        {ReplyCode::kRefusedMagic, "agent_refused_magic"},
        {ReplyCode::kRefusedNewerAbi, "agent_refused_newer_abi"},
        {ReplyCode::kRefusedSize, "agent_refused_size"},
        {ReplyCode::kRefusedHeader, "agent_refused_header"}};
    Refuse(id, refusal, kCauses.at(refusal), why);
    return;
  }
  // The pid is the kernel's word; with a pidfd held, and the process still there, its start time is
  // that of the very process that connected.
  const pid_t pid = connection.pid;
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const std::optional<procfs::Stat> stat = procfs::ReadStat(root_, pid);
  if (!pidfd.valid() || !stat || HasProcessEnded(pidfd.get())) {
    Count("agent_gone_during_handshake");
    Close(id);
    return;
  }
  if (const auto older = connection_of_.find(pid); older != connection_of_.end()) {
    Close(older->second);
  }
  ObservedProcess& process = processes_[pid];
  const bool same_process = process.start_time_ticks == stat->start_time_ticks;
  const bool same_agent = same_process && process.region != nullptr &&
                          process.region->copy().header.agent_id == region->copy().header.agent_id;
  if (!same_process) {
    process = ObservedProcess{};
    process.pid = pid;
    process.start_time_ticks = stat->start_time_ticks;
    process.uid = connection.uid;
  }
  // The same agent that merely connects again shows the same memfd: what was read of it stays good.
  if (!same_agent || process.broken) {
    process.region = std::move(region);
    process.last.reset();
    process.changes = {};
    process.broken = false;
    ++process.generation;
  }
  process.connected = true;
  connection.greeted = true;
  connection_of_[pid] = id;
  if (!same_process || !pidfds_.contains(pid)) {
    Watch(pidfd.get(), MakeTag(kTagPidfd, static_cast<uint64_t>(pid)));
    pidfds_[pid] = std::move(pidfd);
  }
  Reply(connection, ReplyCode::kAccepted);
  spdlog::info("agent of pid {} ({}) accepted", pid, stat->comm);
}

void AgentSource::NoteExit(pid_t pid) {
  const auto pidfd = pidfds_.find(pid);
  if (pidfd == pidfds_.end()) return;
  const auto it = processes_.find(pid);
  if (it != processes_.end() && it->second.liveness == Liveness::kAlive) {
    ObservedProcess& process = it->second;
    const std::optional<ProcessExit> exit = FindExit(root_, pid, pidfd->second.get());
    if (exit) {
      process.liveness = exit->liveness;
      process.exit_reason = exit->reason;
    } else if (process.region != nullptr && process.region->copy().header.state ==
                                                static_cast<uint32_t>(wire::AgentState::kExited)) {
      process.liveness = Liveness::kExited;
      process.exit_reason = "exited";
    } else {
      process.liveness = Liveness::kExited;
      process.exit_reason = "ended; nobody could tell how";
    }
    process.died_monotonic_ns = MonotonicNs();
    deaths_ = true;
    spdlog::info("pid {} {}", pid, process.exit_reason);
  }
  pidfds_.erase(pidfd);
  if (const auto connection = connection_of_.find(pid); connection != connection_of_.end()) {
    Close(connection->second);
  }
}

void AgentSource::DropSilent() {
  const auto now = steady_clock::now();
  std::vector<uint64_t> late;
  for (const auto& [id, connection] : connections_) {
    if (!connection.greeted && connection.deadline <= now) late.push_back(id);
  }
  for (const uint64_t id : late) {
    Count("agent_hung");
    Close(id);
  }
}

void AgentSource::Refresh(std::chrono::milliseconds budget) {
  DropSilent();
  accepts_left_ = kAcceptsARefresh;
  SetListening(true);
  const auto end = steady_clock::now() + budget;
  // Begin where the last call ran out of time, so that nobody starves.
  std::vector<ObservedProcess*> order;
  const auto from = processes_.lower_bound(refresh_from_);
  for (auto it = from; it != processes_.end(); ++it) order.push_back(&it->second);
  for (auto it = processes_.begin(); it != from; ++it) order.push_back(&it->second);
  refresh_from_ = 0;
  for (ObservedProcess* process : order) {
    process->changes = {};
    if (refresh_from_ != 0) continue;
    if (process->region == nullptr || process->broken) continue;
    if (!process->region->Refresh(&process->changes)) {
      process->broken = true;
      process->changes = {};
      Count("agent_region_changed");
    }
    if (process->changes.torn_rows > 0) Count("region_rows_torn", process->changes.torn_rows);
    if (steady_clock::now() > end) {
      refresh_from_ = process->pid + 1;
      Count("refresh_over_budget");
    }
  }
}

std::unique_ptr<RegionReader> AgentSource::TakeRegion(pid_t pid) {
  const auto it = processes_.find(pid);
  if (it == processes_.end() || it->second.region == nullptr) return nullptr;
  it->second.last = std::make_unique<RegionCopy>(it->second.region->copy());
  return std::move(it->second.region);
}

void AgentSource::Forget(pid_t pid) {
  if (const auto connection = connection_of_.find(pid); connection != connection_of_.end()) {
    Close(connection->second);
  }
  pidfds_.erase(pid);
  processes_.erase(pid);
}

Result<void> AgentSource::Command(pid_t pid, wire::CommandOp op, uint64_t argument) {
  const std::string tried = "reach the agent of pid " + std::to_string(pid);
  const auto connection = connection_of_.find(pid);
  if (connection == connection_of_.end()) {
    return Error{tried, "it has no connected agent", "tidemark ps shows which processes have one"};
  }
  const wire::Command command = {wire::kHandshakeMagic, static_cast<uint32_t>(op), argument};
  const Connection& to = connections_[connection->second];
  if (::send(to.fd.get(), &command, sizeof(command), MSG_DONTWAIT | MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof(command))) {
    return SystemError(tried, "the process may be stopped: try again");
  }
  return {};
}

std::vector<LossView> AgentSource::Losses() const {
  std::vector<LossView> views;
  for (const auto& [cause, count] : losses_) views.push_back({cause, count, 0});
  return views;
}

}  // namespace tidemark
