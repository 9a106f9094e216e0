// Colour and weight, on a terminal only. NO_COLOR switches them off, as everywhere.
#pragma once

#include <string>

namespace tidemark::client {

class Ink {
 public:
  // Plain text.
  Ink() = default;
  // Colours if `fd` is a terminal, TERM is not "dumb" and NO_COLOR is unset.
  static Ink For(int fd);
  static Ink Coloured() { return Ink(true); }

  std::string Bold(const std::string& text) const { return Wrap("1", text); }
  std::string Faint(const std::string& text) const { return Wrap("2", text); }
  std::string Red(const std::string& text) const { return Wrap("1;31", text); }
  std::string Yellow(const std::string& text) const { return Wrap("33", text); }
  std::string Green(const std::string& text) const { return Wrap("32", text); }

 private:
  explicit Ink(bool coloured) : coloured_(coloured) {}
  std::string Wrap(const char* code, const std::string& text) const;

  bool coloured_ = false;
};

// Columns that `text` takes on a terminal: escape sequences take none, each UTF-8 code point one.
size_t DisplayWidth(const std::string& text);

// `text` without control characters, which a job could otherwise send to the reader's terminal by
// way of a file or function name.
std::string Printable(const std::string& text);

}  // namespace tidemark::client
