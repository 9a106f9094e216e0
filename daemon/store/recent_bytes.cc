#include "daemon/store/recent_bytes.h"

#include <algorithm>

#include "daemon/store/history_sampler.h"

namespace tidemark {
namespace {

constexpr uint64_t kForgetAfterNs = RecentBytes::kKept * 1'000'000'000ull;

}  // namespace

void RecentBytes::Absorb(const NodeSnapshot& snapshot) {
  for (const ProcessSnapshot& process : snapshot.processes) {
    const auto at = courses_.find(process.key);
    // The dead stand in snapshots for an hour, as they were.
    const bool dead = process.liveness != Liveness::kAlive;
    if (at != courses_.end() && dead && at->second.back().unix_ns >= process.last_update_unix_ns) {
      continue;
    }
    if (at == courses_.end() && (dead || courses_.size() >= kMostProcesses)) continue;
    Course& course = courses_[process.key];
    const uint64_t unix_ns = dead ? process.last_update_unix_ns : snapshot.unix_ns;
    course.push_back({unix_ns, process.current_step, BytesByClass(process)});
    if (course.size() > kKept) course.pop_front();
  }
  std::erase_if(courses_, [&](const auto& entry) {
    return snapshot.unix_ns - std::min(snapshot.unix_ns, entry.second.back().unix_ns) >
           kForgetAfterNs;
  });
}

const RecentBytes::Course& RecentBytes::Of(const ProcessKey& key) const {
  static const Course kNone;
  const auto at = courses_.find(key);
  return at == courses_.end() ? kNone : at->second;
}

int64_t BytesAt(const RecentBytes::Point& point, const SeriesKey& key) {
  const auto at =
      std::ranges::find(point.bytes, key, [](const auto& entry) { return entry.first; });
  return at == point.bytes.end() ? 0 : at->second;
}

}  // namespace tidemark
