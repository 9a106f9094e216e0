// Judges one series of floors, online: is it growing the way a leak grows?
//
//   floors -> FloorHistory -> ShapeOf windows of every length -> suspect -> confirmed
//          -> StairTracker -> growth at recurring events      ->         -> retracted
//
// Windows. Whenever a part of a window is complete, at any resolution, the window's shape is
// tested. A window passes when it grows in every part, by no single jump, without slowing down, to
// a level not seen before, by more than this series ever fell in as long a window. The last
// condition sets the noise level by the series itself: noise, walks and saw-teeth fall as often as
// they rise.
//
// Slowing down is also looked for beyond the window: when the growth before the window was faster
// and the window is less than half of the whole growth, the window sees the tail of a warm-up.
//
// Suspect: a window passed. Confirmed: the growth went on for as long again. Retracted: the growth
// was given back, or ended for half as long as it had lasted, or became a quarter of what it was.
//
// Thread: any, one at a time. Memory: about 13 KiB after a million points. Cost: amortised 0.3 us
// a point.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "daemon/detect/floor_history.h"
#include "daemon/detect/growth_shape.h"
#include "daemon/detect/stair_tracker.h"
#include "daemon/detect/verdict.h"

namespace tidemark::detect {

struct DetectorOptions {
  uint32_t warm_up_points = 5;  // points at the start that are not looked at
  double min_t = 5.0;           // how alike the seven rises of a window must be
  double min_late_to_early = 0.8;
  double over_falls = 1.5;   // growth over the largest fall in as long a window
  double persistence = 0.5;  // confirmed after this share of the suspect window has passed again
  // ... and once the growth has lasted this many points or, if fewer, has added `quick_share` to
  // the level it began at: a warm-up of some hundred points looks like a leak until it ends.
  uint64_t patience_points = 400;
  double quick_share = 0.10;
  // False for memory that nothing but its maker gives back (tmpfs): there, growth that doubled the
  // level and then stands still has filled up, not ended.
  bool plateau_ends_growth = true;
};

enum class GrowthPattern : uint8_t { kNone, kSteadyGrowth, kStairs };
enum class GrowthEnd : uint8_t { kNone, kGivenBack, kLevelledOff, kSlowedDown, kOverdue };

// Positions are units (steps or seconds) as pushed; slopes bytes per unit.
struct SeriesFinding {
  VerdictState state = VerdictState::kWarmingUp;
  GrowthPattern pattern = GrowthPattern::kNone;
  GrowthEnd end = GrowthEnd::kNone;  // of the last growth, once retracted
  Slope slope;
  double detection_floor = 0;  // infinity while warming up
  uint64_t onset = 0;
  uint64_t since = 0;
  uint64_t confirmed_at = 0;
  int64_t since_ns = 0;
  int64_t onset_ns = 0;
  int64_t onset_bytes = 0;
  int64_t floor_bytes = 0;  // of the last few points
  int64_t grown_bytes = 0;
  uint64_t window_points = 0;  // of the window that the slope stems from
  double stair_bytes = 0;      // height and distance of a staircase; units
  double stair_units = 0;
  int stair_count = 0;
  int rises_seen = 0;     // distinct steps up of like height, however irregular
  uint32_t episodes = 0;  // growths that were suspect so far
};

class SeriesDetector {
 public:
  explicit SeriesDetector(DetectorOptions options = {});

  // `unit` may stand still (samples between two steps). Returns false and takes nothing in when it
  // falls or `floor` is absurd (negative or
  // above 2^60).
  bool Push(uint64_t unit, int64_t time_ns, int64_t floor);

  // What is left before a limit is met: growth that would use it up within a hundred points counts
  // as a runaway, however small beside what is held already. Unlimited at first.
  void SetHeadroom(double bytes) { headroom_ = bytes; }

  const SeriesFinding& finding() const { return finding_; }
  const FloorHistory& history() const { return history_; }
  uint64_t points() const { return seen_; }
  size_t MemoryBytes() const;

 private:
  struct LevelMemory {
    double largest_fall = 0;     // within a window, fading
    int64_t record = 0;          // highest floor of a part before the window
    uint64_t record_at = 0;      // points
    float needed_per_point = 0;  // what a slope needed to pass the last test
  };
  struct Window {
    GrowthShape shape;
    uint64_t points = 0;  // length
  };

  void Examine(int level, int part_index);
  bool StillWarm(const Window& window) const;
  void OnPass(const Window& window);
  void OnStairs();
  void Follow();
  void FollowStairs();
  void Suspect(GrowthPattern pattern, uint64_t window_points, double per_point,
               int64_t first_floor);
  void Base(uint64_t window_points, double per_point, int64_t first_floor);
  void Confirm();
  void Retract(GrowthEnd end);
  void UpdateSlope(const Window& window);
  void UpdateNoise(int64_t floor);
  void UpdateDetectionFloor();
  double UnitsPerPoint(uint64_t points) const;
  double RunawayGrowth(double level_bytes) const;

  DetectorOptions options_;
  FloorHistory history_;
  StairTracker stairs_;
  SeriesFinding finding_;
  std::array<std::array<LevelMemory, 3>, FloorHistory::kMaxLevels> memory_{};
  uint64_t seen_ = 0;
  uint64_t last_unit_ = 0;
  int64_t last_time_ns_ = 0;
  int64_t last_floor_ = 0;
  double headroom_ = std::numeric_limits<double>::infinity();
  double noise_ = 0;  // typical distance of neighbours, bytes
  // Of the growth that is suspect or confirmed, in points and bytes:
  uint64_t onset_point_ = 0;
  uint64_t since_point_ = 0;
  uint64_t based_point_ = 0;  // where the slope and the onset were last set
  uint64_t window_points_ = 0;
  double reference_slope_ = 0;  // the steepest accepted, bytes a point
  double most_grown_ = 0;
  uint64_t next_check_ = 0;
  double stair_points_ = 0;  // period of a staircase
};

}  // namespace tidemark::detect
