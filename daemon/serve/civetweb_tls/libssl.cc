// Stands between CivetWeb and OpenSSL 3. CivetWeb 1.15, as distributions build it, opens
// "libssl.so" and looks up SSL_get_peer_certificate in it, a name that OpenSSL 3 kept only as a
// macro; without it CivetWeb has no TLS and crashes at the first connection. This library bears
// that name, is loaded before, has the function, and leads to OpenSSL for all else.
#include <openssl/ssl.h>
#undef SSL_get_peer_certificate

extern "C" {

// The caller frees the certificate, as of old.
__attribute__((visibility("default"))) X509* SSL_get_peer_certificate(const SSL* connection) {
  return SSL_get1_peer_certificate(connection);
}

// What the daemon refers to, so that no linker leaves the library out.
__attribute__((visibility("default"))) int tidemark_civetweb_tls() { return 1; }
}
