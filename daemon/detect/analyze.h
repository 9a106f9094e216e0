// `tidemark analyze FILE`: the daemon's detector, offline, on metrics that people already have.
//
// Reads a CSV `sample,rank,metric,value` (one sample = one step or one poll; bytes, or counts) or
// the JSON of a Prometheus range query. The same code judges as in the daemon, and it only looks
// backwards: `first_flagged_sample` is where an online run would have raised it.
//
// The file is untrusted: what is truncated, unsorted, repeated, not a number, negative or absurd
// gives a message with the line, and no verdict.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/detect/cause.h"
#include "daemon/detect/verdict.h"

namespace tidemark::detect {

struct AnalyzeOptions {
  std::string path;           // "-" = standard input
  bool json = false;          // one object, documented in docs/runbooks/README.md
  bool fail_on_leak = false;  // exit status 1 when the verdict is `leak`
};

enum class FileVerdict : uint8_t { kNotLeak, kNotLeakAlert, kLeak };
std::string_view ToString(FileVerdict verdict);  // "not_leak", "not_leak_alert", "leak"

struct Analysis {
  FileVerdict verdict = FileVerdict::kNotLeak;
  Cause cause = Cause::kNone;  // "class" in the JSON
  VerdictState state = VerdictState::kSteady;
  std::vector<int32_t> ranks;  // affected
  std::string metric;          // that the verdict stems from; empty when nothing was found
  Slope slope;                 // bytes (or counts) per sample
  std::optional<uint64_t> first_flagged_sample;
  std::optional<uint64_t> confirmed_sample;
  double detection_floor = 0;  // smallest slope that could be told, per sample
  std::vector<std::string> evidence;
};

// Reads and judges. `name` is for messages.
Result<Analysis> AnalyzeStream(std::istream& in, const std::string& name);

// Exit status: 0 done, 1 a leak and fail_on_leak, 2 the file could not be read or judged.
int RunAnalyze(const AnalyzeOptions& options, std::ostream& out, std::ostream& err);

}  // namespace tidemark::detect
