// What an operator may set, with its defaults. One structure for the file and the flags; a flag
// wins over the file.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tidemark {

inline constexpr char kConfigPath[] = "/etc/tidemark/tidemarkd.yaml";

inline constexpr uint64_t kLeastHistory = 16ull << 20;  // less would hold next to nothing

struct HttpListen {
  bool enabled = true;
  std::string address = "127.0.0.1";
  int port = 9470;
  bool operator==(const HttpListen&) const = default;
};

struct Config {
  std::string agent_socket = "/run/tidemark/agent.sock";
  uint32_t max_agents_per_user = 256;

  std::string api_socket = "/run/tidemark/api.sock";
  std::string api_group = "tidemark";
  HttpListen api_listen{false, "", 9471};  // gRPC over TCP
  bool api_beyond_loopback = false;

  HttpListen http;
  bool http_beyond_loopback = false;
  bool http_tls = false;
  std::string http_token_file;
  std::string metrics_level = "basic";

  // All three or none.
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_client_ca;

  std::string state_directory = "/var/lib/tidemark";
  uint32_t keep_ended_processes = 64;
  std::chrono::seconds keep_ended_for{3600};
  uint64_t keep_regions_bytes = 256ull << 20;
  uint64_t history_bytes = 256ull << 20;  // 0 = none is kept

  std::string training_job;
  // Told to every agent; 0 and empty leave what the agent finds out itself.
  uint32_t backward_per_step = 0;
  std::string step_range;
  uint32_t taps = 0;  // wire::TapMask
  uint64_t sampling_interval_bytes = 0;

  bool nvml = true;
  std::string nvml_library = "libnvidia-ml.so.1";
  bool bpf = true;
  std::vector<std::string> bpf_disabled_families;

  std::string alertmanager;  // "http://host:9093"; empty = off: Prometheus has the alerts
  std::chrono::seconds alert_resend{30};

  std::string log_level = "info";
};

// Reads the file over `config`. An error names file, line and key: unknown keys, wrong types and
// values out of range are errors, so that a slip is not silently a default.
Result<void> ReadConfigFile(const std::string& path, Config* config);
// The same from text; `name` stands for the file in messages.
Result<void> ReadConfigText(const std::string& text, const std::string& name, Config* config);

// "127.0.0.1:9470", "[::1]:0", "off".
Result<HttpListen> ParseHttpListen(std::string_view text);
// "8MiB", "1GiB", "4096".
Result<uint64_t> ParseBytes(std::string_view text);
// "90s", "15m", "2h", "7d".
Result<std::chrono::seconds> ParseDuration(std::string_view text);

}  // namespace tidemark
