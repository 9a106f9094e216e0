// Which nodes a command asks, from a list, from the file that Prometheus discovers them by, or from
// Prometheus itself.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tidemark::client {

inline constexpr int kApiPort = 9471;

struct Target {
  std::string host;  // a name or an address, without brackets
  int port = kApiPort;

  // "gpu-1:9471", "[fd00::1]:9471".
  std::string Text() const;
  bool operator==(const Target&) const = default;
};

// "gpu-1:9471,gpu-2,[fd00::1]": without a port kApiPort. Repeated ones count once.
Result<std::vector<Target>> ParseTargets(std::string_view list);

// The hosts of a file_sd file (JSON). Their ports are those of the metrics, so `port` is asked.
Result<std::vector<Target>> ReadTargetsFile(const std::string& path, int port);

// The hosts that Prometheus scrapes Tidemark on, down ones included; `port` is asked.
Result<std::vector<Target>> TargetsOfPrometheus(const std::string& url, int port,
                                                std::chrono::milliseconds timeout);
// The same from what its /api/v1/targets answered.
Result<std::vector<Target>> ParsePrometheusTargets(const std::string& json, int port);

}  // namespace tidemark::client
