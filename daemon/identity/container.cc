#include "daemon/identity/container.h"

#include <algorithm>
#include <array>

namespace tidemark {
namespace {

constexpr size_t kIdHexDigits = 64;

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// The last part of `name` after a dash, and the rest.
std::pair<std::string_view, std::string_view> SplitLast(std::string_view name) {
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || dash == 0) return {name, {}};
  return {name.substr(0, dash), name.substr(dash + 1)};
}

}  // namespace

std::string ContainerIdOf(std::string_view cgroup_path) {
  // Innermost first: a container's own cgroups hang below it ("/init").
  while (!cgroup_path.empty()) {
    const size_t slash = cgroup_path.rfind('/');
    std::string_view part =
        slash == std::string_view::npos ? cgroup_path : cgroup_path.substr(slash + 1);
    if (part.ends_with(".scope")) part.remove_suffix(6);
    // "cri-containerd-ID", "crio-ID", "docker-ID", "libpod-ID", "kubepods-...:cri-containerd:ID".
    const size_t separator = part.find_last_of("-:");
    if (separator != std::string_view::npos) part.remove_prefix(separator + 1);
    if (part.size() == kIdHexDigits && IsHex(part)) return std::string(part);
    if (slash == std::string_view::npos) break;
    cgroup_path = cgroup_path.substr(0, slash);
  }
  return {};
}

std::map<std::string, PodName> ReadPodNames(const std::filesystem::path& log_directory) {
  std::map<std::string, PodName> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(log_directory, error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    if (!name.ends_with(".log")) continue;
    name.resize(name.size() - 4);
    const size_t first = name.find('_');
    const size_t second = name.find('_', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto [container, id] = SplitLast(std::string_view(name).substr(second + 1));
    if (id.size() != kIdHexDigits || !IsHex(id)) continue;
    names[std::string(id)] = {name.substr(first + 1, second - first - 1), name.substr(0, first),
                              std::string(container)};
  }
  return names;
}

std::string OwnerOfPod(std::string_view pod) {
  // Kubernetes draws random suffixes from letters and digits that form no words.
  constexpr std::string_view kRandom = "bcdfghjklmnpqrstvwxz2456789";
  constexpr std::array<std::string_view, 8> kRoles = {"worker", "master", "launcher", "chief",
                                                      "head",   "node",   "ps",       "task"};
  auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (const auto [rest, last] = SplitLast(pod);
      last.size() == 5 && !is_number(last) &&
      last.find_first_not_of(kRandom) == std::string_view::npos) {
    pod = rest;
    const auto [before, hash] = SplitLast(pod);  // a Deployment's template hash
    if (hash.size() >= 8 && hash.size() <= 10 && hash.find_first_of("0123456789") != hash.npos &&
        hash.find_first_not_of(kRandom) == std::string_view::npos) {
      pod = before;
    }
  }
  if (const auto [rest, last] = SplitLast(pod); is_number(last)) pod = rest;
  if (const auto [rest, last] = SplitLast(pod);
      std::find(kRoles.begin(), kRoles.end(), last) != kRoles.end()) {
    pod = rest;
  }
  return std::string(pod);
}

}  // namespace tidemark
