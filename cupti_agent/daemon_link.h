// The agent's side of the handshake (wire/handshake.h): offers the region to a daemon whenever one
// appears, and hears its commands. Never blocks: every socket operation is non-blocking, and it
// runs on the agent's own thread alone.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "wire/handshake.h"

namespace tidemark::agent {

struct RegionOffer {
  int fd = -1;
  uint64_t region_bytes = 0;
  uint64_t agent_id = 0;
  pid_t pid = 0;
};

class DaemonLink {
 public:
  class Listener {
   public:
    virtual void OnAccepted(const wire::Reply& reply) = 0;
    virtual void OnCommand(const wire::Command& command) = 0;

   protected:
    ~Listener() = default;
  };

  // `own_socket` is where this job's daemon listens (TIDEMARK_AGENT_SOCKET), may be null; copied.
  // `node_socket` is the node's daemon.
  DaemonLink(const char* own_socket, const char* node_socket);

  // Connects if it is time to, and waits at most `wait_ms` for something to happen.
  void Poll(const RegionOffer& offer, Listener* listener, int wait_ms);

  bool connected() const { return fd_ >= 0; }
  void Close();

 private:
  bool Connect(const char* path, const RegionOffer& offer);
  void Receive(Listener* listener);

  static constexpr uint64_t kRetryNs = 250'000'000;
  static constexpr uint64_t kRefusedRetryNs = 10'000'000'000;

  char own_socket_[108];
  char node_socket_[108];
  int fd_ = -1;
  bool accepted_ = false;
  uint64_t next_try_ns_ = 0;
};

}  // namespace tidemark::agent
