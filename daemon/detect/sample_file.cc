#include "daemon/detect/sample_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <istream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "daemon/detect/metric_kind.h"

namespace tidemark::detect {
namespace {

constexpr std::string_view kHeader = "sample,rank,metric,value";
constexpr double kLargestValue = 0x1p60;
constexpr uint64_t kLargestSample = uint64_t{1} << 40;
constexpr int32_t kLargestRank = 1 << 20;
constexpr size_t kMostPoints = 20'000'000;
constexpr size_t kMostSeries = 10'000;
constexpr size_t kLongestName = 256;

Error At(const std::string& name, size_t line, std::string why, std::string hint = "") {
  return Error{"read " + name + ", line " + std::to_string(line), std::move(why), std::move(hint)};
}

std::string Shown(std::string_view text) {
  std::string shown;
  for (char c : text.substr(0, 40)) {
    shown += static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e ? '?' : c;
  }
  return "'" + shown + (text.size() > 40 ? "...'" : "'");
}

// A finite number of the range that memory can have; otherwise says why not.
Result<int64_t> ParseValue(std::string_view text) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string shown = Shown(text);
  if (status == std::errc::result_out_of_range) {
    return Error{"", "the value " + shown + " is out of range", ""};
  }
  if (status != std::errc{} || end != text.data() + text.size()) {
    return Error{"", "the value " + shown + " is no number", ""};
  }
  if (!std::isfinite(value)) return Error{"", "the value " + shown + " is not finite", ""};
  if (value < 0) return Error{"", "the value " + shown + " is negative", ""};
  if (value > kLargestValue) {
    return Error{"", "the value " + shown + " is more than any machine has (2^60)", ""};
  }
  return static_cast<int64_t>(std::llround(value));
}

template <typename T>
std::optional<T> ParseInteger(std::string_view text) {
  T value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Result<SampleFile> ReadCsv(std::string_view text, const std::string& name) {
  SampleFile file;
  size_t line_number = 0;
  size_t points = 0;
  size_t series_count = 0;
  std::string_view last_metric;
  std::map<int32_t, std::vector<Sample>>* ranks = nullptr;
  while (!text.empty()) {
    ++line_number;
    const size_t newline = text.find('\n');
    if (newline == std::string_view::npos) {
      return At(name, line_number, "the file ends in the middle of a line",
                "it looks truncated; a complete file ends with a newline");
    }
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line_number == 1) {
      if (line != kHeader) {
        return At(name, 1,
                  "expected the header '" + std::string(kHeader) + "', found " + Shown(line));
      }
      continue;
    }
    std::string_view field[4];
    size_t fields = 0;
    std::string_view rest = line;
    for (;;) {
      const size_t comma = rest.find(',');
      if (fields < 4) field[fields] = rest.substr(0, comma);
      ++fields;
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
    if (fields != 4) {
      return At(name, line_number,
                "expected 4 fields, found " + std::to_string(line.empty() ? 0 : fields));
    }
    const auto sample = ParseInteger<uint64_t>(field[0]);
    if (!sample || *sample > kLargestSample) {
      return At(name, line_number, "the sample " + Shown(field[0]) + " is no sample number");
    }
    const auto rank = ParseInteger<int32_t>(field[1]);
    if (!rank || *rank < -1 || *rank > kLargestRank) {
      return At(name, line_number, "the rank " + Shown(field[1]) + " is no rank");
    }
    if (field[2].empty() || field[2].size() > kLongestName) {
      return At(name, line_number, "the metric's name is empty or too long");
    }
    const Result<int64_t> value = ParseValue(field[3]);
    if (!value.ok()) return At(name, line_number, value.error().why);
    if (ranks == nullptr || field[2] != last_metric) {
      last_metric = field[2];
      ranks = &file.series[std::string(field[2])];
    }
    std::vector<Sample>& samples = (*ranks)[*rank];
    if (samples.empty() && ++series_count > kMostSeries) {
      return At(name, line_number, "more than " + std::to_string(kMostSeries) + " series");
    }
    if (!samples.empty() && *sample == samples.back().at) {
      return At(name, line_number,
                "duplicate: sample " + std::to_string(*sample) + " of " + Shown(field[2]) +
                    " rank " + std::to_string(*rank) + " was there before");
    }
    if (!samples.empty() && *sample < samples.back().at) {
      return At(name, line_number,
                "unsorted: sample " + std::to_string(*sample) + " comes after " +
                    std::to_string(samples.back().at),
                "sort the samples of each metric and rank");
    }
    if (++points > kMostPoints) return At(name, line_number, "more than 20 million points");
    samples.push_back({*sample, *value});
  }
  if (line_number == 0) {
    return Error{"read " + name, "line 1: the file is empty",
                 "expected '" + std::string(kHeader) + "'"};
  }
  if (points == 0) return At(name, 2, "no samples follow the header");
  return file;
}

size_t LineOf(std::string_view text, size_t byte) {
  return 1 + static_cast<size_t>(std::count(
                 text.begin(), text.begin() + static_cast<ptrdiff_t>(std::min(byte, text.size())),
                 '\n'));
}

struct RawSeries {
  std::string metric;
  std::optional<int32_t> rank;
  std::string labels;
  std::vector<std::pair<double, int64_t>> points;
};

Result<RawSeries> ReadPrometheusSeries(const nlohmann::json& entry, const std::string& where) {
  RawSeries raw;
  raw.metric = "value";
  if (!entry.is_object() || !entry.contains("values") || !entry["values"].is_array()) {
    return Error{where, "no array 'values'", "use a range query: /api/v1/query_range"};
  }
  if (entry.contains("metric") && entry["metric"].is_object()) {
    for (const auto& [label, value] : entry["metric"].items()) {
      if (!value.is_string()) return Error{where, "label '" + label + "' is no string", ""};
      const std::string text = value.get<std::string>();
      if (label == "__name__") {
        raw.metric = text;
      } else if (label == "rank") {
        raw.rank = ParseInteger<int32_t>(text);
      } else {
        raw.labels += (raw.labels.empty() ? "" : ", ") + label + "=" + text;
      }
    }
  }
  if (raw.rank && (*raw.rank < -1 || *raw.rank > kLargestRank)) raw.rank.reset();
  size_t index = 0;
  for (const auto& point : entry["values"]) {
    const std::string at = where + ", value " + std::to_string(++index);
    if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_string()) {
      return Error{at, "expected [time, \"value\"]", ""};
    }
    const double time = point[0].get<double>();
    if (!std::isfinite(time) || time < 0 || time > 1e12) return Error{at, "absurd time", ""};
    const Result<int64_t> value = ParseValue(point[1].get_ref<const std::string&>());
    if (!value.ok()) return Error{at, value.error().why, ""};
    if (!raw.points.empty() && time <= raw.points.back().first) {
      return Error{at, time == raw.points.back().first ? "duplicate time" : "unsorted time", ""};
    }
    const double scaled = static_cast<double>(*value) * BytesPerUnit(raw.metric);
    if (scaled > kLargestValue) return Error{at, "more than any machine has (2^60)", ""};
    raw.points.emplace_back(time, static_cast<int64_t>(scaled));
  }
  return raw;
}

Result<SampleFile> ReadPrometheus(std::string_view text, const std::string& name) {
  nlohmann::json root;
  try {
    root = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    return At(name, LineOf(text, error.byte), "not complete JSON", "the file may be truncated");
  }
  const nlohmann::json& data =
      root.is_object() && root.contains("data") ? root["data"] : std::as_const(root);
  if (!data.is_object() || !data.contains("result") || !data["result"].is_array()) {
    return At(name, 1, "no 'data.result' array: not the answer of a range query");
  }
  std::vector<RawSeries> all;
  double first = std::numeric_limits<double>::infinity();
  double interval = std::numeric_limits<double>::infinity();
  size_t points = 0;
  for (const auto& entry : data["result"]) {
    const std::string where = "read " + name + ", series " + std::to_string(all.size() + 1);
    Result<RawSeries> raw = ReadPrometheusSeries(entry, where);
    if (!raw.ok()) return raw.error();
    if (all.size() >= kMostSeries) return Error{where, "too many series", ""};
    points += raw->points.size();
    if (points > kMostPoints) return Error{where, "more than 20 million points", ""};
    for (size_t i = 0; i < raw->points.size(); ++i) {
      first = std::min(first, raw->points[i].first);
      if (i > 0) interval = std::min(interval, raw->points[i].first - raw->points[i - 1].first);
    }
    all.push_back(std::move(*raw));
  }
  if (points == 0) return At(name, 1, "the query found no samples");
  if (!std::isfinite(interval)) interval = 1;
  SampleFile file;
  file.seconds_per_sample = interval;
  for (const RawSeries& raw : all) {
    auto& ranks = file.series[raw.metric];
    int32_t rank = raw.rank.value_or(0);
    while (ranks.contains(rank)) ++rank;
    if (!raw.rank || rank != *raw.rank) {
      file.notes.push_back("rank " + std::to_string(rank) + " of " + raw.metric +
                           " stands for the series {" + raw.labels + "}");
    }
    std::vector<Sample>& samples = ranks[rank];
    for (const auto& [time, value] : raw.points) {
      const auto at = static_cast<uint64_t>(std::llround((time - first) / interval));
      if (at > kLargestSample) return Error{"read " + name, "absurd range of times", ""};
      if (samples.empty() || at > samples.back().at) samples.push_back({at, value});
    }
  }
  return file;
}

}  // namespace

Result<SampleFile> ReadSamples(std::istream& in, const std::string& name) {
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (in.bad()) return Error{"read " + name, "input error", ""};
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string::npos && (text[start] == '{' || text[start] == '[')) {
    return ReadPrometheus(text, name);
  }
  return ReadCsv(text, name);
}

}  // namespace tidemark::detect
