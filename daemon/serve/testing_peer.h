// Connections made by another uid, for tests that run as root: the kernel remembers who connected,
// so a child that has given up its rights connects and hands the descriptor back.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace tidemark::serve::testing {

inline constexpr uid_t kStranger = 61234;  // in nobody's user database

// Connected as `uid` with primary group `gid` and no others; invalid when that failed.
UniqueFd ConnectUnixAs(uid_t uid, gid_t gid, const std::string& path);
// As many connections; empty when that failed. At most 200.
std::vector<UniqueFd> ConnectManyUnixAs(uid_t uid, gid_t gid, const std::string& path,
                                        size_t count);
UniqueFd ConnectTcpAs(uid_t uid, gid_t gid, int port);  // 127.0.0.1

}  // namespace tidemark::serve::testing
