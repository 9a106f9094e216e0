// What the server did and refused, for its own metrics. Written by server threads, read at scrape.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace tidemark::serve {

enum class Refusal : uint8_t {
  kTooManyConnections,       // on the gRPC socket, in all
  kTooManyConnectionsOfUid,  // on the gRPC socket, of one user
  kUnknownPeer,              // the kernel did not tell who it is
  kNotYours,                 // another user's process, or an act for the group only
  kBadRequest,               // arguments, path or method
  kBusy,                     // too many acts waiting
  kNoToken,                  // JSON from another machine without the right token
  kForeignHost,              // HTTP with a host name that is not ours (DNS rebinding)
  kSlowOrGone,               // an HTTP client that did not send or take in time
  kTlsHandshake,             // HTTPS without a certificate that the clients' CA signed
};

inline constexpr std::array<std::string_view, 10> kRefusalNames = {"too_many_connections",
                                                                   "too_many_connections_of_uid",
                                                                   "unknown_peer",
                                                                   "not_yours",
                                                                   "bad_request",
                                                                   "busy",
                                                                   "no_token",
                                                                   "foreign_host",
                                                                   "slow_or_gone",
                                                                   "tls_handshake"};
static_assert(kRefusalNames.size() == static_cast<size_t>(Refusal::kTlsHandshake) + 1);

struct ServeCounters {
  std::atomic<uint64_t> grpc_requests = 0;
  std::atomic<uint64_t> http_requests = 0;
  std::array<std::atomic<uint64_t>, kRefusalNames.size()> refusals = {};

  void Refuse(Refusal cause) {
    refusals[static_cast<size_t>(cause)].fetch_add(1, std::memory_order_relaxed);
  }
};

}  // namespace tidemark::serve
