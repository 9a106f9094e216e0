#include "daemon/detect/site_evidence.h"

#include <algorithm>

namespace tidemark::detect {
namespace {

// Of the generations since the onset that must still be alive for a site to be blamed.
constexpr double kGenerationsAlive = 0.6;
// Newer generations smaller than this share of the older ones: a cache that fills.
constexpr double kSlows = 0.6;
constexpr size_t kMostSites = 5;

}  // namespace

SiteBlame RetainedBy(const SitePoint& site, uint64_t onset_step, uint64_t now_step) {
  SiteBlame blame;
  blame.site_id = site.site_id;
  const unsigned shift = std::min<unsigned>(site.cohort_shift, 58);
  const uint64_t now_cohort = now_step >> shift;
  // The cohort of the onset holds what was there before too, the newest what the step under way
  // still needs: neither counts, unless the onset's cohort begins with the onset.
  uint64_t first = onset_step >> shift;
  if ((first << shift) < onset_step) ++first;
  for (uint64_t c = first; c < std::min<uint64_t>(now_cohort, kCohorts); ++c) {
    ++blame.generations_seen;
    if (site.cohort_bytes[c] > 0) {
      ++blame.generations_alive;
      blame.retained_bytes += site.cohort_bytes[c];
    }
  }
  if (blame.generations_seen > 0) {
    blame.bytes_per_unit =
        static_cast<double>(blame.retained_bytes) /
        (static_cast<double>(blame.generations_seen) * static_cast<double>(uint64_t{1} << shift));
  }
  return blame;
}

double LateToEarly(const SitePoint& site, uint64_t onset_step, uint64_t now_step) {
  const unsigned shift = std::min<unsigned>(site.cohort_shift, 58);
  uint64_t first = onset_step >> shift;
  if ((first << shift) < onset_step) ++first;
  const uint64_t end = std::min<uint64_t>(now_step >> shift, kCohorts);
  if (end < first + 4) return 1;
  const uint64_t half = (end - first) / 2;
  double early = 0;
  double late = 0;
  for (uint64_t i = 0; i < half; ++i) {
    early += static_cast<double>(site.cohort_bytes[first + i]);
    late += static_cast<double>(site.cohort_bytes[end - 1 - i]);
  }
  return early > 0 ? late / early : 10.0;
}

BlameAnswer BlameSites(const SiteTable& sites, const SiteQuestion& question) {
  BlameAnswer answer;
  std::vector<SiteBlame>& found = answer.sites;
  for (size_t row = 0; row < sites.size(); ++row) {
    const SitePoint site = sites.At(row);
    if (site.id != question.id || site.live_bytes <= 0) continue;
    answer.live_bytes += site.live_bytes;
    SiteBlame blame = RetainedBy(site, question.onset_step, question.now_step);
    const bool cohorts_known = std::any_of(site.cohort_bytes.begin(), site.cohort_bytes.end(),
                                           [](int64_t bytes) { return bytes > 0; });
    answer.can_tell = answer.can_tell || (cohorts_known && blame.generations_seen >= 2);
    if (blame.generations_seen < 2 || blame.retained_bytes <= 0 ||
        static_cast<double>(blame.generations_alive) <
            kGenerationsAlive * static_cast<double>(blame.generations_seen) ||
        LateToEarly(site, question.onset_step, question.now_step) < kSlows) {
      continue;
    }
    blame.share_of_slope = question.slope > 0 ? blame.bytes_per_unit / question.slope : 0;
    found.push_back(blame);
  }
  std::sort(found.begin(), found.end(), [](const SiteBlame& a, const SiteBlame& b) {
    return a.bytes_per_unit != b.bytes_per_unit ? a.bytes_per_unit > b.bytes_per_unit
                                                : a.site_id < b.site_id;
  });
  if (found.size() > kMostSites) found.resize(kMostSites);
  return answer;
}

}  // namespace tidemark::detect
