// Accepts on the API socket. gRPC could listen itself, but it tells nobody the peer's uid and has
// no limit per user; so connections are accepted here, judged, and handed over as descriptors.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/serve/peer.h"
#include "daemon/serve/serve_counters.h"

namespace tidemark::serve {

class UnixListener {
 public:
  // Who sees all is exempt from the total, so that strangers cannot lock the operator out.
  static constexpr size_t kMaxConnections = 512;
  static constexpr size_t kMaxConnectionsOfUid = 128;

  using Accepted = std::function<void(UniqueFd)>;  // non-blocking; called on the accept thread

  UnixListener(std::string path, const PeerPolicy& peers, ServeCounters& counters)
      : path_(std::move(path)), peers_(peers), counters_(counters) {}
  ~UnixListener() { Stop(); }

  // Binds (mode 0666, the policy's group), replaces a socket that nobody serves any more, starts
  // the accept thread. Fails when another daemon serves the path.
  Result<void> Start(Accepted accepted);

  // Joins the accept thread and unlinks the path if it is still ours. Idempotent.
  void Stop();

 private:
  struct Connection {
    int fd;
    ino_t inode;
    Viewer viewer;
  };

  void Run();
  void AcceptOne();
  bool Admit(const Viewer& viewer);

  const std::string path_;
  const PeerPolicy& peers_;
  ServeCounters& counters_;
  Accepted accepted_;
  UniqueFd listening_;
  UniqueFd stop_event_;
  struct stat bound_ = {};
  std::vector<Connection> open_;  // accept thread only
  std::thread thread_;
};

}  // namespace tidemark::serve
