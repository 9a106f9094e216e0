#include "daemon/detect/corroboration.h"

#include <algorithm>

namespace tidemark::detect {
namespace {

constexpr uint64_t kSiteConfirmSteps = 96;
constexpr int64_t kSiteConfirmBytes = 8 << 20;
// Of a site's growth that must show in the series' floor as well.
constexpr double kShowsInFloor = 0.5;
constexpr uint64_t kHeld = 4;
constexpr uint64_t kHeldAtLeast = 1000;

bool ShowsInFloor(const SeriesDetector& series, const SiteGrowth& site) {
  const auto then = series.history().FloorAt(site.since_ns);
  if (!then) return false;
  return static_cast<double>(series.finding().floor_bytes - *then) >=
         kShowsInFloor * static_cast<double>(site.grown_bytes);
}

bool SiteConfirms(const SeriesDetector& series, const SiteWord& sites) {
  const SiteGrowth* site = sites.growth;
  return site != nullptr && !sites.growth_slows && sites.generations_alive.value_or(true) &&
         site->last_step - site->since_step >= kSiteConfirmSteps &&
         site->grown_bytes >= kSiteConfirmBytes && ShowsInFloor(series, *site);
}

}  // namespace

const Corroboration::Word& Corroboration::Update(const SeriesDetector& series,
                                                 const SiteWord& sites, uint64_t step,
                                                 int64_t now_ns) {
  const SeriesFinding& finding = series.finding();
  VerdictState state = finding.state;
  const bool was_confirmed = word_.state == VerdictState::kConfirmed;
  const bool site_suspects = sites.growth != nullptr && !sites.growth_slows;
  word_.by_site = false;
  if (finding.state == VerdictState::kConfirmed) {
    const uint64_t took = finding.confirmed_at - std::min(finding.confirmed_at, finding.since);
    const uint64_t lasted = step - std::min(step, finding.since);
    const bool held_long = lasted >= std::max(kHeldAtLeast, kHeld * took);
    if (!sites.generations_alive.value_or(true) && !site_suspects && !held_long) {
      state = VerdictState::kSuspect;
    }
  } else if (SiteConfirms(series, sites)) {
    state = VerdictState::kConfirmed;
    word_.by_site = true;
  } else if (site_suspects) {
    // What was confirmed stays so while its site goes on growing.
    state = was_confirmed ? VerdictState::kConfirmed : VerdictState::kSuspect;
    word_.by_site = finding.state != VerdictState::kSuspect;
  }
  const bool growing = state == VerdictState::kSuspect || state == VerdictState::kConfirmed;
  const bool was_growing =
      word_.state == VerdictState::kSuspect || word_.state == VerdictState::kConfirmed;
  if (!growing && (was_growing || word_.state == VerdictState::kRetracted)) {
    state = VerdictState::kRetracted;
  }
  if (growing && !was_growing) {
    word_.since = step;
    word_.since_ns = now_ns;
    word_.confirmed_at = 0;
  }
  if (state == VerdictState::kConfirmed && !was_confirmed) word_.confirmed_at = step;
  word_.state = state;
  return word_;
}

}  // namespace tidemark::detect
