// Strings as execve and posix_spawn take them.
#pragma once

#include <string>
#include <vector>

namespace tidemark::client {

// Valid as long as `strings` is not changed.
inline std::vector<char*> ArgvOf(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace tidemark::client
