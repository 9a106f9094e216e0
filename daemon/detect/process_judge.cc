#include "daemon/detect/process_judge.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "daemon/detect/choose_cause.h"
#include "daemon/detect/corroboration.h"
#include "daemon/detect/describe.h"
#include "daemon/detect/forecast.h"
#include "daemon/detect/series_detector.h"
#include "daemon/detect/site_evidence.h"
#include "daemon/detect/site_watch.h"

namespace tidemark::detect {
namespace {

// Without a new step for this long the totals are judged by the second until steps go on.
constexpr int64_t kStepGapNs = 30'000'000'000;
// Facts are kept at up to this many moments, thinned when full.
constexpr size_t kMostFacts = 32;
// A process has some twenty series; a hostile table must not make it millions.
constexpr size_t kMostSeries = 512;
constexpr size_t kRecentUsed = 16;
// The site table is asked as a whole this often while something is suspect, ticks.
constexpr uint64_t kTicksBetweenBlame = 16;
// A site whose newer generations are smaller than this share of its older ones fills up.
constexpr double kSiteSlows = 0.6;
constexpr double kCovers = 0.7;

struct Series {
  SeriesId id;
  AlignedTo aligned_to = AlignedTo::kSteps;
  bool by_step_points = false;
  SeriesDetector detector{DetectorOptions{}};
  // Of the totals: the smallest sample since the last point.
  int64_t pending_floor = std::numeric_limits<int64_t>::max();
  uint64_t pending_step = 0;
  int64_t last_floor = 0;
  int64_t last_bytes = 0;
  double peak_over_floor = 0;
  // What the sites say of it, asked for on a slower beat.
  Corroboration corroboration;
  BlameAnswer blame;
  VerdictState asked_at = VerdictState::kWarmingUp;
  // The series whose bytes this one counts again. While that one has something to say, it speaks
  // for both.
  std::optional<SeriesId> leader;
  bool folded = false;
};

}  // namespace

class ProcessJudge::Impl {
 public:
  explicit Impl(JudgeOptions options) : options_(options) {}

  const std::vector<Verdict>& Judge(const ProcessTick& tick) {
    ++ticks_;
    if (first_ns_ == 0) first_ns_ = tick.now_ns;
    KeepFacts(tick);
    KeepUsed(tick);
    for (Series& series : series_) series.detector.SetHeadroom(HeadroomOf(tick, series.id));
    TakeSteps(tick);
    TakeTotals(tick);
    if (tick.sites != nullptr && last_step_ > 0 && !tick.in_load_phase) {
      site_watch_.Tick(*tick.sites, last_step_, tick.now_ns);
    }
    verdicts_.resize(series_.size());
    for (size_t i = 0; i < series_.size(); ++i) Decide(tick, series_[i], verdicts_[i]);
    FoldFollowers();
    return verdicts_;
  }

  const std::vector<Verdict>& verdicts() const { return verdicts_; }
  uint64_t rejected_points() const { return rejected_; }

  size_t MemoryBytes() const {
    size_t bytes =
        sizeof(*this) + site_watch_.MemoryBytes() + verdicts_.capacity() * sizeof(Verdict);
    for (const Series& series : series_) {
      bytes += sizeof(Series) - sizeof(SeriesDetector) + series.detector.MemoryBytes();
    }
    return bytes;
  }

 private:
  struct FactsThen {
    int64_t time_ns = 0;
    ProcessFacts facts;
  };
  struct Used {
    std::string name;
    std::deque<int64_t> recent;
  };

  Series* Find(const SeriesId& id, AlignedTo aligned_to) {
    for (Series& series : series_) {
      if (series.id == id) return &series;
    }
    if (series_.size() >= kMostSeries) return nullptr;
    DetectorOptions detector;
    detector.warm_up_points = options_.warm_up_steps;
    series_.emplace_back();
    series_.back().id = id;
    series_.back().aligned_to = aligned_to;
    series_.back().detector = SeriesDetector(detector);
    return &series_.back();
  }

  void TakeSteps(const ProcessTick& tick) {
    for (const StepPoint& point : tick.new_steps) {
      if (point.step > last_step_) last_step_ns_ = tick.now_ns;
      last_step_ = std::max(last_step_, point.step);
      for (const SeriesPoint& value : point.series) {
        Series* series = Find(value.id, AlignedTo::kSteps);
        if (series == nullptr) {
          ++rejected_;
          continue;
        }
        if (!series->by_step_points) {
          // Sampled until now; the agent's own floors are better, and start anew.
          Restart(*series, AlignedTo::kSteps);
          series->by_step_points = true;
        }
        Push(*series, point.step, point.end_ns, value.floor_bytes);
        if (value.peak_bytes > value.floor_bytes) {
          series->peak_over_floor =
              std::max(0.98 * series->peak_over_floor,
                       static_cast<double>(value.peak_bytes) -
                           static_cast<double>(std::max<int64_t>(0, value.floor_bytes)));
        }
      }
    }
    if (tick.current_step > last_step_) {
      last_step_ = tick.current_step;
      last_step_ns_ = tick.now_ns;
    }
  }

  void TakeTotals(const ProcessTick& tick) {
    if (tick.in_load_phase) return;
    const bool steps = last_step_ > 0;
    const bool gap = steps && tick.now_ns - last_step_ns_ > kStepGapNs;
    for (const SeriesPoint& value : tick.totals) {
      Series* series = Find(value.id, steps ? AlignedTo::kSteps : AlignedTo::kSeconds);
      if (series == nullptr) {
        ++rejected_;
        continue;
      }
      series->last_bytes = value.floor_bytes;
      if (series->by_step_points) continue;
      if (!steps) {
        const int64_t seconds = (tick.now_ns - first_ns_) / 1'000'000'000;
        Push(*series, static_cast<uint64_t>(std::max<int64_t>(0, seconds)), tick.now_ns,
             value.floor_bytes);
        continue;
      }
      // The first steps say that what came before was loading.
      if (series->aligned_to == AlignedTo::kSeconds) Restart(*series, AlignedTo::kSteps);
      if (series->pending_step != last_step_ || gap) {
        if (series->pending_floor != std::numeric_limits<int64_t>::max()) {
          Push(*series, series->pending_step, tick.now_ns, series->pending_floor);
        }
        series->pending_floor = value.floor_bytes;
        series->pending_step = last_step_;
      } else {
        series->pending_floor = std::min(series->pending_floor, value.floor_bytes);
      }
    }
  }

  void Restart(Series& series, AlignedTo aligned_to) {
    DetectorOptions detector;
    detector.warm_up_points = options_.warm_up_steps;
    series.detector = SeriesDetector(detector);
    series.aligned_to = aligned_to;
    series.pending_floor = std::numeric_limits<int64_t>::max();
  }

  void Push(Series& series, uint64_t unit, int64_t time_ns, int64_t floor) {
    if (series.detector.Push(unit, time_ns, floor)) {
      series.last_floor = floor;
    } else {
      ++rejected_;
    }
  }

  void KeepFacts(const ProcessTick& tick) {
    if (!facts_.empty() && tick.now_ns - facts_.back().time_ns < facts_spacing_ns_) return;
    if (facts_.size() == kMostFacts) {
      for (size_t i = 0; i < kMostFacts / 2; ++i) facts_[i] = facts_[2 * i];
      facts_.resize(kMostFacts / 2);
      facts_spacing_ns_ *= 2;
    }
    facts_.push_back({tick.now_ns, tick.facts});
  }

  ProcessFacts FactsAt(int64_t time_ns) const {
    ProcessFacts found = facts_.front().facts;
    for (const FactsThen& then : facts_) {
      if (then.time_ns <= time_ns) found = then.facts;
    }
    return found;
  }

  void KeepUsed(const ProcessTick& tick) {
    used_.resize(tick.limits.size());
    for (size_t i = 0; i < tick.limits.size(); ++i) {
      if (used_[i].name != tick.limits[i].name) used_[i] = Used{tick.limits[i].name, {}};
      used_[i].recent.push_back(tick.limits[i].used_bytes);
      if (used_[i].recent.size() > kRecentUsed) used_[i].recent.pop_front();
    }
  }

  static bool Limits(const LimitPoint& limit, const SeriesId& id) {
    return limit.device == id.device &&
           (!limit.pinned_only || id.memory_class == MemoryClass::kPinnedOther ||
            id.memory_class == MemoryClass::kLocked);
  }

  // The least that any limit leaves; of its lowest use of late, since peaks come and go.
  double HeadroomOf(const ProcessTick& tick, const SeriesId& id) const {
    double headroom = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < tick.limits.size(); ++i) {
      if (!Limits(tick.limits[i], id)) continue;
      headroom = std::min(headroom, static_cast<double>(tick.limits[i].capacity_bytes) -
                                        static_cast<double>(LeastUsed(i)));
    }
    return headroom;
  }

  int64_t LeastUsed(size_t limit) const {
    const auto& recent = used_[limit].recent;
    return *std::min_element(recent.begin(), recent.end());
  }

  void Decide(const ProcessTick& tick, Series& series, Verdict& verdict) {
    const SeriesFinding& finding = series.detector.finding();
    const bool asks_sites = tick.sites != nullptr && series.aligned_to == AlignedTo::kSteps;
    SiteWord sites;
    const SiteGrowth* growth = asks_sites ? site_watch_.FastestOf(series.id) : nullptr;
    if (growth != nullptr) {
      sites.growth = growth;
      sites.growth_slows =
          LateToEarly(tick.sites->At(growth->row), growth->since_step, last_step_) < kSiteSlows;
    }
    const bool series_grows =
        finding.state == VerdictState::kSuspect || finding.state == VerdictState::kConfirmed;
    const bool asked = asks_sites && (series_grows || growth != nullptr) &&
                       (ticks_ % kTicksBetweenBlame == 0 || finding.state != series.asked_at);
    if (!series_grows && growth == nullptr) series.blame = BlameAnswer{};
    if (asked) {
      series.asked_at = finding.state;
      const bool by_series = series_grows && finding.slope.per_unit > 0;
      series.blame = BlameSites(*tick.sites, {series.id,
                                              by_series ? finding.onset
                                              : growth  ? growth->since_step
                                                        : 0,
                                              last_step_,
                                              by_series ? finding.slope.per_unit
                                              : growth  ? growth->per_step
                                                        : 0});
    }
    // Only a table that covers the series can acquit it: bytes without a stack have no site.
    const bool covered = static_cast<double>(series.blame.live_bytes) >=
                         kCovers * static_cast<double>(finding.floor_bytes);
    if (asks_sites && tick.sites_complete && series.blame.can_tell && covered) {
      sites.generations_alive = ShareOf(series.blame) >= options_.site_share_to_blame;
    }
    const VerdictState before = series.corroboration.word().state;
    const Corroboration::Word& word =
        series.corroboration.Update(series.detector, sites, UnitNow(tick, series), tick.now_ns);
    verdict.state = word.state;
    verdict.memory_class = series.id.memory_class;
    verdict.device = series.id.device;
    verdict.aligned_to = series.aligned_to;
    verdict.ranks.assign(tick.rank ? 1 : 0, tick.rank.value_or(0));
    verdict.detection_floor = finding.detection_floor;
    verdict.units_per_second = series.aligned_to == AlignedTo::kSeconds
                                   ? 1.0
                                   : series.detector.history().UnitsPerSecond(64);
    verdict.since = word.since;
    verdict.since_ns = word.since_ns;
    verdict.confirmed_at = word.confirmed_at;
    if (word.state == VerdictState::kWarmingUp || word.state == VerdictState::kSteady) return;
    const bool news = before != word.state;
    if (word.state == VerdictState::kRetracted) {
      if (news || series.folded) Explain(tick, series, verdict);
      verdict.forecast.reset();
      return;
    }
    Measure(series, word.by_site ? growth : nullptr, verdict);
    if (news || series.folded || ticks_ % kTicksBetweenBlame == 0) Explain(tick, series, verdict);
    if (series.leader) verdict.state = VerdictState::kSuspect;
    Forecast(tick, series, verdict);
  }

  static bool Says(const Verdict& verdict) {
    return verdict.state == VerdictState::kSuspect || verdict.state == VerdictState::kConfirmed ||
           verdict.state == VerdictState::kRetracted;
  }

  // One growth is one verdict: what only counts a leader's bytes again becomes evidence of it.
  // From the inside out, so that a leader that is folded itself still speaks here.
  void FoldFollowers() {
    for (Series& series : series_) series.folded = false;
    std::vector<size_t> folded;
    for (size_t i = 0; i < series_.size(); ++i) {
      if (!series_[i].leader || !Says(verdicts_[i])) continue;
      for (size_t j = 0; j < series_.size(); ++j) {
        if (series_[j].id == *series_[i].leader && Says(verdicts_[j])) folded.push_back(i);
      }
    }
    for (size_t i : folded) {
      series_[i].folded = true;
      const Verdict& said = verdicts_[i];
      Verdict quiet;
      quiet.state = VerdictState::kSteady;
      quiet.memory_class = said.memory_class;
      quiet.device = said.device;
      quiet.aligned_to = said.aligned_to;
      quiet.ranks = said.ranks;
      quiet.detection_floor = said.detection_floor;
      quiet.units_per_second = said.units_per_second;
      verdicts_[i] = std::move(quiet);
    }
  }

  static double ShareOf(const BlameAnswer& blame) {
    double share = 0;
    for (const SiteBlame& site : blame.sites) share += site.share_of_slope;
    return share;
  }

  uint64_t UnitNow(const ProcessTick& tick, const Series& series) const {
    if (series.aligned_to == AlignedTo::kSteps) return last_step_;
    return static_cast<uint64_t>(std::max<int64_t>(0, tick.now_ns - first_ns_) / 1'000'000'000);
  }

  // Slope and onset: the series' own, or the site's where the site knew first.
  void Measure(const Series& series, const SiteGrowth* site, Verdict& verdict) const {
    const SeriesFinding& finding = series.detector.finding();
    if (site == nullptr) {
      verdict.slope = finding.slope;
      verdict.grown_bytes = finding.grown_bytes;
      verdict.onset = finding.onset;
      return;
    }
    // A site has no noise: what is uncertain is within which step its growth began and ended.
    const auto lasted = static_cast<double>(site->last_step - site->since_step);
    const auto grown = static_cast<double>(site->grown_bytes);
    verdict.slope = {site->per_step, grown / (lasted + 2), grown / std::max(1.0, lasted - 2)};
    verdict.grown_bytes = site->grown_bytes;
    verdict.onset = site->since_step;
  }

  void Explain(const ProcessTick& tick, Series& series, Verdict& verdict) {
    SeriesFinding finding = series.detector.finding();
    const Corroboration::Word& word = series.corroboration.word();
    finding.state = word.state;
    if (word.by_site) {
      // In the words of the series, so that one chooser serves both.
      finding.pattern = GrowthPattern::kSteadyGrowth;
      finding.end = GrowthEnd::kNone;
      finding.slope = verdict.slope;
      finding.onset = verdict.onset;
      finding.grown_bytes = verdict.grown_bytes;
      finding.onset_ns = word.since_ns;
    } else if (word.state == VerdictState::kRetracted && finding.end == GrowthEnd::kNone) {
      finding.end = GrowthEnd::kLevelledOff;  // a site's growth that never showed in the series
    }
    CauseInput input;
    input.id = series.id;
    input.finding = &finding;
    input.growth_bytes = finding.grown_bytes;
    input.facts_then = FactsAt(finding.onset_ns);
    input.facts_now = tick.facts;
    for (const Series& other : series_) {
      if (&other == &series) continue;
      const auto then = other.detector.history().FloorAt(finding.onset_ns);
      if (!then) continue;
      input.companions.push_back({other.id, other.detector.finding().floor_bytes - *then});
    }
    const CauseChoice choice = ChooseCause(input);
    verdict.cause = choice.cause;
    verdict.releasable_bytes = choice.releasable_bytes;
    // A growth that ended still belongs to the leader that it followed.
    if (word.state != VerdictState::kRetracted) {
      series.leader = choice.follows ? std::optional(choice.leader) : std::nullopt;
    }
    verdict.evidence.clear();
    verdict.site.reset();
    verdict.more_sites.clear();
    verdict.evidence.push_back(DescribeGrowth(finding, series.aligned_to));
    if (tick.sites != nullptr && series.aligned_to == AlignedTo::kSteps &&
        word.state != VerdictState::kRetracted) {
      Blame(tick, series, verdict);
    }
    verdict.evidence.insert(verdict.evidence.end(), choice.evidence.begin(), choice.evidence.end());
    for (const Series& other : series_) {
      if (other.leader != series.id) continue;
      const auto then = other.detector.history().FloorAt(finding.onset_ns);
      if (!then) continue;
      const int64_t grown = other.detector.finding().floor_bytes - *then;
      verdict.evidence.push_back(std::string(ToString(other.id.memory_class)) + " moved by " +
                                 FormatBytes(static_cast<double>(grown)) +
                                 " in the same time: the same bytes, counted there too");
    }
  }

  void Blame(const ProcessTick& tick, const Series& series, Verdict& verdict) const {
    std::vector<SiteBlame> found = series.blame.sites;
    if (found.empty() && !series.blame.can_tell) {
      // Too early for the generations: the site that grows is known all the same.
      const SiteGrowth* growth = site_watch_.FastestOf(series.id);
      if (growth != nullptr) {
        SiteBlame blame;
        blame.site_id = tick.sites->At(growth->row).site_id;
        blame.bytes_per_unit = growth->per_step;
        blame.retained_bytes = growth->grown_bytes;
        blame.share_of_slope =
            verdict.slope.per_unit > 0 ? growth->per_step / verdict.slope.per_unit : 0;
        found.push_back(blame);
      }
    }
    double share = 0;
    for (const SiteBlame& blame : found) share += blame.share_of_slope;
    if (found.empty() || share < options_.site_share_to_blame) {
      verdict.evidence.push_back(
          tick.sites_complete ? "no allocation site explains half of it: the layer is named instead"
                              : "the site table is not complete: the layer is named instead");
      verdict.more_sites = std::move(found);
      return;
    }
    verdict.site = found.front();
    verdict.more_sites.assign(found.begin() + 1, found.end());
    std::string line =
        "one site retains " + FormatBytes(verdict.site->bytes_per_unit) + " per step";
    if (verdict.site->generations_seen > 0) {
      line += ": " + std::to_string(verdict.site->generations_alive) + " of " +
              std::to_string(verdict.site->generations_seen) +
              " generations born since are still alive";
    }
    verdict.evidence.push_back(line +
                               " (allocated there; who holds them is another question: "
                               "`tidemark sites --holders`)");
  }

  void Forecast(const ProcessTick& tick, const Series& series, Verdict& verdict) {
    verdict.forecast.reset();
    if (verdict.state != VerdictState::kSuspect && verdict.state != VerdictState::kConfirmed) {
      return;
    }
    GrowthNow growth;
    growth.slope = verdict.slope;
    growth.aligned_to = verdict.aligned_to;
    growth.units_per_second = verdict.units_per_second;
    growth.unit_now = verdict.aligned_to == AlignedTo::kSteps ? last_step_ : 0;
    growth.peak_over_floor_bytes = static_cast<int64_t>(series.peak_over_floor);
    for (size_t i = 0; i < tick.limits.size(); ++i) {
      const LimitPoint& limit = tick.limits[i];
      if (!Limits(limit, series.id)) continue;
      auto forecast = ForecastOutOfMemory(growth, limit, LeastUsed(i));
      if (forecast && (!verdict.forecast || forecast->units_left < verdict.forecast->units_left)) {
        verdict.forecast = std::move(forecast);
      }
    }
  }

  JudgeOptions options_;
  std::deque<Series> series_;  // addresses stay: Find hands out pointers
  std::vector<Verdict> verdicts_;
  std::vector<FactsThen> facts_;
  int64_t facts_spacing_ns_ = 1'000'000'000;
  std::vector<Used> used_;
  SiteWatch site_watch_;
  uint64_t ticks_ = 0;
  uint64_t last_step_ = 0;
  int64_t last_step_ns_ = 0;
  int64_t first_ns_ = 0;
  uint64_t rejected_ = 0;
};

ProcessJudge::ProcessJudge(JudgeOptions options) : impl_(std::make_unique<Impl>(options)) {}
ProcessJudge::~ProcessJudge() = default;
ProcessJudge::ProcessJudge(ProcessJudge&&) noexcept = default;
ProcessJudge& ProcessJudge::operator=(ProcessJudge&&) noexcept = default;
const std::vector<Verdict>& ProcessJudge::Judge(const ProcessTick& tick) {
  return impl_->Judge(tick);
}
const std::vector<Verdict>& ProcessJudge::verdicts() const { return impl_->verdicts(); }
uint64_t ProcessJudge::rejected_points() const { return impl_->rejected_points(); }
size_t ProcessJudge::MemoryBytes() const { return impl_->MemoryBytes(); }

}  // namespace tidemark::detect
