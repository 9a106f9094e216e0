#include "daemon/serve/peer.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tidemark::serve {
namespace {

// A made-up /proc/net/tcp and tcp6.
class PeerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tidemark-peer-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    root_ = pattern;
    std::filesystem::create_directories(root_ / "proc/net");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Table(const char* name, const std::string& rows) {
    std::ofstream(root_ / "proc/net" / name)
        << "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
           "timeout inode\n"
        << rows;
  }
  static std::string Row(const std::string& local, const std::string& remote, int uid, int inode) {
    return "   0: " + local + " " + remote + " 01 00000000:00000000 00:00000000 00000000  " +
           std::to_string(uid) + "        0 " + std::to_string(inode) + " 1 0 20 4 30 10 -1\n";
  }
  PeerPolicy Policy() { return PeerPolicy("tidemark-no-such-group", ProcRoot(root_)); }

  std::filesystem::path root_;
};

constexpr const char* kClient = "0100007F:9C40";  // 127.0.0.1:40000
constexpr const char* kServer = "0100007F:24FE";  // 127.0.0.1:9470

TEST_F(PeerTest, FindsTheOwnerOfTheClientsSocket) {
  Table("tcp", Row(kServer, kClient, 0, 11) + Row(kClient, kServer, 1234, 12));
  const auto viewer = Policy().OfTcp("127.0.0.1", 40000, 9470);
  ASSERT_TRUE(viewer);
  EXPECT_EQ(viewer->uid, 1234u);
  EXPECT_FALSE(viewer->sees_all);
  EXPECT_FALSE(viewer->Sees(0));
  EXPECT_TRUE(viewer->Sees(1234));
}

TEST_F(PeerTest, RootSeesAll) {
  Table("tcp", Row(kClient, kServer, 0, 12));
  EXPECT_TRUE(Policy().OfTcp("127.0.0.1", 40000, 9470)->sees_all);
}

TEST_F(PeerTest, ASocketThatIsClosedIsNotTakenForRoots) {
  Table("tcp", Row(kClient, kServer, 0, 0));
  EXPECT_FALSE(Policy().OfTcp("127.0.0.1", 40000, 9470));
}

TEST_F(PeerTest, TwoOwnersOfOneEndAreNone) {
  Table("tcp", Row(kClient, kServer, 0, 12) + Row(kClient, "0200007F:24FE", 1234, 13));
  EXPECT_FALSE(Policy().OfTcp("127.0.0.1", 40000, 9470));
}

TEST_F(PeerTest, AnotherPortOrMachineIsUnknown) {
  Table("tcp", Row(kClient, kServer, 1234, 12));
  EXPECT_FALSE(Policy().OfTcp("127.0.0.1", 40001, 9470));
  EXPECT_FALSE(Policy().OfTcp("127.0.0.1", 40000, 9471));
  EXPECT_FALSE(Policy().OfTcp("192.0.2.1", 40000, 9470));
  EXPECT_FALSE(Policy().OfTcp("no address", 40000, 9470));
}

TEST_F(PeerTest, ReadsIpv6AndMappedAddresses) {
  Table("tcp6", Row("00000000000000000000000001000000:9C40",
                    "00000000000000000000000001000000:24FE", 1234, 12));
  Table("tcp", Row(kClient, kServer, 1235, 13));
  EXPECT_EQ(Policy().OfTcp("::1", 40000, 9470)->uid, 1234u);
  EXPECT_EQ(Policy().OfTcp("::ffff:127.0.0.1", 40000, 9470)->uid, 1235u);
}

TEST_F(PeerTest, RowsThatMakeNoSenseAreSkipped) {
  Table("tcp", "rubbish\n" + std::string(3000, 'x') + "\n\n" + Row(kClient, kServer, 1234, 12));
  EXPECT_EQ(Policy().OfTcp("127.0.0.1", 40000, 9470)->uid, 1234u);
}

TEST_F(PeerTest, TheUserDatabaseTellsMembersOfTheGroup) {
  const group* bin = getgrnam("bin");  // user bin has it as primary group
  ASSERT_NE(bin, nullptr);
  Table("tcp", Row(kClient, kServer, 2, 12));  // uid 2 is bin
  EXPECT_TRUE(PeerPolicy("bin", ProcRoot(root_)).OfTcp("127.0.0.1", 40000, 9470)->sees_all);
  EXPECT_FALSE(Policy().OfTcp("127.0.0.1", 40000, 9470)->sees_all);
}

TEST_F(PeerTest, ADescriptorThatIsNoUnixSocketFails) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  EXPECT_FALSE(Policy().OfUnixSocket(pipe_ends[0]).ok());
  EXPECT_FALSE(Policy().OfUnixSocket(-1).ok());
  const int tcp = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_FALSE(Policy().OfUnixSocket(tcp).ok());
  for (const int fd : {pipe_ends[0], pipe_ends[1], tcp}) close(fd);
}

}  // namespace
}  // namespace tidemark::serve
