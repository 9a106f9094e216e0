#include "daemon/detect/site_watch.h"

#include <algorithm>

namespace tidemark::detect {
namespace {

constexpr uint64_t kPartSteps = 2;
constexpr uint32_t kFewestRises = 7;
constexpr uint32_t kRisesAFall = 8;
constexpr int64_t kSmallestGrowth = 2 << 20;
// A growth pauses for this share of how long it lasted, and for kShortestPause steps, before it
// counts as ended.
constexpr double kPause = 0.25;
constexpr uint64_t kShortestPause = 12;
constexpr double kGivenBack = 0.5;
constexpr size_t kMostRows = 1 << 20;

}  // namespace

void SiteWatch::Tick(const SiteTable& sites, uint64_t step, int64_t now_ns) {
  const size_t rows = std::min(sites.size(), kMostRows);
  if (rows == 0) return;
  if (tracks_.size() < rows) tracks_.resize(rows);
  // Copied: looking may drop entries.
  std::array<size_t, kHot> hot;
  size_t hot_rows = 0;
  for (const SiteGrowth& growth : growing_) {
    if (growth.row < rows) hot[hot_rows++] = growth.row;
  }
  for (size_t i = 0; i < hot_rows; ++i) Look(sites, hot[i], step, now_ns);
  const size_t looks = std::min(rows, kRota);
  for (size_t i = 0; i < looks; ++i) {
    next_row_ = next_row_ + 1 < rows ? next_row_ + 1 : 0;
    if (std::find(hot.begin(), hot.begin() + static_cast<ptrdiff_t>(hot_rows), next_row_) ==
        hot.begin() + static_cast<ptrdiff_t>(hot_rows)) {
      Look(sites, next_row_, step, now_ns);
    }
  }
}

void SiteWatch::Look(const SiteTable& sites, size_t row, uint64_t step, int64_t now_ns) {
  const SitePoint site = sites.At(row);
  Track& track = tracks_[row];
  if (track.started && (track.site_id != site.site_id || track.id != site.id)) {
    Drop(row);
    track = Track{};
  }
  if (!track.started) {
    track.started = true;
    track.site_id = site.site_id;
    track.id = site.id;
    track.part_floor = track.last_floor = track.base = site.live_bytes;
    track.part_began = track.since_step = track.last_rise = step;
    track.since_ns = now_ns;
    return;
  }
  track.part_floor = std::min(track.part_floor, site.live_bytes);
  if (step >= track.part_began + kPartSteps) EndPart(track, row, step, now_ns);
  // The next part begins with what is there now.
  if (track.part_began == step) track.part_floor = site.live_bytes;
}

void SiteWatch::EndPart(Track& track, size_t row, uint64_t step, int64_t now_ns) {
  const int64_t floor = track.part_floor;
  const int64_t grown = track.last_floor - track.base;
  const auto restart = [&] {
    Drop(row);
    track.record = std::max(track.record, track.last_floor);
    track.base = floor;
    track.since_step = track.last_rise = step;
    track.since_ns = now_ns;
    track.rises = 0;
    track.falls = 0;
  };
  const auto lasted = static_cast<double>(track.last_rise - track.since_step);
  const uint64_t pause = std::max(kShortestPause, static_cast<uint64_t>(kPause * lasted));
  if (floor > track.last_floor) {
    track.last_rise = step;
    ++track.rises;
    track.last_floor = floor;
    // A quarter of the growth above the record: the tops of two saw-teeth differ by less.
    if (floor - (floor - track.base) / 4 > track.record) Publish(track, row, step);
  } else if (static_cast<double>(floor - track.base) < kGivenBack * static_cast<double>(grown) ||
             step - track.last_rise > pause) {
    restart();
    track.last_floor = floor;
  } else if (floor < track.last_floor) {
    ++track.falls;
  }
  track.part_began = step;
}

void SiteWatch::Publish(const Track& track, size_t row, uint64_t step) {
  auto mine = std::find_if(growing_.begin(), growing_.end(),
                           [&](const SiteGrowth& growth) { return growth.row == row; });
  const int64_t grown = track.last_floor - track.base;
  const double per_step = static_cast<double>(grown) /
                          static_cast<double>(std::max<uint64_t>(1, step - track.since_step));
  if (mine == growing_.end()) {
    if (growing_.size() == kHot) {
      mine = std::min_element(growing_.begin(), growing_.end(),
                              [](const auto& a, const auto& b) { return a.per_step < b.per_step; });
      if (mine->per_step >= per_step) return;
    } else {
      mine = growing_.insert(growing_.end(), SiteGrowth{});
    }
    *mine = SiteGrowth{};
    mine->row = row;
    mine->id = track.id;
  }
  mine->since_step = track.since_step;
  mine->since_ns = track.since_ns;
  mine->last_step = step;
  mine->grown_bytes = grown;
  mine->per_step = per_step;
  if (!mine->flagged && track.rises >= kFewestRises && kRisesAFall * track.falls <= track.rises &&
      grown >= kSmallestGrowth) {
    mine->flagged = true;
    mine->flagged_step = step;
  }
}

int SiteWatch::ScoreOf(size_t row) const {
  return static_cast<int>(tracks_[row].rises) - static_cast<int>(kRisesAFall * tracks_[row].falls);
}

void SiteWatch::Drop(size_t row) {
  std::erase_if(growing_, [&](const SiteGrowth& growth) { return growth.row == row; });
}

const SiteGrowth* SiteWatch::FastestOf(const SeriesId& id) const {
  const SiteGrowth* fastest = nullptr;
  for (const SiteGrowth& growth : growing_) {
    if (!growth.flagged || growth.id != id) continue;
    if (fastest == nullptr || growth.per_step > fastest->per_step) fastest = &growth;
  }
  return fastest;
}

}  // namespace tidemark::detect
