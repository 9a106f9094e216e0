#include "daemon/serve/metric_families.h"

#include <algorithm>

#include "daemon/serve/utf8.h"

namespace tidemark::serve {
namespace {

// "device,class" -> the n-th name.
std::string_view LabelName(std::string_view names, size_t n) {
  for (; n > 0; --n) names.remove_prefix(names.find(',') + 1);
  return names.substr(0, names.find(','));
}

bool Exported(Metric metric, MetricsLevel level) {
  return level == MetricsLevel::kFull || SpecOf(metric).level == MetricsLevel::kBasic;
}

}  // namespace

std::string LabelText(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return Utf8(text);
  return Utf8(text.substr(0, max_bytes - 3)) + "...";
}

void MetricFamilies::Append(Metric metric, const LabelValues* rank_labels,
                            const LabelValues& labels, double value) {
  const MetricSpec& spec = SpecOf(metric);
  prometheus::ClientMetric series;
  // A label without a value is the same as no label.
  const auto add = [&series](std::string_view name, const std::string& text) {
    if (!text.empty()) series.label.push_back({std::string(name), text});
  };
  for (size_t i = 0; rank_labels != nullptr && i < kRankLabels.size(); ++i) {
    add(kRankLabels[i], (*rank_labels)[i]);
  }
  for (size_t i = 0; i < labels.size(); ++i) add(LabelName(spec.labels, i), labels[i]);
  if (spec.type == MetricType::kCounter) {
    series.counter.value = value;
  } else {
    series.gauge.value = value;
  }
  families_[metric].push_back(std::move(series));
}

void MetricFamilies::AddNode(const SeriesMap& series) {
  std::map<Metric, size_t> count;
  std::map<std::pair<Metric, size_t>, double> other;
  for (const auto& [key, value] : series.values()) {
    const auto& [metric, labels] = key;
    if (!Exported(metric, level_)) continue;
    if (count[metric] + 1 >= kMaxSeriesOfNodeFamily) {
      other[{metric, labels.size()}] += value;
      continue;
    }
    ++count[metric];
    Append(metric, nullptr, labels, value);
  }
  for (const auto& [key, value] : other) {
    Append(key.first, nullptr, LabelValues(key.second, "other"), value);
  }
}

void MetricFamilies::AddRank(const LabelValues& rank_labels, const SeriesMap& series) {
  const size_t limit =
      level_ == MetricsLevel::kBasic ? kMaxBasicSeriesOfRank : kMaxFullSeriesOfRank;
  size_t count = 0;
  for (const auto& [key, value] : series.values()) {
    const auto& [metric, labels] = key;
    if (!Exported(metric, level_)) continue;
    if (count == limit) {
      ++omitted_;
      continue;
    }
    ++count;
    Append(metric, &rank_labels, labels, value);
  }
}

std::vector<prometheus::MetricFamily> MetricFamilies::Take() {
  Append(Metric::kSeriesOmitted, nullptr, {}, static_cast<double>(omitted_));
  std::vector<prometheus::MetricFamily> out;
  for (auto& [metric, series] : families_) {
    const MetricSpec& spec = SpecOf(metric);
    out.push_back({.name = std::string(spec.name),
                   .help = std::string(spec.help),
                   .type = spec.type == MetricType::kCounter ? prometheus::MetricType::Counter
                                                             : prometheus::MetricType::Gauge,
                   .metric = std::move(series)});
  }
  families_.clear();
  return out;
}

}  // namespace tidemark::serve
