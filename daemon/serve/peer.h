// Who asks, as the kernel tells it. A peer's own words are never used.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/proc_root.h"
#include "base/result.h"

namespace tidemark::serve {

// What a peer may see. File paths in stacks are other people's data, so whoever is not root, not
// the daemon's own user and not in its group sees only processes of its own uid.
struct Viewer {
  bool sees_all = false;
  uid_t uid = 0;
  bool remote = false;  // on another machine: reads, and changes nothing here

  bool Sees(uid_t owner) const { return sees_all || uid == owner; }
  auto operator<=>(const Viewer&) const = default;
};

// Immutable after construction; usable from any thread.
class PeerPolicy {
 public:
  // `group` may not exist on this machine: then only root and the daemon's user see everything.
  explicit PeerPolicy(const std::string& group, ProcRoot proc_root = ProcRoot());

  std::optional<gid_t> group() const { return group_; }

  // The peer of a connected unix socket, by SO_PEERCRED and SO_PEERGROUPS: as of its connect().
  // Fails when `fd` is no unix socket.
  Result<Viewer> OfUnixSocket(int fd) const;

  // The peer of a TCP connection to our `local_port`, by the owner of its socket in this network
  // namespace; nullopt when the peer is on another machine or in another namespace, or when the
  // kernel's table does not tell one owner.
  std::optional<Viewer> OfTcp(std::string_view remote_address, uint16_t remote_port,
                              uint16_t local_port) const;

 private:
  Viewer ForUid(uid_t uid, bool in_group) const;

  std::optional<gid_t> group_;
  ProcRoot proc_root_;
};

}  // namespace tidemark::serve
