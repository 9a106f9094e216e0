#include "cupti_agent/daemon_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "cupti_agent/ledger/monotonic.h"
#include "wire/region.h"

namespace tidemark::agent {

DaemonLink::DaemonLink(const char* own_socket, const char* node_socket) {
  snprintf(own_socket_, sizeof(own_socket_), "%s", own_socket == nullptr ? "" : own_socket);
  snprintf(node_socket_, sizeof(node_socket_), "%s", node_socket);
}

void DaemonLink::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  accepted_ = false;
}

bool DaemonLink::Connect(const char* path, const RegionOffer& offer) {
  if (path[0] == '\0') return false;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;

  wire::Hello hello = {};
  hello.magic = wire::kHandshakeMagic;
  hello.abi = wire::kRegionAbi;
  hello.region_bytes = offer.region_bytes;
  hello.agent_id = offer.agent_id;
  hello.pid = offer.pid;
  iovec part{&hello, sizeof(hello)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(rights), &offer.fd, sizeof(int));

  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      sendmsg(fd, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(hello))) {
    close(fd);
    return false;
  }
  fd_ = fd;
  accepted_ = false;
  return true;
}

void DaemonLink::Poll(const RegionOffer& offer, Listener* listener, int wait_ms) {
  if (fd_ < 0 && MonotonicNs() >= next_try_ns_) {
    next_try_ns_ = MonotonicNs() + kRetryNs;
    if (!Connect(own_socket_, offer)) Connect(node_socket_, offer);
  }
  if (fd_ < 0) {
    const timespec nap{wait_ms / 1000, wait_ms % 1000 * 1'000'000L};
    nanosleep(&nap, nullptr);
    return;
  }
  pollfd wait{fd_, POLLIN, 0};
  if (poll(&wait, 1, wait_ms) > 0) Receive(listener);
}

// The daemon's first packet is its answer, all others are commands. Anything else ends it.
void DaemonLink::Receive(Listener* listener) {
  union {
    wire::Reply reply;
    wire::Command command;
    char room[256];
  } packet;
  const ssize_t bytes = recv(fd_, &packet, sizeof(packet), MSG_DONTWAIT | MSG_TRUNC);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (!accepted_) {
    if (bytes != static_cast<ssize_t>(sizeof(wire::Reply)) ||
        packet.reply.magic != wire::kHandshakeMagic) {
      return Close();
    }
    if (packet.reply.code != static_cast<uint32_t>(wire::ReplyCode::kAccepted)) {
      Close();
      next_try_ns_ = MonotonicNs() + kRefusedRetryNs;
      return;
    }
    accepted_ = true;
    packet.reply.step_range[sizeof(packet.reply.step_range) - 1] = '\0';
    listener->OnAccepted(packet.reply);
    return;
  }
  if (bytes != static_cast<ssize_t>(sizeof(wire::Command)) ||
      packet.command.magic != wire::kHandshakeMagic) {
    return Close();
  }
  listener->OnCommand(packet.command);
}

}  // namespace tidemark::agent
