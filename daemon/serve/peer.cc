#include "daemon/serve/peer.h"

#include <arpa/inet.h>
#include <grp.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

namespace tidemark::serve {
namespace {

std::optional<gid_t> LookUpGroup(const std::string& name) {
  if (name.empty()) return std::nullopt;
  std::vector<char> buffer(16384);
  group entry{};
  group* found = nullptr;
  while (getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) == ERANGE) {
    buffer.resize(buffer.size() * 2);
  }
  if (found == nullptr) return std::nullopt;
  return found->gr_gid;
}

// Whether the user database puts `uid` into `group`. What a TCP socket's owner had as supplementary
// groups is not to be had from the kernel.
bool InGroupByDatabase(uid_t uid, gid_t group) {
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  while (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == ERANGE) {
    buffer.resize(buffer.size() * 2);
  }
  if (found == nullptr) return false;
  int count = 64;
  std::vector<gid_t> groups(static_cast<size_t>(count));
  while (getgrouplist(found->pw_name, found->pw_gid, groups.data(), &count) < 0) {
    groups.resize(static_cast<size_t>(count));
  }
  groups.resize(static_cast<size_t>(count));
  return std::ranges::find(groups, group) != groups.end();
}

// An address as /proc/net/tcp writes it: each 32-bit word of the network-order bytes printed as a
// host-order number. Empty when `text` is no IP literal.
struct ProcAddress {
  const char* file = "";
  std::string hex;
};

ProcAddress ToProcAddress(std::string_view text) {
  const std::string address(text);
  in_addr v4{};
  in6_addr v6{};
  uint32_t words[4] = {};
  size_t word_count = 0;
  const char* file = "tcp";
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) {
    std::memcpy(words, &v4, sizeof v4);
    word_count = 1;
  } else if (inet_pton(AF_INET6, address.c_str(), &v6) == 1) {
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {  // the client's own socket is a plain IPv4 one
      std::memcpy(words, v6.s6_addr + 12, 4);
      word_count = 1;
    } else {
      std::memcpy(words, &v6, sizeof v6);
      word_count = 4;
      file = "tcp6";
    }
  }
  ProcAddress out{file, ""};
  for (size_t i = 0; i < word_count; ++i) {
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08X", words[i]);
    out.hex += digits;
  }
  return out;
}

}  // namespace

PeerPolicy::PeerPolicy(const std::string& group, ProcRoot proc_root)
    : group_(LookUpGroup(group)), proc_root_(std::move(proc_root)) {}

Viewer PeerPolicy::ForUid(uid_t uid, bool in_group) const {
  return {.sees_all = uid == 0 || uid == geteuid() || in_group, .uid = uid};
}

Result<Viewer> PeerPolicy::OfUnixSocket(int fd) const {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0 ||
      credentials.uid == static_cast<uid_t>(-1)) {
    return Error{"find out who connected", std::strerror(errno), ""};
  }
  if (!group_) return ForUid(credentials.uid, false);
  if (credentials.gid == *group_) return ForUid(credentials.uid, true);
  std::vector<gid_t> groups(64);
  while (true) {
    length = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &length) == 0) break;
    if (errno != ERANGE) return ForUid(credentials.uid, false);  // before Linux 4.13
    groups.resize(length / sizeof(gid_t));
  }
  groups.resize(length / sizeof(gid_t));
  return ForUid(credentials.uid, std::ranges::find(groups, *group_) != groups.end());
}

std::optional<Viewer> PeerPolicy::OfTcp(std::string_view remote_address, uint16_t remote_port,
                                        uint16_t local_port) const {
  const ProcAddress remote = ToProcAddress(remote_address);
  if (remote.hex.empty()) return std::nullopt;
  char client_end[48];
  std::snprintf(client_end, sizeof client_end, "%s:%04X", remote.hex.c_str(), remote_port);
  char our_port[8];
  std::snprintf(our_port, sizeof our_port, ":%04X", local_port);

  // "sl: local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...". The row sought
  // is the client's own socket, so its local end is our remote one.
  std::ifstream table(proc_root_.Proc() / "net" / remote.file);
  std::string line;
  std::getline(table, line);
  std::optional<uid_t> owner;
  while (std::getline(table, line)) {
    char local[48], remote_end[48];
    unsigned uid = 0;
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), " %*s %47s %47s %*s %*s %*s %*s %u %*s %lu", local, remote_end,
                    &uid, &inode) != 4) {
      continue;
    }
    if (std::strcmp(local, client_end) != 0 || !std::string_view(remote_end).ends_with(our_port)) {
      continue;
    }
    // A socket that its process has closed is shown without inode and as root's.
    if (inode == 0) return std::nullopt;
    if (owner && *owner != uid) return std::nullopt;
    owner = uid;
  }
  if (!owner) return std::nullopt;
  return ForUid(*owner, group_ && InGroupByDatabase(*owner, *group_));
}

}  // namespace tidemark::serve
