// IP literals as text.
#pragma once

#include <string>

namespace tidemark::serve {

bool IsIpAddress(const std::string& text);
bool IsLoopback(const std::string& address);
// "127.0.0.1:9470", "[::1]:9470".
std::string HostAndPort(const std::string& address, int port);

}  // namespace tidemark::serve
