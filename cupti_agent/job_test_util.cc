#include "cupti_agent/job_test_util.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

extern char** environ;

namespace tidemark::agent::testing {

RegionCopy::RegionCopy(int fd) : fd_(fd) {
  EXPECT_EQ(pread(fd, &header_, sizeof(header_), 0), static_cast<ssize_t>(sizeof(header_)));
}

std::unique_ptr<wire::TotalsRow> RegionCopy::Totals(wire::Layer layer, wire::Kind kind,
                                                    int16_t device) const {
  for (const wire::TotalsRow& row : Rows<wire::TotalsRow>(wire::Section::kTotals)) {
    if (row.layer == static_cast<uint8_t>(layer) && row.kind == static_cast<uint8_t>(kind) &&
        row.device == device) {
      return std::make_unique<wire::TotalsRow>(row);
    }
  }
  return nullptr;
}

wire::FeatureRow RegionCopy::Feature(wire::Feature feature) const {
  return Rows<wire::FeatureRow>(wire::Section::kFeatures)[static_cast<uint32_t>(feature)];
}

FakeDaemon::FakeDaemon(const std::string& path)
    : path_(path), listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  unlink(path.c_str());
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof(address.sun_path), "%s", path.c_str());
  EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(listener_.get(), 16), 0);
}

FakeDaemon::~FakeDaemon() { unlink(path_.c_str()); }

bool FakeDaemon::TakeAgent(double seconds) {
  pollfd wait{listener_.get(), POLLIN, 0};
  if (poll(&wait, 1, static_cast<int>(seconds * 1000)) != 1) return false;
  connection_.Reset(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  iovec part{&hello_, sizeof(hello_)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(connection_.get(), &message, MSG_CMSG_CLOEXEC) !=
      static_cast<ssize_t>(sizeof(hello_))) {
    return false;
  }
  const cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return false;
  int fd;
  memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
  region_.Reset(fd);
  wire::Reply reply = {};
  reply.magic = wire::kHandshakeMagic;
  return send(connection_.get(), &reply, sizeof(reply), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof(reply));
}

void FakeDaemon::Command(wire::CommandOp op, uint64_t argument) {
  const wire::Command command = {wire::kHandshakeMagic, static_cast<uint32_t>(op), argument};
  EXPECT_EQ(send(connection_.get(), &command, sizeof(command), MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof(command)));
}

Job::Job(const std::vector<std::string>& arguments,
         const std::map<std::string, std::string>& environment) {
  int in[2], out[2], error[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) {
    ADD_FAILURE() << "no pipes";
    return;
  }
  std::vector<std::string> variables;
  for (char** v = environ; *v != nullptr; ++v) {
    const std::string text = *v;
    if (environment.count(text.substr(0, text.find('='))) == 0) variables.push_back(text);
  }
  for (const auto& [name, value] : environment) {
    if (!value.empty()) variables.push_back(name + "=" + value);
  }
  std::vector<char*> argv, envp;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  for (const std::string& v : variables) envp.push_back(const_cast<char*>(v.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(error[1], STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  input_.Reset(in[1]);
  output_.Reset(out[0]);
  error_.Reset(error[0]);
  for (int fd : {in[0], out[1], error[1]}) close(fd);
}

Job::~Job() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

std::string Job::ReadLine() {
  std::string line;
  char c;
  while (read(output_.get(), &c, 1) == 1) {
    out_ += c;
    if (c == '\n') return line;
    line += c;
  }
  return line;
}

void Job::SendLine() { EXPECT_EQ(write(input_.get(), "\n", 1), 1); }

void Job::Kill(int signal) { kill(pid_, signal); }

JobResult Job::Wait() {
  JobResult result;
  input_.Reset();
  pollfd open[2] = {{output_.get(), POLLIN, 0}, {error_.get(), POLLIN, 0}};
  result.out = out_;
  while (open[0].fd >= 0 || open[1].fd >= 0) {
    poll(open, 2, -1);
    for (int i = 0; i < 2; ++i) {
      if (open[i].fd < 0 || open[i].revents == 0) continue;
      char text[4096];
      const ssize_t bytes = read(open[i].fd, text, sizeof(text));
      if (bytes <= 0) {
        open[i].fd = -1;
      } else {
        (i == 0 ? result.out : result.error).append(text, static_cast<size_t>(bytes));
      }
    }
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  result.exit_code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

std::map<std::string, std::string> UnderAgent(const FakeDaemon& daemon) {
  std::map<std::string, std::string> variables = WithoutAgent();
  variables["CUDA_INJECTION64_PATH"] = AGENT_LIBRARY;
  variables[wire::kAgentSocketVariable] = daemon.path();
  return variables;
}

std::map<std::string, std::string> WithoutAgent() {
  return {{"LD_LIBRARY_PATH", SIM_DIRECTORY},
          {"TIDEMARK_SIM_STATE", TemporaryPath("sim")},
          {"CUDA_INJECTION64_PATH", ""},
          {wire::kAgentSocketVariable, ""}};
}

std::string TemporaryPath(const std::string& name) {
  return "/tmp/tidemark-agent-test-" + std::to_string(getpid()) + "-" + name;
}

}  // namespace tidemark::agent::testing
