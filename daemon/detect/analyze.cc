#include "daemon/detect/analyze.h"

#include <array>
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "daemon/detect/file_judge.h"
#include "daemon/detect/sample_file.h"

namespace tidemark::detect {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"not_leak", "not_leak_alert", "leak"};
constexpr int kExitLeak = 1;
constexpr int kExitBadInput = 2;

std::string_view ClassOf(const Analysis& analysis) {
  return analysis.cause == Cause::kNone ? ToString(analysis.state) : ToString(analysis.cause);
}

void PrintJson(const Analysis& analysis, std::ostream& out) {
  const auto finite = [](double value) {
    return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
  };
  const auto sample = [](const std::optional<uint64_t>& value) {
    return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
  };
  nlohmann::ordered_json json;
  json["verdict"] = ToString(analysis.verdict);
  json["class"] = ClassOf(analysis);
  json["state"] = ToString(analysis.state);
  json["ranks"] = analysis.ranks;
  json["metric"] = analysis.metric;
  json["slope_bytes_per_sample"] = finite(analysis.slope.per_unit);
  json["interval"] = {finite(analysis.slope.low), finite(analysis.slope.high)};
  json["first_flagged_sample"] = sample(analysis.first_flagged_sample);
  json["confirmed_sample"] = sample(analysis.confirmed_sample);
  json["detection_floor_bytes_per_sample"] = finite(analysis.detection_floor);
  json["evidence"] = analysis.evidence;
  // Metric names come from the file and may hold anything.
  out << json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

void PrintText(const Analysis& analysis, std::ostream& out) {
  out << ToString(analysis.verdict);
  if (analysis.cause != Cause::kNone) out << ": " << InfoOf(analysis.cause).title;
  out << "\n";
  if (analysis.verdict != FileVerdict::kNotLeak) {
    out << "  metric:  " << analysis.metric << "\n  ranks:  ";
    for (int32_t rank : analysis.ranks) out << " " << rank;
    out << "\n";
  }
  if (analysis.verdict == FileVerdict::kLeak) {
    out << "  slope:   " << FormatBytes(analysis.slope.per_unit) << " per sample ("
        << FormatBytes(analysis.slope.low) << " to " << FormatBytes(analysis.slope.high) << ")\n";
  }
  if (analysis.first_flagged_sample) {
    out << "  flagged: sample " << *analysis.first_flagged_sample << "\n";
  }
  for (const std::string& line : analysis.evidence) out << "  - " << line << "\n";
  if (analysis.verdict == FileVerdict::kNotLeak && std::isfinite(analysis.detection_floor)) {
    out << "  - growth below " << FormatBytes(analysis.detection_floor)
        << " per sample cannot be told yet\n";
  }
  if (analysis.cause != Cause::kNone) out << "  next: " << InfoOf(analysis.cause).action << "\n";
}

}  // namespace

std::string_view ToString(FileVerdict verdict) { return kNames[static_cast<size_t>(verdict)]; }

Result<Analysis> AnalyzeStream(std::istream& in, const std::string& name) {
  const Result<SampleFile> file = ReadSamples(in, name);
  if (!file.ok()) return file.error();
  return JudgeSamples(*file);
}

int RunAnalyze(const AnalyzeOptions& options, std::ostream& out, std::ostream& err) {
  std::ifstream file;
  if (options.path != "-") {
    file.open(options.path, std::ios::binary);
    // A directory opens but cannot be read from.
    if (!file.is_open() || (file.peek(), file.bad())) {
      err << "open " << options.path << ": no such file, or not readable\n";
      return kExitBadInput;
    }
  }
  const Result<Analysis> analysis =
      AnalyzeStream(options.path == "-" ? std::cin : file, options.path);
  if (!analysis.ok()) {
    err << analysis.error().ToString() << "\n";
    return kExitBadInput;
  }
  if (options.json) {
    PrintJson(*analysis, out);
  } else {
    PrintText(*analysis, out);
  }
  return analysis->verdict == FileVerdict::kLeak && options.fail_on_leak ? kExitLeak : 0;
}

}  // namespace tidemark::detect
