// OpenMetrics with timestamps, under the names that /metrics has: to be filled into a Prometheus by
// `promtool tsdb create-blocks-from openmetrics`. The mean of each point.
#include <array>
#include <cstdio>
#include <map>
#include <vector>

#include "daemon/serve/export_stacks.h"

namespace tidemark::exports {
namespace {

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

void Label(const char* name, const std::string& value, std::string* labels) {
  if (value.empty()) return;  // the same as no label
  *labels += (labels->empty() ? "" : ",") + std::string(name) + "=\"" + Escaped(value) + "\"";
}

std::string NumberText(int32_t number) { return number < 0 ? "" : std::to_string(number); }

struct Family {
  std::string name;
  std::string labels;
};

Family FamilyOf(const v1::Series& line) {
  const v1::ProcessRef& process = line.process();
  Family family{"tidemark_memory_bytes", ""};
  if (process.pid() == 0 && line.memory_class() == "available") {
    family.name = "tidemark_node_memory_bytes";
    Label("kind", "available", &family.labels);
    return family;
  }
  if (process.pid() == 0) {
    family.name = "tidemark_device_used_bytes";
    Label("device", NumberText(line.device()), &family.labels);
    return family;
  }
  Label("training_job", process.training_job(), &family.labels);
  Label("rank", NumberText(process.rank()), &family.labels);
  Label("local_rank", NumberText(process.local_rank()), &family.labels);
  Label("device", NumberText(line.device()), &family.labels);
  Label("class", line.memory_class(), &family.labels);
  // A rank's helpers and its restarts have the same labels otherwise, and a series is written once.
  Label("pid", std::to_string(process.pid()), &family.labels);
  return family;
}

void AddPoints(const v1::Series& line, const Family& family, std::string* text) {
  uint64_t last_ms = 0;
  for (int i = 0; i < line.unix_ns_size(); ++i) {
    // Time must grow; where a clock was set back the later rows are left out.
    const uint64_t unix_ms = line.unix_ns(i) / 1'000'000;
    if (unix_ms <= last_ms) continue;
    last_ms = unix_ms;
    std::array<char, 64> value;
    std::snprintf(value.data(), value.size(), " %ld %lu.%03lu\n", line.mean_bytes(i),
                  unix_ms / 1000, unix_ms % 1000);
    *text += family.name + "{" + family.labels + "}" + value.data();
  }
}

}  // namespace

std::string WriteOpenMetrics(const Input& input) {
  // A family's series stand together.
  std::map<std::string, std::map<std::string, const v1::Series*>> families;
  for (const v1::Series& line : input.series) {
    if (line.site_id() != 0) continue;
    const Family family = FamilyOf(line);
    families[family.name].try_emplace(family.labels, &line);
  }
  std::string text;
  for (const auto& [name, series] : families) {
    text += "# TYPE " + name + " gauge\n# UNIT " + name + " bytes\n";
    for (const auto& [labels, line] : series) AddPoints(*line, {name, labels}, &text);
  }
  return text + "# EOF\n";
}

}  // namespace tidemark::exports
