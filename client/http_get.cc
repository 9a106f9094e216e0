#include "client/http_get.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/unique_fd.h"

namespace tidemark::client {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostBytes = 64 << 20;

struct Place {
  std::string host;
  std::string port = "80";
  std::string prefix;  // path that stands in the URL
};

Result<Place> Parse(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const Error error{"read the URL " + url, "it is not http://HOST:PORT",
                    "Prometheus behind TLS: write its targets to a file, or use a local proxy"};
  if (!url.starts_with(kScheme)) return error;
  std::string rest = url.substr(kScheme.size());
  Place place;
  if (const size_t slash = rest.find('/'); slash != std::string::npos) {
    place.prefix = rest.substr(slash);
    rest.resize(slash);
    while (place.prefix.ends_with('/')) place.prefix.pop_back();
  }
  const size_t bracket = rest.rfind(']');
  const size_t colon = rest.rfind(':');
  if (colon != std::string::npos && (bracket == std::string::npos || colon > bracket)) {
    place.port = rest.substr(colon + 1);
    rest.resize(colon);
  }
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  place.host = rest;
  if (place.host.empty() || url.find_first_of(" \r\n") != std::string::npos) return error;
  return place;
}

bool WaitFor(int fd, short events, Clock::time_point end) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  pollfd wanted{fd, events, 0};
  return left > 0 && poll(&wanted, 1, static_cast<int>(left)) == 1;
}

Result<UniqueFd> Connect(const Place& place, Clock::time_point end, const std::string& tried) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(place.host.c_str(), place.port.c_str(), &hints, &found)) {
    return Error{tried, gai_strerror(error), ""};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  std::string why = "no address";
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    UniqueFd fd(socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) continue;
    int error = 0;
    if (connect(fd.get(), one->ai_addr, one->ai_addrlen) != 0) {
      error = errno;
      if (error == EINPROGRESS) {
        socklen_t length = sizeof error;
        error = ETIMEDOUT;
        if (WaitFor(fd.get(), POLLOUT, end)) {
          getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
        }
      }
    }
    if (error == 0) return fd;
    why = std::strerror(error);
  }
  return Error{tried, why, "see whether Prometheus runs there"};
}

}  // namespace

Result<std::string> HttpGet(const std::string& url, const std::string& path,
                            std::chrono::milliseconds timeout) {
  const Result<Place> place = Parse(url);
  if (!place) return place.error();
  const std::string tried = "ask " + url;
  const Clock::time_point end = Clock::now() + timeout;
  Result<UniqueFd> fd = Connect(*place, end, tried);
  if (!fd) return fd.error();

  // HTTP/1.0: the body ends with the connection and is never chunked.
  const std::string request = "GET " + place->prefix + path + " HTTP/1.0\r\nHost: " + place->host +
                              "\r\nAccept: application/json\r\n\r\n";
  for (size_t sent = 0; sent < request.size();) {
    const ssize_t count =
        send(fd->get(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (count > 0) {
      sent += static_cast<size_t>(count);
    } else if (errno != EAGAIN || !WaitFor(fd->get(), POLLOUT, end)) {
      return Error{tried, std::strerror(errno), ""};
    }
  }
  std::string answer;
  char piece[16384];
  while (true) {
    const ssize_t count = recv(fd->get(), piece, sizeof piece, 0);
    if (count == 0) break;
    if (count > 0) {
      answer.append(piece, static_cast<size_t>(count));
      if (answer.size() > kMostBytes) return Error{tried, "the answer is beyond 64 MiB", ""};
    } else if (errno != EAGAIN) {
      return Error{tried, std::strerror(errno), ""};
    } else if (!WaitFor(fd->get(), POLLIN, end)) {
      return Error{tried, "it did not answer in time", "give more with --timeout"};
    }
  }
  const size_t head = answer.find("\r\n\r\n");
  const std::string_view status = std::string_view(answer).substr(0, answer.find("\r\n"));
  if (head == std::string::npos || !status.starts_with("HTTP/1.")) {
    return Error{tried, "the answer is no HTTP", ""};
  }
  if (status.substr(0, 13).find(" 200") == std::string_view::npos) {
    return Error{tried, "it answered " + std::string(status.substr(0, 80)), ""};
  }
  return answer.substr(head + 4);
}

}  // namespace tidemark::client
