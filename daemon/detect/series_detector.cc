#include "daemon/detect/series_detector.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tidemark::detect {
namespace {

// Blocks a part has; kParts of them make a window of 16, 32 or 48 blocks.
constexpr std::array<int, 3> kBlocksAPart = {1, 4, 6};
// The shortest window (eight points) is for runaways: it must stand out twice as far, and move the
// level by a hundredth at least.
constexpr double kRunawayT = 2.0;
constexpr double kRunawayShare = 0.01;
// ... or would use up what is left within this many points, at a growth that shows at all.
constexpr double kSoonPoints = 100;
constexpr double kLeastRunawayShare = 0.001;

constexpr double kLargestShare = 0.5;  // of the growth, in one rise
constexpr int kMinRises = 6;           // of seven
constexpr double kMinGrowthBytes = 256 << 10;
constexpr double kOverOneTime = 0.3;     // growth over a one-time step in the same window
constexpr double kFadingOfFalls = 0.99;  // per test
constexpr uint64_t kRecordMemory = 16;   // windows
constexpr double kOlderGrowth = 0.3;     // of the slope: less before the window is no growth
constexpr double kWholeGrowth = 0.6;     // a window this much of the growth needs no more proof
constexpr double kEnded = 0.25;          // of the slope: less than this has ended
// Few windows span most of a long history, so chance has few tries: they need not be as regular.
constexpr uint64_t kShortestStretch = 2 * kParts;
constexpr double kStairPatience = 2.2;  // periods
constexpr double kSurely = 0.6;
constexpr uint64_t kManyPoints = 4000;
constexpr double kWholeT = 0.4;
// What wanders must rise further than it wanders, not by few jumps, and not at its start only.
constexpr double kOverWander = 1.1;
constexpr double kStillWanders = 3.0;  // beyond, the parts must speak for themselves
constexpr double kLargestJump = 0.4;
constexpr double kWanderLateToEarly = 0.85;
constexpr double kMedianShare = 0.15;
constexpr double kNoise = 4;  // growth over the distance of neighbouring points
constexpr double kWholeNoise = 10;
constexpr double kWholePersistence = 0.06;
constexpr int kLongLevel = 6;
constexpr uint64_t kFewest = 48;
constexpr double kStudent = 2.45;  // t of 6 degrees of freedom, 95 %

constexpr int64_t kAbsurd = int64_t{1} << 60;

}  // namespace

SeriesDetector::SeriesDetector(DetectorOptions options) : options_(options) {
  finding_.detection_floor = std::numeric_limits<double>::infinity();
}

size_t SeriesDetector::MemoryBytes() const {
  return sizeof(*this) - sizeof(history_) + history_.MemoryBytes();
}

bool SeriesDetector::Push(uint64_t unit, int64_t time_ns, int64_t floor) {
  if (floor < 0 || floor > kAbsurd || (seen_ > 0 && unit < last_unit_)) return false;
  ++seen_;
  last_unit_ = unit;
  last_time_ns_ = std::max(time_ns, last_time_ns_);
  if (seen_ <= options_.warm_up_points) {
    last_floor_ = floor;
    return true;
  }
  UpdateNoise(floor);
  const int completed = history_.Push(unit, last_time_ns_, floor);
  stairs_.Push(history_.points(), floor, noise_);
  for (int level = 0; level < completed; ++level) {
    const uint64_t blocks_so_far = history_.Completed(level);
    for (size_t i = level == 0 ? 0 : 1; i < kBlocksAPart.size(); ++i) {
      const int blocks = kBlocksAPart[i];
      // Long windows are rare enough to be looked at with every block, short ones with every part.
      const bool due = level >= kLongLevel || blocks_so_far % blocks == 0;
      if (due && history_.Available(level) >= kParts * blocks) {
        Examine(level, static_cast<int>(i));
      }
    }
  }
  OnStairs();
  Follow();
  if (finding_.state == VerdictState::kWarmingUp && history_.points() >= kParts * 4) {
    finding_.state = VerdictState::kSteady;
  }
  return true;
}

void SeriesDetector::UpdateNoise(int64_t floor) {
  if (history_.points() > 0) {
    const double change = std::fabs(static_cast<double>(floor) - static_cast<double>(last_floor_));
    // A median by small steps: one jump moves it no further than one step of noise does.
    if (noise_ == 0) {
      noise_ = change;
    } else {
      noise_ *= change > noise_ ? 1.05 : 1 / 1.05;
    }
  }
  last_floor_ = floor;
}

double SeriesDetector::UnitsPerPoint(uint64_t points) const {
  const int level = history_.LevelReaching(points);
  const int available = history_.Available(level);
  if (available < 2) return 1;
  const int back = static_cast<int>(
      std::clamp<uint64_t>(points >> level, 1, static_cast<uint64_t>(available - 1)));
  const double units = static_cast<double>(history_.At(level, 0).unit) -
                       static_cast<double>(history_.At(level, back).unit);
  return units / (static_cast<double>(back) * static_cast<double>(uint64_t{1} << level));
}

// Over the seven rises of the shortest window.
double SeriesDetector::RunawayGrowth(double level_bytes) const {
  return std::min(kRunawayShare * level_bytes,
                  std::max(kLeastRunawayShare * level_bytes,
                           std::max(0.0, headroom_) * (kParts - 1) / kSoonPoints));
}

void SeriesDetector::Examine(int level, int part_index) {
  const int blocks = kBlocksAPart[part_index];
  LevelMemory& memory = memory_[level][part_index];
  const bool runaway = blocks == 1;
  if (runaway) {
    // Tested with every point, so the common case (nothing runs away) must cost next to nothing.
    const auto oldest = static_cast<double>(history_.At(0, kParts - 1).floor);
    const double growth = static_cast<double>(history_.At(0, 0).floor) - oldest;
    if (growth < RunawayGrowth(oldest)) {
      memory.largest_fall = std::max(memory.largest_fall * kFadingOfFalls, -growth);
      return;
    }
  }
  const uint64_t now = history_.points();
  const auto window_points = static_cast<uint64_t>(kParts * blocks) << level;
  if (now - memory.record_at > kRecordMemory * window_points) memory.record = 0;
  if (level < kLongLevel && !runaway) {
    // Short windows are tested often and seldom pass: their ends alone rule most of them out.
    const int64_t first = history_.FloorOf(level, (kParts - 1) * blocks, blocks);
    const double growth = static_cast<double>(history_.FloorOf(level, 0, blocks) - first);
    if (growth <
        std::max({kMinGrowthBytes, options_.over_falls * memory.largest_fall, kNoise * noise_})) {
      memory.largest_fall = std::max(memory.largest_fall * kFadingOfFalls, -growth);
      if (first > memory.record) {
        memory.record = first;
        memory.record_at = now;
      }
      return;
    }
  }
  Window window{ShapeOf(history_, level, blocks), window_points};
  GrowthShape& shape = window.shape;
  memory.largest_fall = std::max(memory.largest_fall * kFadingOfFalls, shape.largest_fall);

  const bool whole = now >= kManyPoints &&
                     static_cast<double>(window.points) >= kWholeGrowth * static_cast<double>(now);
  const double needed_t = options_.min_t * (runaway ? kRunawayT : whole ? kWholeT : 1.0);
  const double needed_growth =
      std::max({kMinGrowthBytes, options_.over_falls * memory.largest_fall,
                (whole ? kWholeNoise : kNoise) * noise_,
                runaway ? RunawayGrowth(static_cast<double>(shape.first_floor)) : 0.0});
  memory.needed_per_point = static_cast<float>(
      std::max(needed_growth / (static_cast<double>(window.points) * (kParts - 1) / kParts),
               needed_t * shape.error));
  bool grows = shape.growth > needed_growth && shape.grows_throughout &&
               shape.rises >= (whole ? kMinRises - 1 : kMinRises) &&
               shape.largest_share <= kLargestShare && shape.t >= needed_t &&
               shape.late_to_early >= options_.min_late_to_early &&
               shape.last_floor > memory.record;
  if (shape.first_floor > memory.record) {
    memory.record = shape.first_floor;
    memory.record_at = now;
  }
  if (!grows && whole) {
    const LineFit fit = FitLine(history_, level, blocks);
    grows = fit.growth > std::max(kMinGrowthBytes, kWholeNoise * noise_) &&
            fit.growth >= kOverWander * fit.residual_range &&
            fit.growth <= kStillWanders * fit.residual_range &&
            fit.largest_jump <= kLargestJump * fit.growth &&
            fit.late_to_early >= kWanderLateToEarly &&
            shape.median_rise * (kParts - 1) > kMedianShare * fit.growth;
    if (grows) {
      shape.per_point = fit.growth / static_cast<double>(window_points);
      shape.error = fit.residual_range / (4 * static_cast<double>(window_points));
    }
  }
  if (grows && !StillWarm(window)) OnPass(window);
}

bool SeriesDetector::StillWarm(const Window& window) const {
  const double slope = window.shape.per_point;
  bool was_faster = false;
  uint64_t back = window.points;
  while (back + back / 4 < history_.points()) {
    const uint64_t to = std::min(2 * back, history_.points());
    const double older = ShapeOfStretch(history_, to, back).per_point;
    if (older < kOlderGrowth * slope) break;
    if (older * options_.min_late_to_early > slope) was_faster = true;
    back = to;
  }
  if (back + back / 4 >= history_.points()) back = history_.points();
  return was_faster &&
         static_cast<double>(window.points) < kWholeGrowth * static_cast<double>(back);
}

void SeriesDetector::OnPass(const Window& window) {
  const uint64_t now = history_.points();
  switch (finding_.state) {
    case VerdictState::kWarmingUp:
    case VerdictState::kSteady:
    case VerdictState::kRetracted:
      Suspect(GrowthPattern::kSteadyGrowth, window.points, window.shape.per_point,
              window.shape.first_floor);
      UpdateSlope(window);
      return;
    case VerdictState::kSuspect: {
      const double elapsed = static_cast<double>(now - based_point_);
      if (window.shape.per_point < 0.6 * reference_slope_) {
        // What first looked steep was something else; a much longer window sees the slope beneath.
        if (window.points >= 2 * window_points_) {
          Base(window.points, window.shape.per_point, window.shape.first_floor);
          UpdateSlope(window);
        }
        return;
      }
      const bool whole = history_.points() >= kManyPoints &&
                         static_cast<double>(window.points) >=
                             kWholeGrowth * static_cast<double>(history_.points());
      if (elapsed < (whole ? kWholePersistence : options_.persistence) *
                        static_cast<double>(window_points_) ||
          elapsed < kParts) {
        return;
      }
      const uint64_t lasted = now - onset_point_;
      const double grown = static_cast<double>(finding_.floor_bytes - finding_.onset_bytes);
      const bool quick = lasted >= kFewest &&
                         grown >= options_.quick_share * static_cast<double>(finding_.onset_bytes);
      if (!quick && lasted < options_.patience_points) return;
      Confirm();
      UpdateSlope(window);
      return;
    }
    case VerdictState::kConfirmed:
      if (window.points >= window_points_) {
        UpdateSlope(window);
      }
      return;
  }
}

void SeriesDetector::OnStairs() {
  finding_.rises_seen = std::max(finding_.rises_seen, stairs_.alike_rises());
  const bool idle =
      finding_.state != VerdictState::kSuspect && finding_.state != VerdictState::kConfirmed;
  if (stairs_.regular_rises() < 3) return;
  const auto window = static_cast<uint64_t>(stairs_.period() * stairs_.regular_rises());
  const double per_point = stairs_.height() / stairs_.period();
  if (idle) {
    const auto risen = static_cast<int64_t>(stairs_.height() * stairs_.regular_rises());
    Suspect(GrowthPattern::kStairs, window, per_point, std::max<int64_t>(0, last_floor_ - risen));
  }
  if (finding_.state == VerdictState::kSuspect && stairs_.regular_rises() >= 4) {
    finding_.pattern = GrowthPattern::kStairs;
    Confirm();
  }
  if (finding_.pattern != GrowthPattern::kStairs) return;
  window_points_ = std::max(window_points_, window);
  onset_point_ = std::min(onset_point_, stairs_.first_point());
  const double per_unit = 1 / UnitsPerPoint(window);
  stair_points_ = stairs_.period();
  finding_.stair_bytes = stairs_.height();
  finding_.stair_units = stairs_.period() / per_unit;
  finding_.stair_count = stairs_.regular_rises();
  finding_.slope.per_unit = per_point * per_unit;
  finding_.slope.low = finding_.slope.per_unit * 0.75;
  finding_.slope.high = finding_.slope.per_unit * 1.33;
}

void SeriesDetector::Suspect(GrowthPattern pattern, uint64_t window_points, double per_point,
                             int64_t first_floor) {
  since_point_ = history_.points();
  finding_.state = VerdictState::kSuspect;
  finding_.pattern = pattern;
  finding_.end = GrowthEnd::kNone;
  finding_.since = last_unit_;
  finding_.since_ns = last_time_ns_;
  finding_.confirmed_at = 0;
  ++finding_.episodes;
  Base(window_points, per_point, first_floor);
}

void SeriesDetector::Base(uint64_t window_points, double per_point, int64_t first_floor) {
  const uint64_t now = history_.points();
  based_point_ = now;
  window_points_ = window_points;
  onset_point_ = now - std::min(now, window_points);
  reference_slope_ = per_point;
  most_grown_ = per_point * static_cast<double>(window_points);
  next_check_ = 0;
  finding_.onset_bytes = first_floor;
  const double units = static_cast<double>(now - onset_point_) * UnitsPerPoint(window_points);
  finding_.onset =
      last_unit_ - static_cast<uint64_t>(std::min(static_cast<double>(last_unit_), units));
  const double seconds = units / std::max(history_.UnitsPerSecond(window_points), 1e-9);
  finding_.onset_ns = last_time_ns_ - static_cast<int64_t>(std::min(seconds, 1e9) * 1e9);
}

void SeriesDetector::Confirm() {
  finding_.state = VerdictState::kConfirmed;
  finding_.confirmed_at = last_unit_;
}

void SeriesDetector::Retract(GrowthEnd end) {
  finding_.state = VerdictState::kRetracted;
  finding_.end = end;
}

void SeriesDetector::UpdateSlope(const Window& window) {
  window_points_ = std::max(window_points_, window.points);
  reference_slope_ = std::max(reference_slope_, window.shape.per_point);
  finding_.window_points = window.points;
  const double per_unit = 1 / std::max(UnitsPerPoint(window.points), 1e-9);
  finding_.slope.per_unit = window.shape.per_point * per_unit;
  finding_.slope.low = (window.shape.per_point - kStudent * window.shape.error) * per_unit;
  finding_.slope.high = (window.shape.per_point + kStudent * window.shape.error) * per_unit;
}

void SeriesDetector::Follow() {
  if (history_.points() < 4) return;
  if (history_.points() % 16 == 0) UpdateDetectionFloor();
  finding_.floor_bytes = history_.FloorOf(0, 0, std::min(4, history_.Available(0)));
  if (finding_.state != VerdictState::kSuspect && finding_.state != VerdictState::kConfirmed) {
    return;
  }
  const uint64_t now = history_.points();
  // Given back: a few points in a row below half of the growth.
  int64_t highest = 0;
  for (int i = 0; i < 4; ++i) highest = std::max(highest, history_.At(0, i).floor);
  const double grown = static_cast<double>(now - onset_point_) * reference_slope_;
  finding_.grown_bytes = finding_.floor_bytes - finding_.onset_bytes;
  if (static_cast<double>(highest - finding_.onset_bytes) < 0.25 * std::min(grown, most_grown_)) {
    Retract(GrowthEnd::kGivenBack);
    return;
  }
  most_grown_ = std::max(most_grown_, static_cast<double>(finding_.grown_bytes));
  if (finding_.pattern == GrowthPattern::kStairs) {
    FollowStairs();
    return;
  }
  const uint64_t stretch =
      std::max({kShortestStretch, window_points_ / 2, (now - onset_point_) / 2});
  if (now < std::max(next_check_, since_point_ + stretch / 2)) return;
  next_check_ = now + stretch / 16;
  if (!options_.plateau_ends_growth && finding_.grown_bytes >= finding_.onset_bytes) return;
  const GrowthShape recent = ShapeOfStretch(history_, stretch, 0);
  const double slope = recent.per_point;
  // Ended beyond doubt: where the series walks, a lull is no end.
  if (slope < kEnded * reference_slope_ && slope + 2 * recent.error < kSurely * reference_slope_) {
    Retract(slope < 0.05 * reference_slope_ ? GrowthEnd::kLevelledOff : GrowthEnd::kSlowedDown);
  }
}

void SeriesDetector::FollowStairs() {
  // Two periods without a rise; a rise that the tracker missed still shows in the floors.
  const auto stretch =
      std::max(kShortestStretch, static_cast<uint64_t>(kStairPatience * stair_points_));
  if (history_.points() < std::max(next_check_, based_point_ + stretch / 2)) return;
  next_check_ = history_.points() + stretch / 16;
  const GrowthShape recent = ShapeOfStretch(history_, stretch, 0);
  const double grown = static_cast<double>(recent.last_floor - recent.first_floor);
  if (grown < 0.5 * finding_.stair_bytes) Retract(GrowthEnd::kOverdue);
}

void SeriesDetector::UpdateDetectionFloor() {
  double smallest = std::numeric_limits<double>::infinity();
  for (const auto& level : memory_) {
    for (const LevelMemory& memory : level) {
      if (memory.needed_per_point > 0) {
        smallest = std::min(smallest, static_cast<double>(memory.needed_per_point));
      }
    }
  }
  finding_.detection_floor = smallest / std::max(UnitsPerPoint(history_.points()), 1e-9);
}

}  // namespace tidemark::detect
