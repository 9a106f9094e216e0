#include "daemon/serve/testing_peer.h"

#include <arpa/inet.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace tidemark::serve::testing {
namespace {

constexpr size_t kMaxDescriptors = 200;  // the kernel passes at most 253 at once

// One byte and room for descriptors.
struct Parcel {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> control = {};
  msghdr message{};

  explicit Parcel(size_t count) {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
  }
};

// Runs in a child of a process with threads: only plain system calls.
[[noreturn]] void ConnectAndHandBack(uid_t uid, gid_t gid, const sockaddr* address,
                                     socklen_t length, size_t count, int back) {
  if (setgroups(0, nullptr) != 0 || setresgid(gid, gid, gid) != 0 ||
      setresuid(uid, uid, uid) != 0) {
    _exit(1);
  }
  std::array<int, kMaxDescriptors> fds;
  for (size_t i = 0; i < count; ++i) {
    fds[i] = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fds[i] < 0 || connect(fds[i], address, length) != 0) _exit(2);
  }
  Parcel parcel(count);
  cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(count * sizeof(int));
  std::memcpy(CMSG_DATA(header), fds.data(), count * sizeof(int));
  _exit(sendmsg(back, &parcel.message, 0) == 1 ? 0 : 3);
}

std::vector<UniqueFd> ConnectAs(uid_t uid, gid_t gid, const sockaddr* address, socklen_t length,
                                size_t count) {
  count = std::min(count, kMaxDescriptors);
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return {};
  const UniqueFd ours(pair[0]);
  UniqueFd theirs(pair[1]);
  const pid_t child = fork();
  if (child == 0) ConnectAndHandBack(uid, gid, address, length, count, theirs.get());
  theirs.Reset();
  Parcel parcel(count);
  const ssize_t got = recvmsg(ours.get(), &parcel.message, MSG_CMSG_CLOEXEC);
  waitpid(child, nullptr, 0);
  const cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  if (got != 1 || header == nullptr) return {};
  std::array<int, kMaxDescriptors> fds;
  std::memcpy(fds.data(), CMSG_DATA(header), count * sizeof(int));
  std::vector<UniqueFd> out;
  for (size_t i = 0; i < count; ++i) out.emplace_back(fds[i]);
  return out;
}

UniqueFd First(std::vector<UniqueFd> fds) {
  return fds.empty() ? UniqueFd() : std::move(fds.front());
}

}  // namespace

std::vector<UniqueFd> ConnectManyUnixAs(uid_t uid, gid_t gid, const std::string& path,
                                        size_t count) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return ConnectAs(uid, gid, reinterpret_cast<const sockaddr*>(&address), sizeof address, count);
}

UniqueFd ConnectUnixAs(uid_t uid, gid_t gid, const std::string& path) {
  return First(ConnectManyUnixAs(uid, gid, path, 1));
}

UniqueFd ConnectTcpAs(uid_t uid, gid_t gid, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return First(ConnectAs(uid, gid, reinterpret_cast<const sockaddr*>(&address), sizeof address, 1));
}

}  // namespace tidemark::serve::testing
