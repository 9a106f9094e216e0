// Certificate, key and the CA of clients as files that may be replaced while they are served:
// whoever rotates them (cert-manager, a Kubernetes secret, a script) tells nobody.
#pragma once

#include <sys/stat.h>

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

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

struct TlsTexts {
  std::string certificate;
  std::string key;
  std::string client_ca;
};

// The three files as they were when they last were all good. Thread-safe.
class TlsFiles {
 public:
  explicit TlsFiles(TlsPaths paths) : paths_(std::move(paths)) {}

  // All three can be read and the key belongs to the certificate; else the error names the file.
  Result<TlsTexts> Load();
  // Once for each time that files were replaced by good ones. What cannot be loaded, or does not
  // fit together because it is only half replaced, is left and looked at again at the next call.
  std::optional<TlsTexts> Replaced();

  const TlsPaths& paths() const { return paths_; }

 private:
  using Stamps = std::array<timespec, 3>;

  Stamps Look() const;
  Result<TlsTexts> Read() const;

  const TlsPaths paths_;
  std::mutex mutex_;
  Stamps stamps_ = {};
};

// OpenSSL's context over such files: each handshake looks whether they were replaced. Thread-safe
// once loaded.
class TlsContext {
 public:
  TlsContext(TlsPaths paths, ServeCounters& counters)
      : files_(std::move(paths)), counters_(counters) {}
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  Result<void> Load();
  // Where every handshake begins; lives as long as this object.
  ssl_ctx_st* Entry() const { return entry_.get(); }

 private:
  using Pointer = std::shared_ptr<ssl_ctx_st>;

  static int OnHello(ssl_st* connection, int* alert, void* self);
  static void OnEvent(const ssl_st* connection, int where, int value);
  Result<Pointer> Make(const TlsTexts& texts) const;
  Pointer Current();

  TlsFiles files_;
  ServeCounters& counters_;
  Pointer entry_;
  std::mutex mutex_;
  Pointer current_;
};

}  // namespace tidemark::serve
