#include "daemon/serve/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

namespace tidemark::serve {
namespace {

constexpr size_t kMaxPemBytes = 1 << 20;

std::string LastReason() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason == nullptr ? "OpenSSL does not say why" : reason;
}

Error Refused(const std::string& what, const std::string& path) {
  return {"read the " + what + " from " + path, LastReason(),
          "it is a PEM file that the daemon's user can read; see docs/operations.md, TLS"};
}

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using PrivateKey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

Bio Over(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

// At least one, and nothing that begins as a certificate and is none.
std::vector<Certificate> ReadCertificates(const std::string& text) {
  std::vector<Certificate> found;
  const Bio bio = Over(text);
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    found.emplace_back(one, X509_free);
  }
  if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) found.clear();
  return found;
}

// Sets what the texts hold; the error names the file that a text is from.
Result<void> Use(const TlsTexts& texts, const TlsPaths& paths, SSL_CTX* context) {
  ERR_clear_error();
  const std::vector<Certificate> chain = ReadCertificates(texts.certificate);
  if (chain.empty() || SSL_CTX_use_certificate(context, chain.front().get()) != 1) {
    return Refused("certificate", paths.certificate);
  }
  for (size_t i = 1; i < chain.size(); ++i) SSL_CTX_add1_chain_cert(context, chain[i].get());
  ERR_clear_error();
  const PrivateKey key(PEM_read_bio_PrivateKey(Over(texts.key).get(), nullptr, nullptr, nullptr),
                       EVP_PKEY_free);
  // A key of another certificate is refused here too.
  if (!key || SSL_CTX_use_PrivateKey(context, key.get()) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return Refused("key", paths.key);
  }
  ERR_clear_error();
  const std::vector<Certificate> authorities = ReadCertificates(texts.client_ca);
  if (authorities.empty()) return Refused("clients' CA", paths.client_ca);
  for (const Certificate& authority : authorities) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get());
    SSL_CTX_add_client_CA(context, authority.get());
  }
  ERR_clear_error();
  return {};
}

}  // namespace

TlsFiles::Stamps TlsFiles::Look() const {
  Stamps stamps = {};
  size_t i = 0;
  for (const std::string* path : {&paths_.certificate, &paths_.key, &paths_.client_ca}) {
    struct stat info {};
    if (stat(path->c_str(), &info) == 0) stamps[i] = info.st_mtim;
    ++i;
  }
  return stamps;
}

Result<TlsTexts> TlsFiles::Read() const {
  TlsTexts texts;
  const std::pair<const std::string*, std::string*> files[] = {
      {&paths_.certificate, &texts.certificate},
      {&paths_.key, &texts.key},
      {&paths_.client_ca, &texts.client_ca}};
  for (const auto& [path, text] : files) {
    std::ifstream file(*path);
    // A missing file has a plain reason, which OpenSSL would hide.
    if (!file) {
      return Error{"read " + *path, std::strerror(errno), "set tls.certificate, key and client_ca"};
    }
    text->resize(kMaxPemBytes);
    file.read(text->data(), static_cast<std::streamsize>(kMaxPemBytes));
    text->resize(static_cast<size_t>(file.gcount()));
  }
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> trial(SSL_CTX_new(TLS_server_method()),
                                                                SSL_CTX_free);
  if (!trial) return Error{"start TLS", LastReason(), ""};
  if (const auto used = Use(texts, paths_, trial.get()); !used) return used.error();
  return texts;
}

Result<TlsTexts> TlsFiles::Load() {
  const std::lock_guard lock(mutex_);
  stamps_ = Look();
  return Read();
}

std::optional<TlsTexts> TlsFiles::Replaced() {
  const std::lock_guard lock(mutex_);
  // Before reading: what is replaced meanwhile is looked at again.
  const Stamps now = Look();
  const bool same = std::ranges::equal(now, stamps_, [](const timespec& a, const timespec& b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
  });
  if (same) return std::nullopt;
  const Result<TlsTexts> texts = Read();
  if (!texts) return std::nullopt;
  stamps_ = now;
  return *texts;
}

Result<std::shared_ptr<ssl_ctx_st>> TlsContext::Make(const TlsTexts& texts) const {
  const Pointer context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (!context) return Error{"start TLS", LastReason(), ""};
  if (const auto used = Use(texts, files_.paths(), context.get()); !used) return used.error();
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // A resumed session would skip the client's certificate, also after its CA was replaced.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_info_callback(context.get(), &TlsContext::OnEvent);
  return context;
}

Result<void> TlsContext::Load() {
  const Result<TlsTexts> texts = files_.Load();
  if (!texts) return texts.error();
  Result<Pointer> made = Make(*texts);
  if (!made) return made.error();
  current_ = *made;
  // The entry's own files are never used again: each hello is given the current ones.
  entry_ = *made;
  SSL_CTX_set_client_hello_cb(entry_.get(), &TlsContext::OnHello, this);
  return {};
}

TlsContext::Pointer TlsContext::Current() {
  const std::optional<TlsTexts> texts = files_.Replaced();
  const std::lock_guard lock(mutex_);
  if (texts) {
    if (const Result<Pointer> made = Make(*texts)) current_ = *made;
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
