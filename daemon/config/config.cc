#include "daemon/config/config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <span>

#include "wire/handshake.h"

namespace tidemark {
namespace {

using Complaint = std::string;  // empty = fine
using Setter = std::function<Complaint(const YAML::Node&, Config*)>;

struct Unit {
  std::string_view name;
  uint64_t factor;
};

// A whole number and a unit; `what` is for the message.
Result<uint64_t> ParseWithUnit(std::string_view text, std::span<const Unit> units,
                               const std::string& what) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const Unit& known : units) {
    if (error != std::errc() || known.name != unit) continue;
    if (number > UINT64_MAX / 2 / known.factor) break;
    return number * known.factor;
  }
  return Error{"read " + what + " \"" + std::string(text) + "\"", "it is none", ""};
}

Setter Text(std::string Config::*field) {
  return [field](const YAML::Node& node, Config* config) -> Complaint {
    if (!node.IsScalar()) return "must be a text";
    config->*field = node.Scalar();
    return {};
  };
}

Setter Choice(std::string Config::*field, std::set<std::string> choices) {
  return [field, choices](const YAML::Node& node, Config* config) -> Complaint {
    if (node.IsScalar() && choices.contains(node.Scalar())) {
      config->*field = node.Scalar();
      return {};
    }
    std::string list;
    for (const std::string& choice : choices) list += (list.empty() ? "" : ", ") + choice;
    return "must be one of " + list;
  };
}

Setter Flag(bool Config::*field) {
  return [field](const YAML::Node& node, Config* config) -> Complaint {
    if (!YAML::convert<bool>::decode(node, config->*field)) return "must be true or false";
    return {};
  };
}

Setter Count(uint32_t Config::*field, uint32_t least, uint32_t most) {
  return [=](const YAML::Node& node, Config* config) -> Complaint {
    int64_t value = 0;
    if (!YAML::convert<int64_t>::decode(node, value) || value < least || value > most) {
      return "must be a number from " + std::to_string(least) + " to " + std::to_string(most);
    }
    config->*field = static_cast<uint32_t>(value);
    return {};
  };
}

Setter Bytes(uint64_t Config::*field) {
  return [field](const YAML::Node& node, Config* config) -> Complaint {
    const Result<uint64_t> bytes = node.IsScalar() ? ParseBytes(node.Scalar()) : ParseBytes("");
    if (!bytes.ok()) return "must be bytes, as in 64MiB";
    config->*field = *bytes;
    return {};
  };
}

Complaint SetHistory(const YAML::Node& node, Config* config) {
  const Complaint complaint = Bytes(&Config::history_bytes)(node, config);
  if (complaint.empty() && config->history_bytes != 0 && config->history_bytes < kLeastHistory) {
    return "must be 0 (keep none) or at least 16MiB";
  }
  return complaint;
}

Setter Listen(HttpListen Config::*field) {
  return [field](const YAML::Node& node, Config* config) -> Complaint {
    const Result<HttpListen> listen =
        node.IsScalar() ? ParseHttpListen(node.Scalar()) : ParseHttpListen("");
    if (!listen.ok()) return "must be ADDRESS:PORT or off";
    config->*field = *listen;
    return {};
  };
}

Complaint SetKeepFor(const YAML::Node& node, Config* config) {
  const Result<std::chrono::seconds> time =
      node.IsScalar() ? ParseDuration(node.Scalar()) : ParseDuration("");
  if (!time.ok()) return "must be a time, as in 15m";
  config->keep_ended_for = *time;
  return {};
}

Complaint SetAlertmanager(const YAML::Node& node, Config* config) {
  if (!node.IsScalar()) return "must be a URL, as in http://alerts:9093, or off";
  config->alertmanager = node.Scalar() == "off" ? "" : node.Scalar();
  if (config->alertmanager.empty() || config->alertmanager.starts_with("http://")) return {};
  return "must be a URL that begins with http://, or off; for TLS put a proxy in between";
}

Complaint SetResend(const YAML::Node& node, Config* config) {
  const Result<std::chrono::seconds> time =
      node.IsScalar() ? ParseDuration(node.Scalar()) : ParseDuration("");
  if (!time.ok() || time->count() < 1 || *time > std::chrono::hours(1)) {
    return "must be a time from 1s to 1h";
  }
  config->alert_resend = *time;
  return {};
}

Complaint SetTaps(const YAML::Node& node, Config* config) {
  const std::map<std::string, uint32_t> names = {
      {"cupti", wire::kTapCupti}, {"framework", wire::kTapFramework}, {"steps", wire::kTapSteps}};
  uint32_t taps = 0;
  for (const YAML::Node& entry : node) {
    const auto name = names.find(entry.IsScalar() ? entry.Scalar() : "");
    if (name == names.end()) return "must be a list of cupti, framework and steps";
    taps |= name->second;
  }
  if (taps == 0) return "must be a list of cupti, framework and steps; TIDEMARK=off switches off";
  config->taps = taps;
  return {};
}

Complaint SetDisabledFamilies(const YAML::Node& node, Config* config) {
  if (!node.IsSequence()) return "must be a list of probe families";
  config->bpf_disabled_families.clear();
  for (const YAML::Node& entry : node) {
    if (!entry.IsScalar()) return "must be a list of probe families";
    config->bpf_disabled_families.push_back(entry.Scalar());
  }
  return {};
}

// Every key, dots for nesting.
const std::map<std::string, Setter>& Keys() {
  static const std::map<std::string, Setter> keys = {
      {"agent.socket", Text(&Config::agent_socket)},
      {"agent.max_per_user", Count(&Config::max_agents_per_user, 1, 65536)},
      {"agent.taps", SetTaps},
      {"agent.sampling_interval", Bytes(&Config::sampling_interval_bytes)},
      {"api.socket", Text(&Config::api_socket)},
      {"api.group", Text(&Config::api_group)},
      {"api.listen", Listen(&Config::api_listen)},
      {"api.beyond_loopback", Flag(&Config::api_beyond_loopback)},
      {"http.listen", Listen(&Config::http)},
      {"http.tls", Flag(&Config::http_tls)},
      {"http.beyond_loopback", Flag(&Config::http_beyond_loopback)},
      {"http.token_file", Text(&Config::http_token_file)},
      {"metrics.level", Choice(&Config::metrics_level, {"basic", "full"})},
      {"tls.certificate", Text(&Config::tls_certificate)},
      {"tls.key", Text(&Config::tls_key)},
      {"tls.client_ca", Text(&Config::tls_client_ca)},
      {"state.directory", Text(&Config::state_directory)},
      {"state.regions", Bytes(&Config::keep_regions_bytes)},
      {"state.history", SetHistory},
      {"ended.keep", Count(&Config::keep_ended_processes, 0, 4096)},
      {"ended.keep_for", SetKeepFor},
      {"job", Text(&Config::training_job)},
      {"steps.backward_per_step", Count(&Config::backward_per_step, 0, 1 << 20)},
      {"steps.nvtx_range", Text(&Config::step_range)},
      {"nvml.enabled", Flag(&Config::nvml)},
      {"nvml.library", Text(&Config::nvml_library)},
      {"bpf.enabled", Flag(&Config::bpf)},
      {"bpf.disabled_families", SetDisabledFamilies},
      {"alerts.alertmanager", SetAlertmanager},
      {"alerts.resend", SetResend},
      {"log.level",
       Choice(&Config::log_level, {"trace", "debug", "info", "warn", "error", "critical", "off"})},
  };
  return keys;
}

Error At(const std::string& file, const YAML::Mark& mark, const std::string& key,
         const std::string& why) {
  const std::string place = mark.is_null() ? file : file + ":" + std::to_string(mark.line + 1);
  return Error{"read " + place, (key.empty() ? "" : key + ": ") + why,
               "docs/operations.md lists every key"};
}

Result<void> ReadMap(const YAML::Node& map, const std::string& prefix, const std::string& file,
                     Config* config) {
  for (const auto& entry : map) {
    const std::string key =
        prefix + (entry.first.IsScalar() ? entry.first.Scalar() : std::string("?"));
    const YAML::Mark mark = entry.first.Mark();
    const auto setter = Keys().find(key);
    if (setter != Keys().end()) {
      const Complaint complaint = setter->second(entry.second, config);
      if (!complaint.empty()) return At(file, mark, key, complaint);
      continue;
    }
    const auto nested = Keys().lower_bound(key + ".");
    const bool is_section = nested != Keys().end() && nested->first.starts_with(key + ".");
    if (!is_section) return At(file, mark, key, "no such key");
    if (entry.second.IsNull()) continue;
    if (!entry.second.IsMap()) return At(file, mark, key, "must hold keys of its own");
    const Result<void> read = ReadMap(entry.second, key + ".", file, config);
    if (!read.ok()) return read;
  }
  return {};
}

// What no single key shows.
Result<void> CheckTls(const YAML::Node& root, const std::string& file, const Config& config) {
  const std::string* const paths[] = {&config.tls_certificate, &config.tls_key,
                                      &config.tls_client_ca};
  const auto given = std::ranges::count_if(paths, [](const auto* path) { return !path->empty(); });
  if (given != 0 && given != 3) {
    return At(file, root["tls"].Mark(), "tls", "certificate, key and client_ca go together");
  }
  if (config.http_tls && given == 0) {
    return At(file, root["http"]["tls"].Mark(), "http.tls",
              "needs tls.certificate, tls.key and tls.client_ca");
  }
  return {};
}

}  // namespace

Result<uint64_t> ParseBytes(std::string_view text) {
  static constexpr std::array<Unit, 6> kUnits = {{{"", 1},
                                                  {"B", 1},
                                                  {"KiB", 1ull << 10},
                                                  {"MiB", 1ull << 20},
                                                  {"GiB", 1ull << 30},
                                                  {"TiB", 1ull << 40}}};
  return ParseWithUnit(text, kUnits, "bytes");
}

Result<std::chrono::seconds> ParseDuration(std::string_view text) {
  static constexpr std::array<Unit, 4> kUnits = {{{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}}};
  const Result<uint64_t> seconds = ParseWithUnit(text, kUnits, "a time");
  if (!seconds.ok()) return seconds.error();
  if (*seconds > 10ull * 366 * 86400) return Error{"read a time", "more than ten years", ""};
  return std::chrono::seconds(*seconds);
}

Result<HttpListen> ParseHttpListen(std::string_view text) {
  HttpListen listen;
  if (text == "off") {
    listen.enabled = false;
    return listen;
  }
  const Error error{"read the address \"" + std::string(text) + "\"",
                    "it is not ADDRESS:PORT or off", "as in 127.0.0.1:9470"};
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return error;
  std::string_view address = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (address.front() == '[' && address.back() == ']')
    address = address.substr(1, address.size() - 2);
  const auto [end, failed] = std::from_chars(port.data(), port.data() + port.size(), listen.port);
  if (failed != std::errc() || end != port.data() + port.size() || listen.port < 0 ||
      listen.port > 65535) {
    return error;
  }
  listen.address = address;
  return listen;
}

Result<void> ReadConfigText(const std::string& text, const std::string& name, Config* config) {
  // yaml-cpp reports by exceptions; none gets out of here.
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return {};
    if (!root.IsMap()) return At(name, root.Mark(), "", "must be a map of keys");
    if (const Result<void> read = ReadMap(root, "", name, config); !read) return read;
    return CheckTls(root, name, *config);
  } catch (const YAML::Exception& problem) {
    return At(name, problem.mark, "", problem.msg);
  }
}

Result<void> ReadConfigFile(const std::string& path, Config* config) {
  std::ifstream file(path);
  if (!file) return Error{"read " + path, "it cannot be opened", "give its path with --config"};
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return ReadConfigText(text, path, config);
}

}  // namespace tidemark
