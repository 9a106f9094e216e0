#include "client/private_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "client/argv.h"
#include "client/socket_path.h"
#include "wire/handshake.h"

namespace tidemark::client {
namespace {

constexpr auto kReadyTimeout = std::chrono::seconds(20);
constexpr auto kLockTimeout = std::chrono::seconds(30);
constexpr int kReadyFd = 3;  // in the daemon

std::string Sibling(const std::string& api_socket) {
  return (std::filesystem::path(api_socket).parent_path() / "agent.sock").string();
}

Result<UniqueFd> Lock(const std::string& path) {
  const std::string tried = "lock " + path;
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Error{tried, std::strerror(errno), ""};
  const auto deadline = std::chrono::steady_clock::now() + kLockTimeout;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return Error{tried, std::strerror(errno), ""};
    if (std::chrono::steady_clock::now() > deadline) {
      return Error{tried, "another process has held it for too long",
                   "see which with: fuser " + path};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return fd;
}

std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::string last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

// The daemon sees the job's environment (library paths and settings), but is no part of the job.
std::vector<std::string> DaemonEnvironment(Environment environment) {
  for (const char* name : {"CUDA_INJECTION64_PATH", wire::kRunVariable, "LD_PRELOAD"}) {
    environment.Unset(name);
  }
  return environment.Strings();
}

// In a session of its own, without the job's terminal and files: a launcher that waits for the end
// of its pipes must not wait for the daemon.
Result<pid_t> Spawn(const std::string& program, std::vector<std::string> arguments,
                    std::vector<std::string> environment, const std::string& log, int ready) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ready, kReadyFd);
  posix_spawn_file_actions_addclosefrom_np(&actions, kReadyFd + 1);

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  pid_t pid = 0;
  const int failed = ::posix_spawn(&pid, program.c_str(), &actions, &attributes,
                                   ArgvOf(arguments).data(), ArgvOf(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    return Error{"start " + program, std::strerror(failed),
                 "build it with ./setup, or set TIDEMARK_DAEMON to where it is"};
  }
  return pid;
}

}  // namespace

DaemonLocator::DaemonLocator(std::string asked, bool only_private, Environment environment,
                             uid_t uid, std::string daemon)
    : asked_(std::move(asked)),
      only_private_(only_private),
      environment_(std::move(environment)),
      uid_(uid),
      daemon_(std::move(daemon)) {}

Result<DaemonEndpoint> DaemonLocator::FindOrStart() const {
  // A daemon that was asked for by name is used or missed, never replaced.
  const bool named = !asked_.empty() || (environment_.Get(kSocketVariable) && !only_private_);
  if (named) {
    const std::string socket = ApiSocketCandidates(asked_, environment_, uid_).front();
    const Result<void> answers = ProbeSocket(socket);
    if (!answers) return answers.error();
    const auto agent = environment_.Get(wire::kAgentSocketVariable);
    return DaemonEndpoint{socket, agent.value_or(Sibling(socket)), false, false};
  }
  if (!only_private_ && ProbeSocket(kNodeApiSocket).ok()) {
    return DaemonEndpoint{kNodeApiSocket, wire::kAgentSocketPath, false, false};
  }

  const std::string directory = PrivateDirectory(environment_, uid_);
  const Result<void> prepared = PreparePrivateDirectory(directory, uid_);
  if (!prepared) return prepared.error();
  const Result<UniqueFd> lock = Lock(directory + "/lock");
  if (!lock) return lock.error();
  const std::string api = directory + "/api.sock";
  if (ProbeSocket(api).ok()) return DaemonEndpoint{api, directory + "/agent.sock", true, false};
  return StartPrivate(directory);
}

Result<DaemonEndpoint> DaemonLocator::StartPrivate(const std::string& directory) const {
  const DaemonEndpoint endpoint{directory + "/api.sock", directory + "/agent.sock", true, true};
  const std::string log = directory + "/tidemarkd.log";
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return Error{"start a private daemon", std::strerror(errno), ""};
  }
  const UniqueFd ready(ends[0]);
  UniqueFd theirs(ends[1]);
  const Result<pid_t> pid =
      Spawn(daemon_,
            {daemon_, "--private", "--agent-socket", endpoint.agent_socket, "--api-socket",
             endpoint.api_socket, "--http", "127.0.0.1:0", "--ready-fd", std::to_string(kReadyFd)},
            DaemonEnvironment(environment_), log, theirs.get());
  if (!pid) return pid.error();
  theirs.Reset();

  pollfd wait = {ready.get(), POLLIN, 0};
  const auto deadline = std::chrono::steady_clock::now() + kReadyTimeout;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    const int events = left.count() > 0 ? ::poll(&wait, 1, static_cast<int>(left.count())) : 0;
    if (events < 0 && errno == EINTR) continue;
    if (events <= 0) {
      ::kill(*pid, SIGTERM);
      return Error{"start a private daemon", "it was not ready in time", "see " + log};
    }
    char byte;
    if (::read(ready.get(), &byte, 1) == 1) return endpoint;
    const std::string why = LastLine(log);
    return Error{"start a private daemon", why.empty() ? "it ended at once" : why, "see " + log};
  }
}

}  // namespace tidemark::client
