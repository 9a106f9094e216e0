// Certificate, key and the CA of clients as files that may be replaced while they are served:
// whoever rotates them (cert-manager, a Kubernetes secret, a script) tells nobody.
#pragma once

#include <sys/stat.h>

#include <array>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "daemon/serve/serve_counters.h"

struct ssl_ctx_st;
struct ssl_st;

namespace tidemark::serve {

// PEM. All three or none: there is no TLS here without client certificates.
struct TlsPaths {
  std::string certificate;  // the chain, ours first
  std::string key;
  std::string client_ca;

  bool enabled() const { return !certificate.empty(); }
};

// Whether all three can be read and the key belongs to the certificate. The error names the file.
Result<void> CheckTlsFiles(const TlsPaths& paths);

// OpenSSL's context for servers that do not watch their files themselves. Each handshake looks
// whether a file was replaced; what cannot be loaded then is left, and the last good one goes on.
// Thread-safe once loaded.
class TlsContext {
 public:
  TlsContext(TlsPaths paths, ServeCounters& counters)
      : paths_(std::move(paths)), counters_(counters) {}
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  Result<void> Load();
  // Where every handshake begins; lives as long as this object.
  ssl_ctx_st* Entry() const { return entry_.get(); }

 private:
  using Pointer = std::shared_ptr<ssl_ctx_st>;
  using Stamps = std::array<timespec, 3>;

  static int OnHello(ssl_st* connection, int* alert, void* self);
  static void OnEvent(const ssl_st* connection, int where, int value);
  Result<Pointer> Make() const;
  Stamps Look() const;
  Pointer Current();

  const TlsPaths paths_;
  ServeCounters& counters_;
  Pointer entry_;
  std::mutex mutex_;
  Pointer current_;
  Stamps stamps_ = {};
};

}  // namespace tidemark::serve
