#include "cupti_agent/environment.h"

#include <cstring>

#include "wire/identity_variables.h"

namespace tidemark::agent {

size_t CollectEnvironment(GetEnv get, char* to, size_t room) {
  size_t used = 0;
  for (const std::string_view name : wire::kIdentityVariables) {
    const char* value = get(name.data());  // a literal, so zero-terminated
    if (value == nullptr) continue;
    const size_t name_bytes = name.size();
    const size_t value_bytes = strlen(value);
    if (used + name_bytes + 1 + value_bytes + 1 > room) continue;
    memcpy(to + used, name.data(), name_bytes);
    to[used + name_bytes] = '=';
    memcpy(to + used + name_bytes + 1, value, value_bytes + 1);
    used += name_bytes + 1 + value_bytes + 1;
  }
  return used;
}

}  // namespace tidemark::agent
