#include "daemon/serve/tls_files.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

namespace tidemark::serve {
namespace {

std::string LastReason() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason == nullptr ? "OpenSSL does not say why" : reason;
}

Error Refused(const std::string& what, const std::string& path) {
  return {"read the " + what + " from " + path, LastReason(),
          "it is a PEM file that the daemon's user can read; see docs/operations.md, TLS"};
}

}  // namespace

Result<std::shared_ptr<ssl_ctx_st>> TlsContext::Make() const {
  // A missing file has a plain reason, which OpenSSL would hide.
  for (const std::string* path : {&paths_.certificate, &paths_.key, &paths_.client_ca}) {
    if (!std::ifstream(*path)) {
      return Error{"read " + *path, std::strerror(errno), "set tls.certificate, key and client_ca"};
    }
  }
  ERR_clear_error();
  const Pointer context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (!context) return Error{"start TLS", LastReason(), ""};
  if (SSL_CTX_use_certificate_chain_file(context.get(), paths_.certificate.c_str()) != 1) {
    return Refused("certificate", paths_.certificate);
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), paths_.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return Refused("key", paths_.key);
  }
  if (SSL_CTX_load_verify_locations(context.get(), paths_.client_ca.c_str(), nullptr) != 1) {
    return Refused("clients' CA", paths_.client_ca);
  }
  STACK_OF(X509_NAME)* names = SSL_load_client_CA_file(paths_.client_ca.c_str());
  if (names == nullptr) return Refused("clients' CA", paths_.client_ca);
  SSL_CTX_set_client_CA_list(context.get(), names);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // A resumed session would skip the client's certificate, also after its CA was replaced.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_info_callback(context.get(), &TlsContext::OnEvent);
  return context;
}

Result<void> CheckTlsFiles(const TlsPaths& paths) {
  ServeCounters unused;
  return TlsContext(paths, unused).Load();
}

Result<void> TlsContext::Load() {
  stamps_ = Look();
  Result<Pointer> made = Make();
  if (!made) return made.error();
  current_ = *made;
  // The entry's own files are never used again: each hello is given the current ones.
  entry_ = *made;
  SSL_CTX_set_client_hello_cb(entry_.get(), &TlsContext::OnHello, this);
  return {};
}

TlsContext::Stamps TlsContext::Look() const {
  Stamps stamps = {};
  size_t i = 0;
  for (const std::string* path : {&paths_.certificate, &paths_.key, &paths_.client_ca}) {
    struct stat info {};
    if (stat(path->c_str(), &info) == 0) stamps[i] = info.st_mtim;
    ++i;
  }
  return stamps;
}

TlsContext::Pointer TlsContext::Current() {
  const Stamps now = Look();
  const std::lock_guard lock(mutex_);
  const bool same = std::ranges::equal(now, stamps_, [](const timespec& a, const timespec& b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
  });
  if (same) return current_;
  // Half-written files do not fit together: they are looked at again at the next handshake.
  if (const Result<Pointer> made = Make()) {
    current_ = *made;
    stamps_ = now;
  }
  return current_;
}

int TlsContext::OnHello(ssl_st* connection, int*, void* self) {
  SSL_set_app_data(connection, static_cast<char*>(self));
  const Pointer current = static_cast<TlsContext*>(self)->Current();
  SSL_set_SSL_CTX(connection, current.get());  // holds a reference of its own
  return SSL_CLIENT_HELLO_SUCCESS;
}

// A handshake that we end with an alert was refused: no certificate, a wrong one, or no TLS at all.
void TlsContext::OnEvent(const ssl_st* connection, int where, int value) {
  if ((where & SSL_CB_WRITE_ALERT) != SSL_CB_WRITE_ALERT || (value >> 8) != SSL3_AL_FATAL) return;
  auto* self = static_cast<TlsContext*>(SSL_get_app_data(connection));
  if (self != nullptr) self->counters_.Refuse(Refusal::kTlsHandshake);
}

}  // namespace tidemark::serve
