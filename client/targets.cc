#include "client/targets.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "client/http_get.h"

namespace tidemark::client {
namespace {

using Json = nlohmann::json;

std::optional<Target> ParseOne(std::string_view text) {
  Target target;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    target.host = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    if (!text.empty() && !text.starts_with(':')) return std::nullopt;
    if (!text.empty()) port = text.substr(1);
    if (text == ":") return std::nullopt;
  } else {
    const size_t colon = text.find(':');
    target.host = text.substr(0, colon);
    if (colon != std::string_view::npos) {
      port = text.substr(colon + 1);
      if (port.empty()) return std::nullopt;
    }
  }
  const bool odd = std::ranges::any_of(target.host, [](unsigned char c) {
    return c <= ' ' || c >= 127 || c == '/' || c == '@' || c == '%';
  });
  if (target.host.empty() || odd) return std::nullopt;
  if (port.empty()) return target;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), target.port);
  if (error != std::errc() || end != port.data() + port.size()) return std::nullopt;
  if (target.port < 1 || target.port > 65535) return std::nullopt;
  return target;
}

void AddOnce(const Target& target, std::vector<Target>* targets) {
  if (std::ranges::find(*targets, target) == targets->end()) targets->push_back(target);
}

}  // namespace

std::string Target::Text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<std::vector<Target>> ParseTargets(std::string_view list) {
  std::vector<Target> targets;
  while (!list.empty()) {
    const std::string_view one = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), one.size() + 1));
    const std::optional<Target> target = ParseOne(one);
    if (!target) {
      return Error{"read the target \"" + std::string(one) + "\"", "it is not HOST or HOST:PORT",
                   "as in --targets gpu-1:9471,gpu-2:9471"};
    }
    AddOnce(*target, &targets);
  }
  return targets;
}

Result<std::vector<Target>> ReadTargetsFile(const std::string& path, int port) {
  const std::string tried = "read the targets in " + path;
  std::ifstream file(path);
  if (!file) return Error{tried, "it cannot be opened", "give a file_sd file of Prometheus"};
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Json groups = Json::parse(text, nullptr, false);
  const Error no_file_sd{tried, "it is no JSON list of {\"targets\": [...]}",
                         "deploy/slurm/tidemark-nodes writes such a file"};
  if (!groups.is_array()) return no_file_sd;
  std::vector<Target> targets;
  for (const Json& group : groups) {
    if (!group.is_object() || !group.contains("targets") || !group["targets"].is_array()) {
      return no_file_sd;
    }
    for (const Json& entry : group["targets"]) {
      const auto target = entry.is_string() ? ParseOne(entry.get<std::string>()) : std::nullopt;
      if (!target) return Error{tried, entry.dump() + " is not HOST:PORT", ""};
      AddOnce({target->host, port}, &targets);
    }
  }
  return targets;
}

Result<std::vector<Target>> ParsePrometheusTargets(const std::string& json, int port) {
  const Error strange{"ask Prometheus for its targets", "the answer is not that of /api/v1/targets",
                      "give the address of a Prometheus, as in http://prometheus:9090"};
  const Json answer = Json::parse(json, nullptr, false);
  if (!answer.is_object() || answer.value("status", Json()) != "success") return strange;
  const Json data = answer.value("data", Json::object());
  if (!data.is_object()) return strange;
  const Json active = data.value("activeTargets", Json());
  if (!active.is_array()) return strange;
  std::vector<Target> targets;
  for (const Json& entry : active) {
    const Json labels = entry.is_object() ? entry.value("labels", Json()) : Json();
    if (!labels.is_object()) return strange;
    const Json job = labels.value("job", Json());
    const Json instance = labels.value("instance", Json());
    if (!job.is_string() || !instance.is_string()) continue;
    // As in the rules: a job of ours has the name in it.
    if (job.get<std::string>().find("tidemark") == std::string::npos) continue;
    if (const auto target = ParseOne(instance.get<std::string>())) {
      AddOnce({target->host, port}, &targets);
    }
  }
  return targets;
}

Result<std::vector<Target>> TargetsOfPrometheus(const std::string& url, int port,
                                                std::chrono::milliseconds timeout) {
  const Result<std::string> answer = HttpGet(url, "/api/v1/targets?state=active", timeout);
  if (!answer) return answer.error();
  return ParsePrometheusTargets(*answer, port);
}

}  // namespace tidemark::client
