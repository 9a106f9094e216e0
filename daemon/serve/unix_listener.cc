#include "daemon/serve/unix_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace tidemark::serve {
namespace {

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Error{"listen on " + path, "a socket's path has 1 to 107 bytes",
                 "set api_socket to a shorter path"};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return address;
}

const sockaddr* Generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

// What a daemon that was killed left behind would make bind fail for ever.
Result<void> RemoveIfAbandoned(const std::string& path, const sockaddr_un& address) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) {
    return Error{"listen on " + path, "something that is no socket is there", "move it away"};
  }
  const UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(probe.get(), Generic(address), sizeof address) == 0 || errno == EAGAIN) {
    return Error{"listen on " + path, "another tidemarkd serves it",
                 "stop that one, or set another api_socket"};
  }
  unlink(path.c_str());
  return {};
}

}  // namespace

Result<void> UnixListener::Start(Accepted accepted) {
  const Result<sockaddr_un> address = AddressOf(path_);
  if (!address) return address.error();
  if (const auto free = RemoveIfAbandoned(path_, *address); !free) return free.error();

  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || bind(fd.get(), Generic(*address), sizeof *address) != 0) {
    return Error{"listen on " + path_, std::strerror(errno),
                 "the directory must exist and be writable to the daemon"};
  }
  // Everybody may connect; what each may see is decided by uid. The group is for `ls`.
  if (peers_.group()) (void)!chown(path_.c_str(), static_cast<uid_t>(-1), *peers_.group());
  if (chmod(path_.c_str(), 0666) != 0 || listen(fd.get(), SOMAXCONN) != 0 ||
      stat(path_.c_str(), &bound_) != 0) {
    const int error = errno;
    unlink(path_.c_str());
    return Error{"listen on " + path_, std::strerror(error), ""};
  }
  listening_ = std::move(fd);
  stop_event_.Reset(eventfd(0, EFD_CLOEXEC));
  accepted_ = std::move(accepted);
  thread_ = std::thread([this] { Run(); });
  return {};
}

void UnixListener::Stop() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_event_.get(), 1);
  thread_.join();
  listening_.Reset();
  // Another daemon may have taken the path over meanwhile.
  struct stat now {};
  if (stat(path_.c_str(), &now) == 0 && now.st_dev == bound_.st_dev &&
      now.st_ino == bound_.st_ino) {
    unlink(path_.c_str());
  }
}

void UnixListener::Run() {
  pthread_setname_np(pthread_self(), "api-accept");
  while (true) {
    pollfd fds[] = {{listening_.get(), POLLIN, 0}, {stop_event_.get(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents != 0) return;
    AcceptOne();
  }
}

void UnixListener::AcceptOne() {
  UniqueFd fd(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    // Out of descriptors or memory: the connection stays in the backlog, so do not spin on it.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return;
  }
  const Result<Viewer> viewer = peers_.OfUnixSocket(fd.get());
  if (!viewer) return counters_.Refuse(Refusal::kUnknownPeer);
  if (!Admit(*viewer)) return;
  struct stat info {};
  fstat(fd.get(), &info);
  open_.push_back({fd.get(), info.st_ino, *viewer});
  accepted_(std::move(fd));
}

bool UnixListener::Admit(const Viewer& viewer) {
  // gRPC closes descriptors without telling; a number that now stands for another file is a closed
  // connection.
  std::erase_if(open_, [](const Connection& connection) {
    struct stat info {};
    return fstat(connection.fd, &info) != 0 || !S_ISSOCK(info.st_mode) ||
           info.st_ino != connection.inode;
  });
  const auto of_uid = std::ranges::count(
      open_, viewer.uid, [](const Connection& connection) { return connection.viewer.uid; });
  if (static_cast<size_t>(of_uid) >= kMaxConnectionsOfUid) {
    counters_.Refuse(Refusal::kTooManyConnectionsOfUid);
    return false;
  }
  if (!viewer.sees_all && open_.size() >= kMaxConnections) {
    counters_.Refuse(Refusal::kTooManyConnections);
    return false;
  }
  return true;
}

}  // namespace tidemark::serve
