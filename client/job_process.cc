#include "client/job_process.h"

#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "client/argv.h"

namespace tidemark::client {
namespace {

// SIGTSTP and its kin stay with the terminal: it stops both, and both go on with SIGCONT.
constexpr std::array<int, 8> kForwarded = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                                           SIGUSR1, SIGUSR2, SIGALRM, SIGCONT};

}  // namespace

SignalGate::SignalGate() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int signal : kForwarded) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, &original_);
  // A parent that ignores SIGCHLD hands that down, and the kernel would throw the job's status
  // away.
  std::signal(SIGCHLD, SIG_DFL);
  fd_.Reset(::signalfd(-1, &set, SFD_CLOEXEC));
}

std::variant<JobProcess, StartError> JobProcess::Start(std::vector<std::string> command,
                                                       std::vector<std::string> environment,
                                                       const SignalGate& gate) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &gate.original_mask());
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const std::string program = command.front();
  int failed = ::posix_spawnp(&pid, program.c_str(), nullptr, &attributes, ArgvOf(command).data(),
                              ArgvOf(environment).data());
  if (failed == ENOEXEC) {  // a script without "#!", which a shell would run
    command.insert(command.begin(), "/bin/sh");
    failed = ::posix_spawn(&pid, "/bin/sh", nullptr, &attributes, ArgvOf(command).data(),
                           ArgvOf(environment).data());
  }
  posix_spawnattr_destroy(&attributes);
  if (failed == 0) return JobProcess(pid);
  const bool missing = failed == ENOENT;
  return StartError{
      {"start " + program, missing ? "there is no such command" : strerror(failed), ""},
      missing ? 127 : 126};
}

int JobProcess::Wait(const SignalGate& gate) {
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == pid_) {
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    signalfd_siginfo info;
    if (::read(gate.fd(), &info, sizeof(info)) != sizeof(info)) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal != SIGCHLD && info.ssi_code != SI_KERNEL) ::kill(pid_, signal);
  }
}

}  // namespace tidemark::client
