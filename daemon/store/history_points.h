// One series while it is being read: rows merged into as many points as were asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "daemon/store/history_block.h"

namespace tidemark {

struct HistoryPoint {
  uint64_t bucket = 0;
  uint64_t last_ms = 0;
  uint64_t last_step = 0;
  int64_t min = 0;
  int64_t max = 0;
  double weighted = 0;
  double weight = 0;

  int64_t mean() const { return static_cast<int64_t>(weighted / weight); }
};

class HistoryPoints {
 public:
  // `weight` is how much time, or how many steps, a row stands for. Rows of one bucket are merged;
  // they come in order, but for a clock that was set back.
  void Add(uint64_t bucket, uint64_t unix_ms, uint64_t step, const Sample& sample, double weight) {
    HistoryPoint& point = At(bucket);
    if (point.weight == 0) {
      point.min = sample.min;
      point.max = sample.max;
    }
    point.min = std::min(point.min, sample.min);
    point.max = std::max(point.max, sample.max);
    point.last_ms = std::max(point.last_ms, unix_ms);
    point.last_step = std::max(point.last_step, step);
    point.weighted += static_cast<double>(sample.mean) * weight;
    point.weight += weight;
  }

  const std::vector<HistoryPoint>& points() const { return points_; }

 private:
  HistoryPoint& At(uint64_t bucket) {
    if (!points_.empty() && points_.back().bucket == bucket) return points_.back();
    const auto at = points_.empty() || points_.back().bucket < bucket
                        ? points_.end()
                        : std::ranges::lower_bound(points_, bucket, {}, &HistoryPoint::bucket);
    if (at != points_.end() && at->bucket == bucket) return *at;
    HistoryPoint fresh;
    fresh.bucket = bucket;
    return *points_.insert(at, fresh);
  }

  std::vector<HistoryPoint> points_;
};

}  // namespace tidemark
