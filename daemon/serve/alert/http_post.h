// One HTTP/1.1 POST over plain TCP, that takes no longer than it may and ends at once when asked
// to; the look-up of a name alone takes as long as the resolver does. Untrusted: what the server
// answers; only its status line is read.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tidemark::serve {

struct HttpUrl {
  std::string host;
  std::string port = "80";
  std::string path;  // "/prefix" or empty: never a final slash
};

// "http://alerts.example:9093", "http://[::1]:9093/prefix". https is refused with a hint.
Result<HttpUrl> ParseHttpUrl(std::string_view text);

// Succeeds with a status of 2xx. `stop_fd` readable: gives up.
Result<void> HttpPost(const HttpUrl& url, const std::string& path, const std::string& body,
                      std::chrono::milliseconds patience, int stop_fd);

}  // namespace tidemark::serve
