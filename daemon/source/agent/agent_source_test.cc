#include "daemon/source/agent/agent_source.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include "daemon/source/agent/fake_region.h"

namespace tidemark {
namespace {

using wire::ReplyCode;
using namespace std::chrono_literals;

// An agent, honest or forged, in this process.
class Client {
 public:
  explicit Client(const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    fd_.Reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    connected_ =
        ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }

  bool connected() const { return connected_; }
  int fd() const { return fd_.get(); }

  void Send(const void* data, size_t bytes, const std::vector<int>& fds) {
    iovec part = {const_cast<void*>(data), bytes};
    std::vector<char> control(CMSG_SPACE(sizeof(int) * std::max<size_t>(fds.size(), 1)));
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
    }
    (void)!::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
  }

  void Greet(const FakeRegion& region) {
    const wire::Hello hello = region.Hello();
    Send(&hello, sizeof(hello), {region.fd()});
  }

  // The next packet's reply code; nullopt when the daemon closed instead or says nothing.
  std::optional<ReplyCode> Answer() {
    pollfd wait = {fd_.get(), POLLIN, 0};
    if (::poll(&wait, 1, 0) != 1) return std::nullopt;
    wire::Reply reply = {};
    if (::recv(fd_.get(), &reply, sizeof(reply), MSG_DONTWAIT) != sizeof(reply))
      return std::nullopt;
    return static_cast<ReplyCode>(reply.code);
  }

  bool Closed() {
    char byte;
    return ::recv(fd_.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }

 private:
  UniqueFd fd_;
  bool connected_ = false;
};

class AgentSourceTest : public ::testing::Test {
 protected:
  AgentSourceTest() {
    std::string pattern = "/tmp/tidemark-agent-test-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    path_ = directory_ + "/agent.sock";
  }
  ~AgentSourceTest() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<AgentSource> Start(AgentSourceOptions options = {}) {
    options.socket_path = path_;
    auto source = std::make_unique<AgentSource>(options, ProcRoot());
    const Result<void> started = source->Start();
    EXPECT_TRUE(started.ok()) << (started.ok() ? "" : started.error().ToString());
    return source;
  }

  static void PumpAll(AgentSource& source) {
    for (int i = 0; i < 8; ++i) source.Pump();
  }

  static uint64_t Loss(const AgentSource& source, const std::string& cause) {
    for (const LossView& loss : source.Losses()) {
      if (loss.cause == cause) return loss.count;
    }
    return 0;
  }

  std::string directory_;
  std::string path_;
};

TEST_F(AgentSourceTest, AnHonestAgentIsTakenAndItsStateRead) {
  const auto source = Start({.backward_per_step = 4, .step_range = "step"});
  FakeRegion region;
  wire::TotalsRow row = {};
  row.live_bytes = 4096;
  region.SetTotals(row);
  Client client(path_);
  client.Greet(region);
  PumpAll(*source);
  EXPECT_EQ(client.Answer(), ReplyCode::kAccepted);
  source->Refresh();
  ASSERT_EQ(source->processes().size(), 1u);
  const ObservedProcess& process = source->processes().at(::getpid());
  EXPECT_TRUE(process.connected);
  EXPECT_EQ(process.liveness, Liveness::kAlive);
  EXPECT_EQ(process.copy().totals.at(0).live_bytes, 4096);
  EXPECT_TRUE(source->Losses().empty());
}

TEST_F(AgentSourceTest, AnybodyMayConnectButTheSocketIsNotExecutable) {
  const auto source = Start();
  EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms{0666});
}

TEST_F(AgentSourceTest, EveryForgedGreetingIsRefusedAndCountedByCause) {
  struct Forgery {
    std::string cause;
    std::optional<ReplyCode> answer;
    std::function<void(Client&, FakeRegion&)> send;
  };
  auto with = [](std::function<void(wire::Hello&)> change) {
    return [change](Client& client, FakeRegion& region) {
      wire::Hello hello = region.Hello();
      change(hello);
      client.Send(&hello, sizeof(hello), {region.fd()});
    };
  };
  const std::vector<Forgery> forgeries = {
      {"agent_refused_magic", ReplyCode::kRefusedMagic, with([](auto& h) { h.magic = 1; })},
      {"agent_refused_newer_abi", ReplyCode::kRefusedNewerAbi,
       with([](auto& h) { h.abi = wire::kRegionAbi + 1; })},
      {"agent_refused_size", ReplyCode::kRefusedSize,
       with([](auto& h) { h.region_bytes += 4096; })},
      {"agent_refused_size", ReplyCode::kRefusedSize, with([](auto& h) { h.region_bytes = 0; })},
      {"agent_refused_size", ReplyCode::kRefusedSize,
       with([](auto& h) { h.region_bytes = UINT64_MAX; })},
      {"agent_refused_header", ReplyCode::kRefusedHeader, with([](auto& h) { h.agent_id ^= 1; })},
      {"agent_refused_no_region", ReplyCode::kRefusedHeader,
       [](Client& client, FakeRegion& region) {
         const wire::Hello hello = region.Hello();
         client.Send(&hello, sizeof(hello), {});
       }},
      {"agent_refused_hello", ReplyCode::kRefusedHeader,
       [](Client& client, FakeRegion& region) { client.Send("hi", 2, {region.fd()}); }},
      {"agent_refused_hello", ReplyCode::kRefusedHeader,
       [](Client& client, FakeRegion& region) {
         const std::vector<char> long_greeting(1000, 'x');
         client.Send(long_greeting.data(), long_greeting.size(), {region.fd()});
       }},
      {"agent_refused_hello", ReplyCode::kRefusedHeader,
       [](Client& client, FakeRegion& region) {
         const wire::Hello hello = region.Hello();
         client.Send(&hello, sizeof(hello), std::vector<int>(200, region.fd()));
       }},
      {"agent_refused_seals", ReplyCode::kRefusedSeals,
       [](Client& client, FakeRegion&) {
         static FakeRegion unsealed({.seal = false});
         client.Greet(unsealed);
       }},
      {"agent_refused_seals", ReplyCode::kRefusedSeals,
       [](Client& client, FakeRegion& region) {
         // A file of the right size that is no memfd at all.
         const wire::Hello hello = region.Hello();
         const UniqueFd file(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
         EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(hello.region_bytes)), 0);
         client.Send(&hello, sizeof(hello), {file.get()});
       }},
      {"agent_refused_magic", ReplyCode::kRefusedMagic,
       [](Client& client, FakeRegion& region) {
         region.header().magic = 0;
         client.Greet(region);
       }},
      {"agent_refused_header", ReplyCode::kRefusedHeader,
       [](Client& client, FakeRegion& region) {
         region.Entry(wire::Section::kSites).capacity = UINT64_MAX;
         client.Greet(region);
       }},
  };
  const auto source = Start();
  FakeRegion honest;
  Client good(path_);
  good.Greet(honest);
  PumpAll(*source);
  ASSERT_EQ(good.Answer(), ReplyCode::kAccepted);
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = descriptors();
  for (const Forgery& forgery : forgeries) {
    SCOPED_TRACE(forgery.cause);
    FakeRegion region;
    Client client(path_);
    const uint64_t counted = Loss(*source, forgery.cause);
    forgery.send(client, region);
    PumpAll(*source);
    EXPECT_EQ(client.Answer(), forgery.answer);
    EXPECT_TRUE(client.Closed());
    EXPECT_EQ(Loss(*source, forgery.cause), counted + 1);
  }
  // At no cost to anybody else: nothing is held, and the honest agent is still there.
  EXPECT_EQ(descriptors(), before + 1);  // the static unsealed region of the test's own
  source->Refresh();
  EXPECT_TRUE(source->processes().at(::getpid()).connected);
  EXPECT_FALSE(good.Closed());
}

TEST_F(AgentSourceTest, AnAgentThatSaysNothingIsDroppedInTime) {
  const auto source = Start({.handshake_timeout = 30ms});
  Client silent(path_);
  PumpAll(*source);
  source->Refresh();
  EXPECT_FALSE(silent.Closed());
  std::this_thread::sleep_for(40ms);
  source->Refresh();
  EXPECT_TRUE(silent.Closed());
  EXPECT_EQ(Loss(*source, "agent_hung"), 1u);
  EXPECT_EQ(source->connections(), 0u);
}

TEST_F(AgentSourceTest, OneUserCannotTakeMoreThanItsShare) {
  const auto source = Start({.max_agents_per_uid = 3});
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(std::make_unique<Client>(path_));
  PumpAll(*source);
  EXPECT_EQ(source->connections(), 3u);
  EXPECT_EQ(clients[3]->Answer(), ReplyCode::kRefusedLimit);
  EXPECT_EQ(clients[4]->Answer(), ReplyCode::kRefusedLimit);
  EXPECT_EQ(Loss(*source, "agent_refused_limit"), 2u);
  clients.clear();
  PumpAll(*source);
  EXPECT_EQ(source->connections(), 0u);
  Client later(path_);
  PumpAll(*source);
  EXPECT_EQ(source->connections(), 1u);
}

TEST_F(AgentSourceTest, AFloodOfConnectionsWaitsForTheNextTick) {
  const auto source = Start();
  std::vector<std::unique_ptr<Client>> clients;
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 30; ++i) clients.push_back(std::make_unique<Client>(path_));
    source->Pump();
    clients.clear();
    PumpAll(*source);
  }
  EXPECT_EQ(Loss(*source, "agent_flood"), 1u);
  source->Refresh();
  Client later(path_);
  PumpAll(*source);
  FakeRegion region;
  later.Greet(region);
  PumpAll(*source);
  source->Refresh();
  PumpAll(*source);
  EXPECT_EQ(later.Answer(), ReplyCode::kAccepted);
}

TEST_F(AgentSourceTest, AnAgentThatTalksOnIsCutOffButItsStateStays) {
  const auto source = Start();
  FakeRegion region;
  Client client(path_);
  client.Greet(region);
  PumpAll(*source);
  client.Greet(region);
  PumpAll(*source);
  EXPECT_EQ(Loss(*source, "agent_protocol_error"), 1u);
  const ObservedProcess& process = source->processes().at(::getpid());
  EXPECT_FALSE(process.connected);
  EXPECT_EQ(process.liveness, Liveness::kAlive);
}

TEST_F(AgentSourceTest, ARegionThatGoesBadIsShownAsItWasLast) {
  const auto source = Start();
  FakeRegion region;
  wire::TotalsRow row = {};
  row.live_bytes = 11;
  region.SetTotals(row);
  Client client(path_);
  client.Greet(region);
  PumpAll(*source);
  source->Refresh();
  region.header().section_count = 3;
  row.live_bytes = 12;
  region.SetTotals(row);
  source->Refresh();
  source->Refresh();
  const ObservedProcess& process = source->processes().at(::getpid());
  EXPECT_TRUE(process.broken);
  EXPECT_EQ(process.copy().totals.at(0).live_bytes, 11);
  EXPECT_EQ(Loss(*source, "agent_region_changed"), 1u);
}

TEST_F(AgentSourceTest, AfterARestartOfTheDaemonNothingDoubles) {
  FakeRegion region;
  wire::TotalsRow row = {};
  row.live_bytes = 1 << 20;
  row.allocated_bytes = 5 << 20;
  region.SetTotals(row);
  {
    const auto source = Start();
    Client client(path_);
    client.Greet(region);
    PumpAll(*source);
    source->Refresh();
  }
  const auto source = Start();  // the old socket is gone, the region is as it was
  Client client(path_);
  client.Greet(region);
  PumpAll(*source);
  source->Refresh();
  const ObservedProcess& process = source->processes().at(::getpid());
  ASSERT_EQ(process.copy().totals.size(), 1u);
  EXPECT_EQ(process.copy().totals[0].live_bytes, 1 << 20);
  EXPECT_EQ(process.copy().totals[0].allocated_bytes, 5u << 20);
}

TEST_F(AgentSourceTest, AnAgentThatConnectsAgainGoesOnWhereItWas) {
  const auto source = Start();
  FakeRegion region;
  region.AddStep({});
  auto first = std::make_unique<Client>(path_);
  first->Greet(region);
  PumpAll(*source);
  source->Refresh();
  EXPECT_EQ(source->processes().at(::getpid()).changes.steps.size(), 1u);
  first.reset();
  region.AddStep({});
  Client second(path_);
  second.Greet(region);
  PumpAll(*source);
  source->Refresh();
  const ObservedProcess& process = source->processes().at(::getpid());
  EXPECT_EQ(process.generation, 1u);
  EXPECT_TRUE(process.connected);
  ASSERT_EQ(process.changes.steps.size(), 1u);  // the first step is not told twice
  EXPECT_EQ(process.changes.steps[0].step, 2u);
}

TEST_F(AgentSourceTest, ANewAgentInTheSameProcessTakesThePlaceOfTheOldOne) {
  const auto source = Start();
  FakeRegion before({.agent_id = 1});
  FakeRegion after({.agent_id = 2});
  Client first(path_);
  first.Greet(before);
  PumpAll(*source);
  Client second(path_);
  second.Greet(after);
  PumpAll(*source);
  EXPECT_EQ(first.Answer(), ReplyCode::kAccepted);
  EXPECT_TRUE(first.Closed());
  EXPECT_EQ(source->processes().at(::getpid()).generation, 2u);
  EXPECT_EQ(source->processes().at(::getpid()).copy().header.agent_id, 2u);
}

TEST_F(AgentSourceTest, ASecondDaemonOnTheSameSocketIsRefused) {
  const auto source = Start();
  AgentSourceOptions options;
  options.socket_path = path_;
  AgentSource other(options, ProcRoot());
  const Result<void> started = other.Start();
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().ToString(), ::testing::HasSubstr("another daemon listens"));
}

TEST_F(AgentSourceTest, CommandsReachTheAgentAndFailWithoutOne) {
  const auto source = Start();
  FakeRegion region;
  Client client(path_);
  client.Greet(region);
  PumpAll(*source);
  ASSERT_EQ(client.Answer(), ReplyCode::kAccepted);
  ASSERT_TRUE(source->Command(::getpid(), wire::CommandOp::kDetach, 0).ok());
  wire::Command command = {};
  ASSERT_EQ(::recv(client.fd(), &command, sizeof(command), MSG_DONTWAIT),
            static_cast<ssize_t>(sizeof(command)));
  EXPECT_EQ(command.op, static_cast<uint32_t>(wire::CommandOp::kDetach));
  EXPECT_FALSE(source->Command(1, wire::CommandOp::kDetach, 0).ok());
}

// A child that holds a region and ends as told.
pid_t ForkAgent(const std::string& path, std::function<void()> end) {
  int ready[2];
  if (::pipe(ready) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    static FakeRegion region;
    wire::TotalsRow row = {};
    row.live_bytes = 99;
    region.SetTotals(row);
    static Client client(path);
    client.Greet(region);
    (void)!::write(ready[1], "x", 1);
    end();
    ::_exit(0);
  }
  char byte;
  (void)!::read(ready[0], &byte, 1);
  ::close(ready[0]);
  ::close(ready[1]);
  return child;
}

TEST_F(AgentSourceTest, AKilledProcessIsShownAsKilledWithItsLastState) {
  const auto source = Start();
  const pid_t child = ForkAgent(path_, [] { ::pause(); });
  PumpAll(*source);
  source->Refresh();
  ASSERT_TRUE(source->processes().contains(child));
  ::kill(child, SIGKILL);
  pollfd wait = {source->epoll_fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&wait, 1, 5000), 1);
  std::this_thread::sleep_for(20ms);
  PumpAll(*source);  // still a zombie: its parent has not waited
  source->Refresh();
  ObservedProcess& process = source->processes().at(child);
  EXPECT_EQ(process.liveness, Liveness::kKilled);
  EXPECT_EQ(process.exit_reason, "killed by SIGKILL");
  EXPECT_EQ(process.copy().totals.at(0).live_bytes, 99);
  // The memfd can be given away; the state stays.
  EXPECT_NE(source->TakeRegion(child), nullptr);
  EXPECT_EQ(source->TakeRegion(child), nullptr);
  EXPECT_EQ(process.copy().totals.at(0).live_bytes, 99);
  ::waitpid(child, nullptr, 0);
  source->Forget(child);
  EXPECT_EQ(source->connections(), 0u);
}

TEST_F(AgentSourceTest, TheExitStatusIsTold) {
  const auto source = Start();
  const pid_t child = ForkAgent(path_, [] { ::usleep(200'000), ::_exit(3); });
  PumpAll(*source);
  siginfo_t info = {};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  PumpAll(*source);
  EXPECT_EQ(source->processes().at(child).liveness, Liveness::kExited);
  EXPECT_EQ(source->processes().at(child).exit_reason, "exited with status 3");
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace tidemark
