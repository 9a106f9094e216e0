#include "daemon/detect/process_judge.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "daemon/detect/choose_cause.h"
#include "daemon/detect/describe.h"
#include "daemon/detect/forecast.h"
#include "daemon/detect/series_detector.h"
#include "daemon/detect/site_evidence.h"

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
constexpr uint64_t kTicksBetweenBlame = 4;

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
    TakeSteps(tick);
    TakeTotals(tick);
    verdicts_.resize(series_.size());
    for (size_t i = 0; i < series_.size(); ++i) Decide(tick, series_[i], verdicts_[i]);
    return verdicts_;
  }

  const std::vector<Verdict>& verdicts() const { return verdicts_; }
  uint64_t rejected_points() const { return rejected_; }

  size_t MemoryBytes() const {
    size_t bytes = sizeof(*this) + verdicts_.capacity() * sizeof(Verdict);
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

  void Decide(const ProcessTick& tick, Series& series, Verdict& verdict) {
    const SeriesFinding& finding = series.detector.finding();
    const VerdictState before = verdict.state;
    verdict.state = finding.state;
    verdict.memory_class = series.id.memory_class;
    verdict.device = series.id.device;
    verdict.aligned_to = series.aligned_to;
    verdict.ranks.assign(tick.rank ? 1 : 0, tick.rank.value_or(0));
    verdict.detection_floor = finding.detection_floor;
    verdict.units_per_second = series.aligned_to == AlignedTo::kSeconds
                                   ? 1.0
                                   : series.detector.history().UnitsPerSecond(64);
    const bool growing =
        finding.state == VerdictState::kSuspect || finding.state == VerdictState::kConfirmed;
    if (!growing && finding.state != VerdictState::kRetracted) {
      const VerdictState state = verdict.state;
      const AlignedTo aligned_to = verdict.aligned_to;
      const double floor = verdict.detection_floor;
      const double pace = verdict.units_per_second;
      auto ranks = std::move(verdict.ranks);
      verdict = Verdict{};
      verdict.state = state;
      verdict.memory_class = series.id.memory_class;
      verdict.device = series.id.device;
      verdict.aligned_to = aligned_to;
      verdict.detection_floor = floor;
      verdict.units_per_second = pace;
      verdict.ranks = std::move(ranks);
      return;
    }
    if (!growing && before == VerdictState::kRetracted) return;  // said already
    verdict.slope = finding.slope;
    verdict.grown_bytes = finding.grown_bytes;
    verdict.onset = finding.onset;
    verdict.since = finding.since;
    verdict.since_ns = finding.since_ns;
    verdict.confirmed_at = finding.confirmed_at;
    if (growing && before == finding.state && ticks_ % kTicksBetweenBlame != 0) {
      Forecast(tick, series, verdict);
      return;
    }
    Explain(tick, series, verdict);
    Forecast(tick, series, verdict);
  }

  void Explain(const ProcessTick& tick, const Series& series, Verdict& verdict) {
    const SeriesFinding& finding = series.detector.finding();
    CauseInput input;
    input.id = series.id;
    input.finding = &finding;
    input.growth_bytes = finding.grown_bytes;
    input.facts_then = FactsAt(finding.onset_ns);
    input.facts_now = tick.facts;
    for (const Series& other : series_) {
      if (&other == &series) continue;
      if (other.id.memory_class == MemoryClass::kFwLive) input.has_framework = true;
      const auto then = other.detector.history().FloorAt(finding.onset_ns);
      if (!then) continue;
      input.companions.push_back({other.id, other.detector.finding().floor_bytes - *then});
    }
    const CauseChoice choice = ChooseCause(input);
    verdict.cause = choice.cause;
    verdict.releasable_bytes = choice.releasable_bytes;
    if (choice.follows) verdict.state = VerdictState::kSuspect;
    verdict.evidence.clear();
    verdict.site.reset();
    verdict.more_sites.clear();
    verdict.evidence.push_back(DescribeGrowth(finding, series.aligned_to));
    if (tick.sites != nullptr && series.aligned_to == AlignedTo::kSteps &&
        finding.state != VerdictState::kRetracted) {
      Blame(tick, series, verdict);
    }
    verdict.evidence.insert(verdict.evidence.end(), choice.evidence.begin(), choice.evidence.end());
  }

  void Blame(const ProcessTick& tick, const Series& series, Verdict& verdict) {
    const SeriesFinding& finding = series.detector.finding();
    std::vector<SiteBlame> found =
        BlameSites(*tick.sites, {series.id, finding.onset, last_step_, finding.slope.per_unit});
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
    verdict.evidence.push_back(
        "one site retains " + FormatBytes(verdict.site->bytes_per_unit) +
        " per step: " + std::to_string(verdict.site->generations_alive) + " of " +
        std::to_string(verdict.site->generations_seen) +
        " generations born since are still alive (allocated there; `tidemark sites --holders` "
        "helps to find who holds them)");
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
      if (limit.device != series.id.device) continue;
      if (limit.pinned_only && series.id.memory_class != MemoryClass::kPinnedOther &&
          series.id.memory_class != MemoryClass::kLocked) {
        continue;
      }
      const auto& recent = used_[i].recent;
      const int64_t used = *std::min_element(recent.begin(), recent.end());
      auto forecast = ForecastOutOfMemory(growth, limit, used);
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
