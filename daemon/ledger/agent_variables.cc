#include "daemon/ledger/agent_variables.h"

#include <algorithm>
#include <string_view>

namespace tidemark {

Variables VariablesOf(const RegionCopy& region) {
  Variables variables;
  const uint32_t bytes = std::min(region.header.environment_bytes, wire::kEnvironmentBytes);
  std::string_view rest(region.header.environment, bytes);
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    const size_t equals = entry.find('=');
    if (equals != std::string_view::npos) {
      variables.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    }
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
  }
  return variables;
}

}  // namespace tidemark
