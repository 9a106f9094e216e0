// Where a daemon may be: the node's own, or the private one of this user.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "client/environment.h"

namespace tidemark::client {

inline constexpr char kSocketVariable[] = "TIDEMARK_SOCKET";
inline constexpr char kNodeApiSocket[] = "/run/tidemark/api.sock";

// $XDG_RUNTIME_DIR/tidemark, else /tmp/tidemark-UID. Nothing is created or checked.
std::string PrivateDirectory(const Environment& environment, uid_t uid);

// Creates the directory with mode 0700, or checks that what is there is a directory (no link) of
// this user that nobody else can enter: /tmp is everybody's, and a socket in a directory made by
// somebody else would hand them the job's call stacks.
Result<void> PreparePrivateDirectory(const std::string& directory, uid_t uid);

// Sockets to try, best first. `asked` is --socket and, like TIDEMARK_SOCKET, the only one if given.
std::vector<std::string> ApiSocketCandidates(const std::string& asked,
                                             const Environment& environment, uid_t uid);

// Whether something accepts on the socket; a left-over file does not.
Result<void> ProbeSocket(const std::string& path);

}  // namespace tidemark::client
