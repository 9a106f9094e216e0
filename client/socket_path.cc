#include "client/socket_path.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "base/unique_fd.h"

namespace tidemark::client {

std::string PrivateDirectory(const Environment& environment, uid_t uid) {
  if (const auto runtime = environment.Get("XDG_RUNTIME_DIR")) return *runtime + "/tidemark";
  return "/tmp/tidemark-" + std::to_string(uid);
}

Result<void> PreparePrivateDirectory(const std::string& directory, uid_t uid) {
  const std::string tried = "use " + directory + " for the private daemon";
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return Error{tried, std::strerror(errno),
                 "set XDG_RUNTIME_DIR to a directory of your own that exists"};
  }
  struct stat status;
  if (::lstat(directory.c_str(), &status) != 0) return Error{tried, std::strerror(errno), ""};
  if (!S_ISDIR(status.st_mode)) return Error{tried, "it is not a directory", "remove it"};
  if (status.st_uid != uid) {
    return Error{tried, "it belongs to uid " + std::to_string(status.st_uid),
                 "set XDG_RUNTIME_DIR to a directory of your own"};
  }
  if ((status.st_mode & 077) != 0) {
    return Error{tried, "others may enter it", "chmod 700 " + directory};
  }
  return {};
}

std::vector<std::string> ApiSocketCandidates(const std::string& asked,
                                             const Environment& environment, uid_t uid) {
  if (!asked.empty()) return {asked};
  if (const auto variable = environment.Get(kSocketVariable)) return {*variable};
  return {kNodeApiSocket, PrivateDirectory(environment, uid) + "/api.sock"};
}

Result<void> ProbeSocket(const std::string& path) {
  const std::string tried = "connect to " + path;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error{tried, "the path is longer than a unix socket's may be", "use a shorter path"};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Error{tried, std::strerror(errno), ""};
  // EAGAIN: the daemon lives but its queue is full.
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
      errno != EAGAIN) {
    return Error{tried, std::strerror(errno), ""};
  }
  return {};
}

}  // namespace tidemark::client
