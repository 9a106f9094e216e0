// Recoverable failures as values. A failure says what was tried, why it failed and what to do
// about it, so that whoever prints it never has to guess.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace tidemark {

struct Error {
  std::string tried;  // "open /etc/tidemark/tidemarkd.yaml"
  std::string why;    // "permission denied"
  std::string hint;   // "run as root, or pass --config"; may be empty

  // One line for a person: "TRIED: WHY (HINT)".
  std::string ToString() const {
    std::string line = tried + ": " + why;
    if (!hint.empty()) line += " (" + hint + ")";
    return line;
  }
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT: implicit, so `return value;` works
  Result(Error error) : state_(std::move(error)) {}  // NOLINT: implicit, so `return Error{}` works

  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }

  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

  const Error& error() const { return std::get<Error>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit, as above

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

}  // namespace tidemark
