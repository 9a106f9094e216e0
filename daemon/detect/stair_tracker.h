// Recognises leaks that come in steps: a tread, a rise (sudden or a short ramp), a tread again, of
// like height at a like distance. A checkpoint that keeps its gathered weights looks like this, an
// evaluation that keeps its outputs too.
//
// One-time steps differ in height or do not come back; per-shape growth comes ever more rarely.
#pragma once

#include <array>
#include <cstdint>

namespace tidemark::detect {

class StairTracker {
 public:
  // `point` counts from 0. `noise` is the typical spread of floors on a tread, bytes.
  void Push(uint64_t point, int64_t floor, double noise);

  // Rises at the end of the list that are alike in height and distance, none overdue.
  int regular_rises() const { return regular_; }
  // Rises at the end of the list that are alike in height, at whatever distance.
  int alike_rises() const { return alike_; }
  double height() const { return height_; }  // bytes, mean of the regular rises
  double period() const { return period_; }  // points, mean distance
  uint64_t first_point() const {
    return rises_[first_].point;
  }  // where the first regular one began

 private:
  struct Rise {
    uint64_t point = 0;
    double bytes = 0;
  };
  static constexpr int kRises = 8;
  static constexpr int kSettle = 3;  // points in a row that make a tread

  void Add(uint64_t point, double bytes);
  void Judge(uint64_t now, double value);
  const Rise& newest() const { return rises_[count_ - 1]; }

  std::array<Rise, kRises> rises_;
  int count_ = 0;
  int first_ = 0;  // of the regular rises
  bool started_ = false;
  double tread_ = 0;  // level of the current tread
  uint64_t tread_points_ = 0;
  bool rising_ = false;
  uint64_t rise_began_ = 0;
  double candidate_ = 0;  // level that may become the next tread
  int candidate_points_ = 0;
  int regular_ = 0;
  int alike_ = 0;
  double height_ = 0;
  double period_ = 0;
};

}  // namespace tidemark::detect
