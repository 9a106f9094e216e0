#include "daemon/detect/stair_tracker.h"

#include <algorithm>
#include <cmath>

namespace tidemark::detect {
namespace {

// How unlike two heights or two distances of one staircase may be.
constexpr double kAlike = 0.25;
// A rise counts when it stands this far out of the spread on a tread; less may be drift.
constexpr double kStep = 3.0;
// After this many periods without a rise the staircase has ended.
constexpr double kOverdue = 1.6;

bool Alike(double a, double b) { return std::fabs(a - b) <= kAlike * std::max(a, b); }

}  // namespace

void StairTracker::Push(uint64_t point, int64_t floor, double noise) {
  const double value = static_cast<double>(floor);
  if (!started_) {
    started_ = true;
    tread_ = value;
  }
  const double tolerance = std::max(6 * noise, 64.0 * 1024);
  if (std::fabs(value - tread_) <= tolerance) {
    ++tread_points_;
    tread_ += (value - tread_) / static_cast<double>(std::min<uint64_t>(tread_points_ + 1, 50));
    rising_ = false;
    candidate_points_ = 0;
  } else {
    if (value > tread_ && !rising_) {
      rising_ = true;
      rise_began_ = point;
    }
    const bool same = candidate_points_ > 0 && std::fabs(value - candidate_) <= tolerance;
    candidate_points_ = same ? candidate_points_ + 1 : 1;
    if (!same) candidate_ = value;
    if (candidate_points_ >= kSettle) {
      const double step = candidate_ - tread_;
      if (step >= kStep * tolerance) {
        Add(rise_began_, step);
      } else if (step < 0 && count_ > 0 && -step >= 0.5 * newest().bytes) {
        count_ = 0;  // given back: what rose before was no staircase
      }
      tread_ = candidate_;
      tread_points_ = kSettle;
      rising_ = false;
      candidate_points_ = 0;
    }
  }
  Judge(point, value);
}

void StairTracker::Add(uint64_t point, double bytes) {
  if (count_ == kRises) {
    std::move(rises_.begin() + 1, rises_.end(), rises_.begin());
    --count_;
  }
  rises_[count_++] = Rise{point, bytes};
  alike_ = 1;
  while (alike_ < count_ && Alike(rises_[count_ - 1 - alike_].bytes, bytes)) ++alike_;
}

void StairTracker::Judge(uint64_t now, double value) {
  regular_ = 0;
  if (count_ < 2) return;
  const double period = static_cast<double>(rises_[count_ - 1].point - rises_[count_ - 2].point);
  if (static_cast<double>(now - newest().point) > kOverdue * period) return;
  int first = count_ - 1;
  while (first > 0 && Alike(rises_[first - 1].bytes, newest().bytes) &&
         Alike(static_cast<double>(rises_[first].point - rises_[first - 1].point), period)) {
    --first;
  }
  first_ = first;
  regular_ = count_ - first;
  height_ = 0;
  for (int i = first; i < count_; ++i) height_ += rises_[i].bytes / regular_;
  period_ = regular_ > 1 ? static_cast<double>(newest().point - rises_[first].point) /
                               static_cast<double>(regular_ - 1)
                         : period;
  // A rise under way counts as soon as it has reached the usual height, at the usual time.
  if (regular_ > 1 && rising_ && value - tread_ >= 0.8 * height_ &&
      Alike(static_cast<double>(rise_began_ - newest().point), period_)) {
    ++regular_;
  }
}

}  // namespace tidemark::detect
