// The Prometheus side: one Collectable over the latest snapshot, built when a scrape comes. It
// keeps no state of its own, so what is gone from the snapshot is gone from the next scrape.
// Collect is thread-safe.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "daemon/serve/metric_catalog.h"
#include "daemon/serve/serve_counters.h"
#include "daemon/snapshot/snapshot_hub.h"

namespace tidemark::serve {

class MetricsExporter final : public prometheus::Collectable {
 public:
  // A node with more ranks than this has the further ones left out, and counted.
  static constexpr size_t kMaxRanks = 256;

  MetricsExporter(const SnapshotHub& hub, const ServeCounters& counters, MetricsLevel level,
                  std::string version)
      : hub_(hub), counters_(counters), level_(level), version_(std::move(version)) {}

  // Before the first tick: what concerns the daemon alone.
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const SnapshotHub& hub_;
  const ServeCounters& counters_;
  const MetricsLevel level_;
  const std::string version_;
};

}  // namespace tidemark::serve
