#include "client/socket_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/unique_fd.h"

namespace tidemark::client {
namespace {

using ::testing::ElementsAre;

class SocketPathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tidemark-socket-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
};

TEST_F(SocketPathTest, TheNodesDaemonComesBeforeThePrivateOne) {
  const Environment environment{{"XDG_RUNTIME_DIR", "/run/user/7"}};
  EXPECT_THAT(ApiSocketCandidates("", environment, 7),
              ElementsAre("/run/tidemark/api.sock", "/run/user/7/tidemark/api.sock"));
}

TEST_F(SocketPathTest, WithoutARuntimeDirectoryThePrivateOneIsBelowTmp) {
  EXPECT_THAT(ApiSocketCandidates("", Environment(), 7),
              ElementsAre("/run/tidemark/api.sock", "/tmp/tidemark-7/api.sock"));
}

TEST_F(SocketPathTest, AnOptionBeatsTheVariableAndBothAreTheOnlyCandidate) {
  const Environment environment{{"TIDEMARK_SOCKET", "/v.sock"}};
  EXPECT_THAT(ApiSocketCandidates("/o.sock", environment, 7), ElementsAre("/o.sock"));
  EXPECT_THAT(ApiSocketCandidates("", environment, 7), ElementsAre("/v.sock"));
}

TEST_F(SocketPathTest, AnEmptyVariableCountsAsUnset) {
  EXPECT_EQ(ApiSocketCandidates("", Environment{{"TIDEMARK_SOCKET", ""}}, 7).size(), 2u);
}

TEST_F(SocketPathTest, APrivateDirectoryIsMadeForItsUserAlone) {
  const std::string path = directory_ + "/tidemark";
  ASSERT_TRUE(PreparePrivateDirectory(path, ::getuid()).ok());
  struct stat status;
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_TRUE(PreparePrivateDirectory(path, ::getuid()).ok()) << "a second time";
}

TEST_F(SocketPathTest, ADirectoryThatOthersMayEnterIsRefused) {
  const std::string path = directory_ + "/open";
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0711), 0);
  const auto result = PreparePrivateDirectory(path, ::getuid());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().why, "others may enter it");
}

TEST_F(SocketPathTest, SomebodyElsesDirectoryIsRefused) {
  const std::string path = directory_ + "/theirs";
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  const auto result = PreparePrivateDirectory(path, ::getuid() + 1);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().why, "it belongs to uid " + std::to_string(::getuid()));
}

TEST_F(SocketPathTest, ALinkIsRefusedWhereverItPoints) {
  const std::string path = directory_ + "/link";
  ASSERT_EQ(::symlink(directory_.c_str(), path.c_str()), 0);
  const auto result = PreparePrivateDirectory(path, ::getuid());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().why, "it is not a directory");
}

TEST_F(SocketPathTest, ASocketFileNobodyListensOnDoesNotAnswer) {
  const std::string path = directory_ + "/left.sock";
  {
    const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    ASSERT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(::listen(fd.get(), 1), 0);
    EXPECT_TRUE(ProbeSocket(path).ok());
  }
  ASSERT_TRUE(std::filesystem::exists(path));
  const auto result = ProbeSocket(path);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().why, "Connection refused");
}

TEST_F(SocketPathTest, APathTooLongForASocketSaysSo) {
  const auto result = ProbeSocket("/" + std::string(200, 'x'));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().why, "the path is longer than a unix socket's may be");
}

}  // namespace
}  // namespace tidemark::client
