#include "daemon/detect/file_judge.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "daemon/detect/describe.h"
#include "daemon/detect/metric_kind.h"
#include "daemon/detect/series_detector.h"

namespace tidemark::detect {
namespace {

// A sample counts as a second for the history's clock; only the order matters.
constexpr int64_t kNsPerSample = 1'000'000'000;
// Counts are judged as if each were this many bytes, so that one scale of thresholds fits.
constexpr int64_t kCountScale = 1 << 20;
constexpr int64_t kLargestCount = int64_t{1} << 39;
// Another series that moved this share of a growth explains it.
constexpr double kExplains = 0.6;
// A rank takes part in a growth when it grew by this share of what the others grew by.
constexpr double kTakesPart = 0.5;
constexpr size_t kRanksToPool = 3;

struct RankTrack {
  int32_t rank = 0;
  SeriesDetector detector;
  int64_t first_value = 0;
  int64_t last_value = 0;
  int64_t largest_value = 0;
  std::optional<uint64_t> first_rise;  // sample where the value first exceeded the first one
};

struct MetricTrack {
  std::string name;
  MetricKind kind = MetricKind::kOther;
  std::vector<RankTrack> ranks;
  // The median over the ranks: what all of them do shows in it sooner than in any one.
  std::unique_ptr<SeriesDetector> pooled;

  bool Is(MetricKind other) const { return kind == other; }
};

struct Finding {
  FileVerdict verdict = FileVerdict::kNotLeak;
  Cause cause = Cause::kNone;
  VerdictState state = VerdictState::kSteady;
  const MetricTrack* metric = nullptr;
  std::vector<int32_t> ranks;
  Slope slope;
  std::optional<uint64_t> first_flagged;
  std::optional<uint64_t> confirmed;
  double weight = 0;  // relative growth: which of two equal verdicts to name
  std::vector<std::string> evidence;
};

DetectorOptions OptionsFor(MetricKind kind) {
  DetectorOptions options;
  options.warm_up_points = 3;
  options.plateau_ends_growth = kind != MetricKind::kSharedMemory;
  return options;
}

void Pool(MetricTrack& track, const std::map<int32_t, std::vector<Sample>>& ranks, int64_t scale) {
  if (ranks.size() < kRanksToPool) return;
  track.pooled = std::make_unique<SeriesDetector>(OptionsFor(track.kind));
  std::vector<const std::vector<Sample>*> series;
  for (const auto& [rank, samples] : ranks) series.push_back(&samples);
  std::vector<size_t> next(series.size(), 0);
  std::vector<int64_t> values(series.size());
  for (const Sample& lead : *series[0]) {
    bool everywhere = true;
    for (size_t i = 0; i < series.size(); ++i) {
      while (next[i] < series[i]->size() && (*series[i])[next[i]].at < lead.at) ++next[i];
      everywhere = everywhere && next[i] < series[i]->size() && (*series[i])[next[i]].at == lead.at;
      if (everywhere) values[i] = (*series[i])[next[i]].value;
    }
    if (!everywhere) continue;
    const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    track.pooled->Push(lead.at, static_cast<int64_t>(lead.at) * kNsPerSample,
                       std::min(*middle, kLargestCount * kCountScale / scale) * scale);
  }
}

MetricTrack Follow(const std::string& name, const std::map<int32_t, std::vector<Sample>>& ranks) {
  MetricTrack track;
  track.name = name;
  track.kind = KindOfMetric(name);
  const int64_t scale = IsCount(track.kind) ? kCountScale : 1;
  for (const auto& [rank, samples] : ranks) {
    RankTrack one{rank,
                  SeriesDetector(OptionsFor(track.kind)),
                  samples.front().value,
                  samples.back().value,
                  0,
                  std::nullopt};
    for (const Sample& sample : samples) {
      one.detector.Push(sample.at, static_cast<int64_t>(sample.at) * kNsPerSample,
                        scale == 1 ? sample.value : std::min(sample.value, kLargestCount) * scale);
      one.largest_value = std::max(one.largest_value, sample.value);
      if (!one.first_rise && sample.value > one.first_value) one.first_rise = sample.at;
    }
    track.ranks.push_back(std::move(one));
  }
  Pool(track, ranks, scale);
  return track;
}

// How far a detector's floor moved since a sample.
int64_t GrowthSince(const SeriesDetector& detector, uint64_t sample) {
  const auto then = detector.history().FloorAt(static_cast<int64_t>(sample) * kNsPerSample);
  return then ? detector.finding().floor_bytes - *then : 0;
}

int64_t MedianGrowthSince(const MetricTrack& track, uint64_t sample) {
  std::vector<int64_t> growth;
  for (const RankTrack& rank : track.ranks) growth.push_back(GrowthSince(rank.detector, sample));
  const auto middle = growth.begin() + static_cast<ptrdiff_t>(growth.size() / 2);
  std::nth_element(growth.begin(), middle, growth.end());
  return *middle;
}

bool Confirmed(const SeriesDetector& detector) {
  return detector.finding().state == VerdictState::kConfirmed;
}

class FileJudge {
 public:
  explicit FileJudge(const SampleFile& file) : file_(file) {
    for (const auto& [name, ranks] : file.series) tracks_.push_back(Follow(name, ranks));
  }

  Analysis Judge() {
    for (const MetricTrack& track : tracks_) {
      if (track.Is(MetricKind::kErrors)) {
        JudgeErrors(track);
      } else if (track.Is(MetricKind::kWork) || Replaced(track)) {
        continue;
      } else {
        JudgeGrowth(track);
      }
    }
    JudgeFragmentation();
    return Conclude();
  }

 private:
  const MetricTrack* Find(MetricKind kind) const {
    for (const MetricTrack& track : tracks_) {
      if (track.kind == kind) return &track;
    }
    return nullptr;
  }

  // Plain anon is the wrong figure where a corrected one is in the file.
  bool Replaced(const MetricTrack& track) const {
    return track.Is(MetricKind::kAnon) && (Find(MetricKind::kAnonPlusSwap) != nullptr ||
                                           Find(MetricKind::kAnonNotLazyFree) != nullptr);
  }

  void JudgeErrors(const MetricTrack& track) {
    Finding finding;
    finding.metric = &track;
    for (const RankTrack& rank : track.ranks) {
      if (!rank.first_rise) continue;
      finding.ranks.push_back(rank.rank);
      finding.first_flagged =
          std::min(finding.first_flagged.value_or(*rank.first_rise), *rank.first_rise);
    }
    if (finding.ranks.empty()) return;
    finding.verdict = FileVerdict::kNotLeakAlert;
    finding.cause = Cause::kPinFailure;
    finding.evidence.push_back("calls failed, from sample " +
                               std::to_string(*finding.first_flagged) + " on");
    findings_.push_back(std::move(finding));
  }

  void JudgeGrowth(const MetricTrack& track) {
    std::vector<const SeriesDetector*> confirmed;
    for (const RankTrack& rank : track.ranks) {
      if (Confirmed(rank.detector)) confirmed.push_back(&rank.detector);
    }
    const bool by_pool = track.pooled && Confirmed(*track.pooled);
    if (confirmed.empty() && !by_pool) {
      JudgeEndedGrowth(track);
      return;
    }
    if (by_pool) confirmed.push_back(track.pooled.get());
    // The one that was flagged first speaks for all.
    const SeriesDetector& speaker = **std::min_element(
        confirmed.begin(), confirmed.end(),
        [](const auto* a, const auto* b) { return a->finding().since < b->finding().since; });
    const SeriesFinding& said = speaker.finding();
    Finding finding;
    finding.metric = &track;
    finding.state = VerdictState::kConfirmed;
    finding.first_flagged = said.since;
    finding.confirmed = said.confirmed_at;
    for (const auto* detector : confirmed) {
      finding.confirmed = std::min(*finding.confirmed, detector->finding().confirmed_at);
    }
    const double growth =
        static_cast<double>(std::max<int64_t>(1, GrowthSince(speaker, said.onset)));
    for (const RankTrack& rank : track.ranks) {
      if (Confirmed(rank.detector) ||
          static_cast<double>(GrowthSince(rank.detector, said.onset)) >= kTakesPart * growth) {
        finding.ranks.push_back(rank.rank);
      }
    }
    const double scale = IsCount(track.kind) ? static_cast<double>(kCountScale) : 1.0;
    finding.slope = MedianSlope(confirmed, scale);
    finding.weight = growth / static_cast<double>(std::max<int64_t>(1 << 20, said.onset_bytes));
    finding.evidence.push_back(track.name + ": " + DescribeGrowth(said, AlignedTo::kSamples));
    if (track.ranks.size() > 1) {
      finding.evidence.push_back(finding.ranks.size() == track.ranks.size()
                                     ? "every rank does it"
                                     : "only " + std::to_string(finding.ranks.size()) + " of " +
                                           std::to_string(track.ranks.size()) + " ranks do it");
    }
    Explain(track, said, growth, finding);
    findings_.push_back(std::move(finding));
  }

  static Slope MedianSlope(const std::vector<const SeriesDetector*>& detectors, double scale) {
    std::vector<Slope> slopes;
    for (const auto* detector : detectors) slopes.push_back(detector->finding().slope);
    const auto middle = slopes.begin() + static_cast<ptrdiff_t>(slopes.size() / 2);
    std::nth_element(slopes.begin(), middle, slopes.end(),
                     [](const Slope& a, const Slope& b) { return a.per_unit < b.per_unit; });
    return {middle->per_unit / scale, middle->low / scale, middle->high / scale};
  }

  // Whether a metric of that kind is in the file and did not take part in a growth.
  const MetricTrack* Flat(MetricKind kind, const SeriesFinding& said, double growth) const {
    const MetricTrack* track = Find(kind);
    if (track == nullptr) return nullptr;
    const auto moved = static_cast<double>(MedianGrowthSince(*track, said.onset));
    return moved < (1 - kExplains) * growth ? track : nullptr;
  }

  void Explain(const MetricTrack& track, const SeriesFinding& said, double growth,
               Finding& finding) {
    finding.verdict = MayLeak(track.kind) ? FileVerdict::kLeak : FileVerdict::kNotLeakAlert;
    finding.cause = CauseOfGrowth(track.kind);
    const auto flat = [&](MetricKind kind) { return Flat(kind, said, growth); };
    const auto say = [&](const MetricTrack* other, const char* what) {
      finding.evidence.push_back(other->name + " " + what);
    };
    const auto healthy = [&](Cause cause) {
      finding.cause = cause;
      finding.verdict = FileVerdict::kNotLeak;
    };
    switch (track.kind) {
      case MetricKind::kDeviceProcess:
      case MetricKind::kDeviceReserved:
        if (const auto* live = flat(MetricKind::kDeviceLive)) {
          say(live, "did not grow with it");
          finding.cause = track.Is(MetricKind::kDeviceReserved) ||
                                  (Find(MetricKind::kDeviceReserved) != nullptr &&
                                   flat(MetricKind::kDeviceReserved) == nullptr)
                              ? Cause::kFragmentation
                              : Cause::kOutsideFramework;
        } else if (Find(MetricKind::kDeviceLive) != nullptr) {
          finding.cause = Cause::kTensorsKept;
        }
        break;
      case MetricKind::kDeviceWide:
        if (const auto* process = flat(MetricKind::kDeviceProcess)) {
          say(process, "did not grow with it: the growth is a neighbour's");
          healthy(Cause::kForeignGrowth);
          return;
        }
        finding.evidence.push_back("a device-wide figure counts every process on the device");
        break;
      case MetricKind::kAnon:
      case MetricKind::kAnonPlusSwap:
      case MetricKind::kAnonNotLazyFree:
      case MetricKind::kResident:
        if (const auto* heap = flat(MetricKind::kHeapLive)) {
          say(heap, "did not grow with it: mappings outside the heap");
          finding.cause = Cause::kRawMmap;
        }
        break;
      case MetricKind::kContainerAnon:
        if (const auto* resident = flat(MetricKind::kResident)) {
          say(resident, "did not grow with it: shared pages are being copied");
          finding.cause = Cause::kCopyOnWrite;
        }
        break;
      case MetricKind::kContainerAll:
        for (MetricKind kind : {MetricKind::kContainerAnon, MetricKind::kAnon}) {
          if (const auto* anon = flat(kind)) {
            say(anon, "did not grow with it: the rest is page cache");
            healthy(Cause::kPageCache);
            return;
          }
          if (Find(kind) != nullptr) {  // judged there
            healthy(Cause::kPageCache);
            return;
          }
        }
        finding.evidence.push_back("page cache counts in this figure: look at anon beside it");
        break;
      case MetricKind::kPageCache:
      case MetricKind::kLazyFree:
        healthy(finding.cause);
        return;
      case MetricKind::kDeviceLive:
      case MetricKind::kHeapLive:
      case MetricKind::kSharedMemory:
      case MetricKind::kPinned:
      case MetricKind::kNodeResidual:
      case MetricKind::kErrors:
      case MetricKind::kHandles:
      case MetricKind::kWork:
      case MetricKind::kOther:
        break;
    }
    const CauseKind kind = InfoOf(finding.cause).kind;
    if (kind == CauseKind::kNotice) finding.verdict = FileVerdict::kNotLeakAlert;
    if (kind == CauseKind::kLeak && said.pattern == GrowthPattern::kStairs &&
        finding.cause != Cause::kSharedMemoryLeftovers) {
      finding.cause = Cause::kEventSteppedRetention;
    }
    if (FollowsTheWork(said)) healthy(Cause::kWorkloadGrowth);
  }

  // The work grows in the same stretch: then the bytes may well follow it.
  bool FollowsTheWork(const SeriesFinding& said) {
    const MetricTrack* work = Find(MetricKind::kWork);
    if (work == nullptr) return false;
    for (const RankTrack& rank : work->ranks) {
      const int64_t grown = GrowthSince(rank.detector, said.onset);
      const int64_t level = rank.detector.finding().floor_bytes;
      const bool grows =
          Confirmed(rank.detector) || rank.detector.finding().state == VerdictState::kSuspect;
      if (grows && grown > 0.1 * static_cast<double>(level)) return true;
    }
    return false;
  }

  void JudgeEndedGrowth(const MetricTrack& track) {
    const SeriesDetector& speaker = track.pooled ? *track.pooled : track.ranks.front().detector;
    const SeriesFinding& said = speaker.finding();
    Finding finding;
    finding.metric = &track;
    finding.state = said.state;
    for (const RankTrack& rank : track.ranks) {
      const VerdictState state = rank.detector.finding().state;
      if (state == VerdictState::kSuspect) finding.state = state;
    }
    const bool retracted = said.state == VerdictState::kRetracted;
    const int64_t grown = GrowthSince(speaker, 0);
    if (retracted) {
      finding.cause = said.end == GrowthEnd::kGivenBack    ? Cause::kSawTooth
                      : said.end == GrowthEnd::kSlowedDown ? Cause::kWarmUp
                                                           : Cause::kFiniteRamp;
      finding.evidence.push_back(track.name + ": " + DescribeGrowth(said, AlignedTo::kSamples));
    }
    const auto flat_since_start = [&](MetricKind kind) {
      const MetricTrack* other = Find(kind);
      return other != nullptr && static_cast<double>(MedianGrowthSince(*other, 0)) <
                                     (1 - kExplains) * static_cast<double>(grown);
    };
    const bool host = track.Is(MetricKind::kAnon) || track.Is(MetricKind::kResident);
    if (retracted && said.end != GrowthEnd::kGivenBack && grown > 0) {
      if (track.Is(MetricKind::kContainerAnon) && flat_since_start(MetricKind::kResident)) {
        finding.cause = Cause::kCopyOnWrite;
      } else if (host && flat_since_start(MetricKind::kHeapLive)) {
        finding.cause = Cause::kAllocatorRetention;
      }
    } else if (retracted && said.end == GrowthEnd::kGivenBack && said.episodes > 1 &&
               OnDevice(track.kind)) {
      finding.cause = Cause::kPhaseAccumulation;
    }
    if (said.rises_seen >= 4 && OnDevice(track.kind) && said.end != GrowthEnd::kGivenBack) {
      finding.cause = Cause::kPerShapeRetention;
      finding.evidence.push_back(track.name + ": rose " + std::to_string(said.rises_seen) +
                                 " times by about the same, ever more rarely");
    }
    if (InfoOf(finding.cause).kind == CauseKind::kNotice) {
      finding.verdict = FileVerdict::kNotLeakAlert;
      for (const RankTrack& rank : track.ranks) finding.ranks.push_back(rank.rank);
    }
    findings_.push_back(std::move(finding));
  }

  static bool OnDevice(MetricKind kind) {
    return kind == MetricKind::kDeviceLive || kind == MetricKind::kDeviceProcess ||
           kind == MetricKind::kDeviceReserved;
  }

  // The device's figure rose and stayed, far above what is live at its highest or most of the time.
  void JudgeFragmentation() {
    const MetricTrack* live = Find(MetricKind::kDeviceLive);
    const MetricTrack* held = Find(MetricKind::kDeviceReserved);
    if (held == nullptr) held = Find(MetricKind::kDeviceProcess);
    if (live == nullptr || held == nullptr) return;
    Finding finding;
    finding.metric = held;
    for (const RankTrack& rank : held->ranks) {
      if (Confirmed(rank.detector)) return;
      const auto* other = RankOf(*live, rank.rank);
      if (other == nullptr) continue;
      const int64_t now = rank.detector.finding().floor_bytes;
      const int64_t grown = now - rank.first_value;
      if (grown > now / 4 && other->largest_value < now - grown / 4 &&
          GrowthSince(other->detector, 0) < grown / 4) {
        finding.ranks.push_back(rank.rank);
      }
    }
    if (finding.ranks.empty()) return;
    finding.verdict = FileVerdict::kNotLeakAlert;
    finding.cause = Cause::kFragmentation;
    finding.weight = 1;
    finding.evidence.push_back(held->name + " rose and stayed while " + live->name +
                               " never came near it");
    findings_.push_back(std::move(finding));
  }

  static const RankTrack* RankOf(const MetricTrack& track, int32_t rank) {
    for (const RankTrack& one : track.ranks) {
      if (one.rank == rank) return &one;
    }
    return nullptr;
  }

  Analysis Conclude() {
    Analysis analysis;
    analysis.detection_floor = 0;
    size_t longest = 0;
    for (const MetricTrack& track : tracks_) {
      for (const RankTrack& rank : track.ranks) {
        longest = std::max<size_t>(longest, rank.detector.points());
      }
    }
    const Finding* worst = nullptr;
    for (const Finding& finding : findings_) {
      if (worst == nullptr || finding.verdict > worst->verdict ||
          (finding.verdict == worst->verdict && finding.weight > worst->weight)) {
        worst = &finding;
      }
    }
    if (worst != nullptr) {
      analysis.verdict = worst->verdict;
      analysis.cause = worst->cause;
      analysis.state = worst->state;
      analysis.ranks = worst->ranks;
      analysis.metric = worst->metric->name;
      analysis.slope = worst->slope;
      analysis.first_flagged_sample = worst->first_flagged;
      analysis.confirmed_sample = worst->confirmed;
      analysis.evidence = worst->evidence;
      const RankTrack& first = worst->metric->ranks.front();
      analysis.detection_floor = first.detector.finding().detection_floor /
                                 (IsCount(worst->metric->kind) ? double{kCountScale} : 1.0);
      for (const Finding& finding : findings_) {
        if (&finding == worst || finding.verdict != worst->verdict ||
            finding.verdict == FileVerdict::kNotLeak) {
          continue;
        }
        analysis.evidence.insert(analysis.evidence.end(), finding.evidence.begin(),
                                 finding.evidence.end());
      }
    }
    if (analysis.cause != Cause::kNone)
      analysis.evidence.push_back(detect::Explain(analysis.cause));
    if (longest < 4 * kParts && analysis.verdict == FileVerdict::kNotLeak) {
      analysis.state = VerdictState::kWarmingUp;
      analysis.evidence.push_back("only " + std::to_string(longest) +
                                  " samples: too few to tell a leak from a warm-up");
    }
    analysis.evidence.insert(analysis.evidence.end(), file_.notes.begin(), file_.notes.end());
    return analysis;
  }

  const SampleFile& file_;
  std::vector<MetricTrack> tracks_;
  std::vector<Finding> findings_;
};

}  // namespace

Analysis JudgeSamples(const SampleFile& file) { return FileJudge(file).Judge(); }

}  // namespace tidemark::detect
