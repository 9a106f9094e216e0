// gRPC's server credentials over TlsFiles: each handshake looks whether the files were replaced,
// and while they are rubbish the last good ones go on. gRPC's own watcher of files refuses
// everybody then, and aborts the process over an empty one.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "daemon/serve/tls_files.h"

namespace tidemark::serve {

// Belongs to the thread that builds the server; must outlive that server.
class GrpcTls final : public grpc::ServerCredentials {
 public:
  explicit GrpcTls(TlsPaths paths) : files_(std::move(paths)) {}

  // Before the server is built; the error names the file that is wrong.
  Result<void> Load();

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override;

  TlsFiles files_;
  std::optional<TlsTexts> loaded_;  // what the first fetch gets
};

}  // namespace tidemark::serve
