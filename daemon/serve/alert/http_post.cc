#include "daemon/serve/alert/http_post.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/unique_fd.h"

namespace tidemark::serve {
namespace {

using std::chrono::steady_clock;

class Deadline {
 public:
  Deadline(std::chrono::milliseconds patience, int stop_fd)
      : end_(steady_clock::now() + patience), stop_fd_(stop_fd) {}

  // Until `fd` is ready for `events`; false when time is up or a stop was asked for.
  bool Wait(int fd, short events) const {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end_ - steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd fds[2] = {{fd, events, 0}, {stop_fd_, POLLIN, 0}};
    const int ready = ::poll(fds, 2, static_cast<int>(left.count()));
    return ready > 0 && fds[1].revents == 0;
  }

 private:
  steady_clock::time_point end_;
  int stop_fd_;
};

Result<UniqueFd> Connect(const HttpUrl& url, const Deadline& deadline) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found);
  if (failed != 0) return Error{"find " + url.host, ::gai_strerror(failed), ""};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  std::string why = "no address";
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    UniqueFd fd(::socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.valid()) continue;
    int error = ::connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof(error);
      if (!deadline.Wait(fd.get(), POLLOUT)) {
        error = ETIMEDOUT;
      } else if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
      }
    }
    if (error == 0) return fd;
    why = std::strerror(error);
  }
  return Error{"connect to " + url.host + ":" + url.port, why, ""};
}

}  // namespace

Result<HttpUrl> ParseHttpUrl(std::string_view text) {
  const auto bad = [text](const char* why, const char* hint) {
    return Error{"read the URL \"" + std::string(text) + "\"", why, hint};
  };
  constexpr std::string_view kScheme = "http://";
  if (text.starts_with("https://")) {
    return bad("TLS is not spoken here", "put a proxy on this node in between");
  }
  if (!text.starts_with(kScheme)) return bad("it does not begin with http://", "");
  std::string_view rest = text.substr(kScheme.size());
  HttpUrl url;
  const size_t slash = std::min(rest.find('/'), rest.size());
  url.path = rest.substr(slash);
  while (!url.path.empty() && url.path.back() == '/') url.path.pop_back();
  std::string_view host = rest.substr(0, slash);
  const size_t bracket = host.rfind(']');
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    url.port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  url.host = host;
  const bool digits = !url.port.empty() && url.port.size() <= 5 &&
                      std::ranges::all_of(url.port, [](char c) { return c >= '0' && c <= '9'; });
  if (url.host.empty() || !digits) return bad("it has no host, or no port", "");
  if (std::ranges::any_of(text, [](char c) { return c <= ' ' || c == '@' || c == 0x7f; })) {
    return bad("it holds a blank, a control character or a user", "");
  }
  return url;
}

Result<void> HttpPost(const HttpUrl& url, const std::string& path, const std::string& body,
                      std::chrono::milliseconds patience, int stop_fd) {
  const Deadline deadline(patience, stop_fd);
  const std::string what = "post to " + url.host + ":" + url.port;
  Result<UniqueFd> fd = Connect(url, deadline);
  if (!fd.ok()) return fd.error();
  const bool ipv6 = url.host.find(':') != std::string::npos;
  const std::string request =
      "POST " + url.path + path + " HTTP/1.1\r\nHost: " + (ipv6 ? "[" + url.host + "]" : url.host) +
      ":" + url.port +
      "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
      "\r\nConnection: close\r\n\r\n" + body;
  for (size_t sent = 0; sent < request.size();) {
    if (!deadline.Wait(fd->get(), POLLOUT)) return Error{what, "it does not take the message", ""};
    const ssize_t wrote =
        ::send(fd->get(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (wrote < 0 && errno != EAGAIN && errno != EINTR) {
      return Error{what, std::strerror(errno), ""};
    }
    if (wrote > 0) sent += static_cast<size_t>(wrote);
  }
  // "HTTP/1.1 200 OK": nothing after the status is of interest.
  std::string answer;
  while (answer.size() < 12) {
    if (!deadline.Wait(fd->get(), POLLIN)) return Error{what, "it does not answer", ""};
    char buffer[12];
    const ssize_t got = ::recv(fd->get(), buffer, sizeof(buffer) - answer.size(), 0);
    if (got == 0) return Error{what, "it hung up", ""};
    if (got < 0 && errno != EAGAIN && errno != EINTR) return Error{what, std::strerror(errno), ""};
    if (got > 0) answer.append(buffer, static_cast<size_t>(got));
  }
  if (answer.starts_with("HTTP/1.") && answer[8] == ' ' && answer[9] == '2') return {};
  return Error{what, "it answers \"" + answer + "\"", ""};
}

}  // namespace tidemark::serve
