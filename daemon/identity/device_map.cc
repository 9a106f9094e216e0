#include "daemon/identity/device_map.h"

#include <charconv>
#include <optional>
#include <string_view>

namespace tidemark {
namespace {

// One entry of CUDA_VISIBLE_DEVICES: an ordinal, or a UUID that may be cut short.
std::optional<int> Resolve(std::string_view entry, const std::vector<std::string>& uuids) {
  while (!entry.empty() && entry.front() == ' ') entry.remove_prefix(1);
  while (!entry.empty() && entry.back() == ' ') entry.remove_suffix(1);
  int ordinal = -1;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), ordinal);
  if (error == std::errc() && end == entry.data() + entry.size() && ordinal >= 0 &&
      ordinal < 1024) {
    return ordinal;
  }
  if (!entry.starts_with("GPU-")) return std::nullopt;
  std::optional<int> found;
  for (size_t i = 0; i < uuids.size(); ++i) {
    if (!uuids[i].starts_with(entry)) continue;
    if (found) return std::nullopt;  // CUDA takes only what is unambiguous
    found = static_cast<int>(i);
  }
  return found;
}

// CUDA stops at the first entry that means nothing.
std::vector<int> ParseList(std::string_view list, const std::vector<std::string>& uuids) {
  std::vector<int> devices;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::optional<int> device = Resolve(list.substr(0, comma), uuids);
    if (!device) break;
    devices.push_back(*device);
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return devices;
}

std::vector<int> ListOf(const Variables& variables, std::string_view name,
                        const std::vector<std::string>& uuids) {
  const auto it = variables.find(name);
  return it == variables.end() ? std::vector<int>() : ParseList(it->second, uuids);
}

}  // namespace

DeviceMap::DeviceMap(const Variables& variables, const std::vector<std::string>& uuids,
                     const std::vector<int>& held_on) {
  // The container runtime's choice numbers what CUDA_VISIBLE_DEVICES then chooses from.
  const std::vector<int> runtime = ListOf(variables, "NVIDIA_VISIBLE_DEVICES", uuids);
  node_of_ = ListOf(variables, "CUDA_VISIBLE_DEVICES", uuids);
  const auto visible = variables.find("CUDA_VISIBLE_DEVICES");
  const bool by_uuid = visible != variables.end() && visible->second.starts_with("GPU-");
  if (node_of_.empty()) {
    node_of_ = runtime;
  } else if (!by_uuid) {
    for (int& device : node_of_) {
      if (static_cast<size_t>(device) < runtime.size())
        device = runtime[static_cast<size_t>(device)];
    }
  }
  if (held_on.size() == 1 && node_of_.size() <= 1) node_of_ = held_on;
}

int DeviceMap::ToNode(int ordinal) const {
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= node_of_.size()) return ordinal;
  return node_of_[static_cast<size_t>(ordinal)];
}

}  // namespace tidemark
