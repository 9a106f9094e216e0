// Files for other people's tools, from what the API's messages hold: the same for a live daemon and
// for a recording. Pure; what is read may come from anywhere, so every text is escaped for its
// format and every sum is checked.
//
//   of the sites   pprof (gzip), torch (memory snapshot, pickle), folded, csv
//   of history     perfetto, openmetrics, csv
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::exports {

enum class Format : uint8_t { kPprof, kTorch, kFolded, kCsv, kPerfetto, kOpenMetrics };
enum class What : uint8_t { kLive, kGrowth, kPeak, kAllocations, kHistory };

struct Plan {
  Format format = Format::kPprof;
  What what = What::kLive;
  v1::Moment since;  // of kGrowth

  // Whether series, steps and marks are read rather than sites.
  bool of_history() const { return what == What::kHistory; }
};

// Fails with what there is instead when a word is unknown, or when the format cannot say it.
Result<Plan> MakePlan(const std::string& format, const std::string& what, const v1::Moment& since);

// pid, start time, class, device, site.
using SiteKey = std::tuple<int32_t, uint64_t, std::string, int32_t, uint64_t>;
SiteKey KeyOf(const v1::Process& process, const v1::Site& site);

struct Input {
  const v1::Snapshot* snapshot = nullptr;
  // Live bytes at Plan::since where that is a moment in time; absent = 0.
  std::map<SiteKey, int64_t> then;
  std::vector<v1::Series> series;  // by time
  std::vector<v1::Series> steps;   // by step
  std::vector<v1::HistoryMark> marks;
};

// Fails when nothing is there to be written, or when the moment is none.
Result<std::string> Write(const Plan& plan, const Input& input);

// The steps that the snapshot itself holds, as a query by step would answer: for daemons and
// recordings without history.
std::vector<v1::Series> StepSeries(const v1::Snapshot& snapshot);

// Site bytes of the latest points that are not newer than `unix_ns`.
std::map<SiteKey, int64_t> SitesAt(const std::vector<v1::Series>& series, uint64_t unix_ns);

}  // namespace tidemark::exports
