#include "client/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace tidemark::client {

Ink Ink::For(int fd) {
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  const bool wanted = no_color == nullptr || *no_color == '\0';
  const bool able = term != nullptr && std::strcmp(term, "dumb") != 0;
  return Ink(wanted && able && ::isatty(fd) == 1);
}

std::string Ink::Wrap(const char* code, const std::string& text) const {
  if (!coloured_ || text.empty()) return text;
  return std::string("\033[") + code + "m" + text + "\033[0m";
}

size_t DisplayWidth(const std::string& text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      while (i < text.size() && text[i] != 'm') ++i;
    } else if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
      ++width;
    }
  }
  return width;
}

std::string Printable(const std::string& text) {
  std::string clean;
  clean.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    clean += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return clean;
}

}  // namespace tidemark::client
