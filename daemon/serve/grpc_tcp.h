// gRPC for other machines.
#pragma once

#include <string>

#include "daemon/serve/tls_files.h"

namespace tidemark::serve {

struct GrpcTcp {
  std::string address = {};  // IP literal; empty = not served
  int port = 9471;           // 0 = any free one, told by BoundApiPort()
  TlsPaths tls = {};         // with it, every client shows a certificate that client_ca signed
  // Without TLS an address beyond loopback is refused unless this is set; then whoever can connect
  // sees every process. On loopback the kernel tells whose connection it is.
  bool beyond_loopback = false;
};

}  // namespace tidemark::serve
