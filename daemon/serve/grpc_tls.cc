#include "daemon/serve/grpc_tls.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <utility>

namespace tidemark::serve {
namespace {

grpc_ssl_server_certificate_config* ConfigOf(const TlsTexts& texts) {
  const grpc_ssl_pem_key_cert_pair pair = {texts.key.c_str(), texts.certificate.c_str()};
  return grpc_ssl_server_certificate_config_create(texts.client_ca.c_str(), &pair, 1);
}

}  // namespace

Result<void> GrpcTls::Load() {
  const Result<TlsTexts> texts = files_.Load();
  if (!texts) return texts.error();
  loaded_ = *texts;
  return {};
}

int GrpcTls::AddPortToServer(const std::string& address, grpc_server* server) {
  // Called once here, and then by each handshake, one at a time.
  const auto fetch = [](void* self, grpc_ssl_server_certificate_config** config) {
    auto* tls = static_cast<GrpcTls*>(self);
    const std::optional<TlsTexts> texts =
        tls->loaded_ ? std::exchange(tls->loaded_, std::nullopt) : tls->files_.Replaced();
    if (!texts) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    *config = ConfigOf(*texts);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  };
  grpc_server_credentials* credentials = grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(
          GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, fetch, this));
  const int port = grpc_server_add_http2_port(server, address.c_str(), credentials);
  grpc_server_credentials_release(credentials);
  return port;
}

}  // namespace tidemark::serve
