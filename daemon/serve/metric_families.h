// Collects series under the names of the catalog. Values that land on the same labels are added up,
// so a family never holds one series twice, which would make Prometheus refuse the whole scrape.
#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/serve/metric_catalog.h"

namespace tidemark::serve {

using LabelValues = std::vector<std::string>;  // in the order of MetricSpec::labels

class SeriesMap {
 public:
  void Add(Metric metric, double value, LabelValues labels = {}) {
    values_[{metric, std::move(labels)}] += value;
  }
  // For what is 1 or the same however many processes say it.
  void Max(Metric metric, double value, LabelValues labels = {}) {
    const auto [at, fresh] = values_.try_emplace({metric, std::move(labels)}, value);
    if (!fresh && at->second < value) at->second = value;
  }

  // By metric in the order of the catalog, then by labels.
  using Map = std::map<std::pair<Metric, LabelValues>, double>;
  const Map& values() const { return values_; }

 private:
  Map values_;
};

class MetricFamilies {
 public:
  explicit MetricFamilies(MetricsLevel level) : level_(level) {}

  // Series of the node; a family with more than kMaxSeriesOfNodeFamily has the rest summed under
  // labels that all say "other".
  void AddNode(const SeriesMap& series);

  // Series of one rank, in the order of the catalog as far as the bound allows.
  void AddRank(const LabelValues& rank_labels, const SeriesMap& series);

  // A rank that gets no series at all.
  void OmitRank() { ++omitted_; }

  std::vector<prometheus::MetricFamily> Take();

 private:
  void Append(Metric metric, const LabelValues* rank_labels, const LabelValues& labels,
              double value);

  const MetricsLevel level_;
  uint64_t omitted_ = 0;
  std::map<Metric, std::vector<prometheus::ClientMetric>> families_;
};

// Label values from outside: well-formed UTF-8 of at most `max_bytes`.
std::string LabelText(std::string_view text, size_t max_bytes = 128);

}  // namespace tidemark::serve
