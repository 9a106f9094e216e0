// The environment as a value, so that a test can pass another.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tidemark::client {

class Environment {
 public:
  Environment() = default;
  Environment(std::initializer_list<std::pair<const std::string, std::string>> variables)
      : variables_(variables) {}
  // That of this process.
  static Environment OfProcess();

  // Empty variables count as unset: launchers like to export them so.
  std::optional<std::string> Get(const std::string& name) const;
  void Set(const std::string& name, const std::string& value) { variables_[name] = value; }
  void Unset(const std::string& name) { variables_.erase(name); }

  // "NAME=VALUE", as execve takes them.
  std::vector<std::string> Strings() const;

 private:
  std::map<std::string, std::string> variables_;
};

}  // namespace tidemark::client
