#include "cupti_agent/daemon_link.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "cupti_agent/ledger/monotonic.h"
#include "wire/region.h"

namespace tidemark::agent {
namespace {

// A daemon's socket, driven by the test in the same thread: the link never blocks.
class Daemon {
 public:
  explicit Daemon(const std::string& path) : path_(path) {
    unlink(path.c_str());
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path.c_str());
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 4), 0);
  }
  ~Daemon() {
    Drop();
    close(listener_);
    unlink(path_.c_str());
  }
  bool Accept() {
    connection_ = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    return connection_ >= 0;
  }
  void Drop() {
    if (connection_ >= 0) close(connection_);
    connection_ = -1;
  }
  // The hello; the descriptor that came along goes to *fd.
  ssize_t ReceiveHello(wire::Hello* hello, int* fd) {
    iovec part{hello, sizeof(*hello)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t bytes = recvmsg(connection_, &message, MSG_CMSG_CLOEXEC);
    const cmsghdr* rights = CMSG_FIRSTHDR(&message);
    if (rights != nullptr) memcpy(fd, CMSG_DATA(rights), sizeof(int));
    return bytes;
  }
  template <typename T>
  void Send(const T& packet) {
    EXPECT_EQ(send(connection_, &packet, sizeof(packet), MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof(packet)));
  }
  void Accepted(uint32_t backward_per_step = 0) {
    wire::Reply reply = {};
    reply.magic = wire::kHandshakeMagic;
    reply.backward_per_step = backward_per_step;
    Send(reply);
  }

 private:
  std::string path_;
  int listener_ = -1;
  int connection_ = -1;
};

class DaemonLinkTest : public ::testing::Test, public DaemonLink::Listener {
 protected:
  DaemonLinkTest() : own_(Path("own")), node_(Path("node")) {
    offer_.fd = memfd_create("test", MFD_CLOEXEC);
    offer_.region_bytes = 4096;
    offer_.agent_id = 77;
    offer_.pid = getpid();
  }
  ~DaemonLinkTest() override { close(offer_.fd); }
  static std::string Path(const std::string& name) {
    return "/tmp/tidemark-link-test-" + std::to_string(getpid()) + "-" + name;
  }
  void OnAccepted(const wire::Reply& reply) override { replies_.push_back(reply); }
  void OnCommand(const wire::Command& command) override { commands_.push_back(command); }

  std::string own_, node_;
  RegionOffer offer_;
  std::vector<wire::Reply> replies_;
  std::vector<wire::Command> commands_;
};

TEST_F(DaemonLinkTest, OffersTheRegionToTheJobsOwnDaemonFirst) {
  Daemon own(own_), node(node_);
  DaemonLink link(own_.c_str(), node_.c_str());
  link.Poll(offer_, this, 0);
  EXPECT_FALSE(node.Accept());
  ASSERT_TRUE(own.Accept());
  wire::Hello hello;
  int fd = -1;
  ASSERT_EQ(own.ReceiveHello(&hello, &fd), static_cast<ssize_t>(sizeof(hello)));
  EXPECT_EQ(hello.magic, wire::kHandshakeMagic);
  EXPECT_EQ(hello.abi, wire::kRegionAbi);
  EXPECT_EQ(hello.region_bytes, 4096u);
  EXPECT_EQ(hello.agent_id, 77u);
  EXPECT_GE(fd, 0);
  close(fd);
  own.Accepted(3);
  link.Poll(offer_, this, 100);
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(replies_[0].backward_per_step, 3u);
  own.Send(wire::Command{wire::kHandshakeMagic, 1, 5});
  link.Poll(offer_, this, 100);
  ASSERT_EQ(commands_.size(), 1u);
  EXPECT_EQ(commands_[0].argument, 5u);
}

TEST_F(DaemonLinkTest, FindsTheNodesDaemonWhenItAppearsAndTheNextOneAfterIt) {
  DaemonLink link(nullptr, node_.c_str());
  link.Poll(offer_, this, 0);
  EXPECT_FALSE(link.connected());
  for (int life = 0; life < 2; ++life) {
    Daemon node(node_);
    const uint64_t start = MonotonicNs();
    while (!link.connected() && MonotonicNs() - start < 5'000'000'000) link.Poll(offer_, this, 20);
    ASSERT_TRUE(link.connected());
    ASSERT_TRUE(node.Accept());
    node.Accepted();
    link.Poll(offer_, this, 100);
    EXPECT_EQ(replies_.size(), static_cast<size_t>(life) + 1);
    node.Drop();
    link.Poll(offer_, this, 100);
    EXPECT_FALSE(link.connected());
  }
}

TEST_F(DaemonLinkTest, ShortLongOrUnknownPacketEndsTheConnection) {
  for (int variant = 0; variant < 5; ++variant) {
    Daemon node(node_);
    DaemonLink link(nullptr, node_.c_str());
    link.Poll(offer_, this, 0);
    ASSERT_TRUE(node.Accept());
    if (variant < 3) {
      wire::Reply reply = {};
      reply.magic = variant == 0 ? 1 : wire::kHandshakeMagic;
      struct {
        wire::Reply reply;
        char more[100];
      } longer = {reply, {}};
      if (variant == 0) node.Send(reply);
      if (variant == 1) node.Send(longer);
      if (variant == 2) node.Send('x');
    } else {
      node.Accepted();
      link.Poll(offer_, this, 100);
      ASSERT_TRUE(link.connected());
      if (variant == 3) node.Send(wire::Command{2, 1, 0});
      if (variant == 4) node.Send(uint64_t{1});
    }
    link.Poll(offer_, this, 100);
    EXPECT_FALSE(link.connected()) << variant;
  }
  EXPECT_TRUE(commands_.empty());
}

TEST_F(DaemonLinkTest, RefusalIsNotAskedAgainAtOnce) {
  Daemon node(node_);
  DaemonLink link(nullptr, node_.c_str());
  link.Poll(offer_, this, 0);
  ASSERT_TRUE(node.Accept());
  wire::Reply reply = {};
  reply.magic = wire::kHandshakeMagic;
  reply.code = static_cast<uint32_t>(wire::ReplyCode::kRefusedLimit);
  node.Send(reply);
  link.Poll(offer_, this, 100);
  EXPECT_FALSE(link.connected());
  EXPECT_TRUE(replies_.empty());
  link.Poll(offer_, this, 300);
  EXPECT_FALSE(link.connected());
}

TEST_F(DaemonLinkTest, DaemonThatHangsCostsNothingButTheWait) {
  Daemon node(node_);
  DaemonLink link(nullptr, node_.c_str());
  link.Poll(offer_, this, 0);
  const uint64_t start = MonotonicNs();
  for (int i = 0; i < 5; ++i) link.Poll(offer_, this, 10);
  EXPECT_LT(MonotonicNs() - start, 2'000'000'000u);
  EXPECT_TRUE(link.connected());
}

}  // namespace
}  // namespace tidemark::agent
