#include "daemon/detect/evaluate/trial.h"

#include "daemon/detect/evaluate/live_job.h"
#include "daemon/detect/process_judge.h"

namespace tidemark::detect::evaluate {
namespace {

// Follows one yes/no of `confirmed` and `suspect` through the steps.
class Recorder {
 public:
  Recorder(const Job& job, Trial& trial) : job_(job), trial_(trial) {
    trial.leaks = job.onset.has_value();
  }

  void Step(uint64_t step, bool suspect, bool confirmed) {
    const bool due = job_.onset && step >= *job_.onset;
    trial_.suspect_ever |= suspect;
    trial_.confirmed_ever |= confirmed;
    if (due && (suspect || confirmed) && !trial_.suspect_after) {
      trial_.suspect_after = step - *job_.onset;
    }
    if (due && confirmed && !trial_.confirmed_after) trial_.confirmed_after = step - *job_.onset;
    if (confirmed && !was_ && !due) {
      ++trial_.alarms;
      false_since_ = step;
      false_alarm_ = true;
    }
    if (confirmed && job_.onset && !due) trial_.confirmed_before_onset = true;
    if (!confirmed && was_ && false_alarm_ && !trial_.retracted_after) {
      trial_.retracted_after = step - false_since_;
    }
    if (!confirmed) false_alarm_ = false;
    was_ = confirmed;
    trial_.confirmed_at_end = confirmed;
  }

 private:
  const Job& job_;
  Trial& trial_;
  bool was_ = false;
  bool false_alarm_ = false;
  uint64_t false_since_ = 0;
};

}  // namespace

Trial RunSeries(const Job& job, const DetectorOptions& options) {
  Trial trial;
  Recorder recorder(job, trial);
  SeriesDetector detector(options);
  const std::vector<int64_t> bytes = SumOf(job);
  for (uint64_t step = 0; step < bytes.size(); ++step) {
    detector.Push(step, static_cast<int64_t>(step) * 1'000'000'000, bytes[step]);
    const VerdictState state = detector.finding().state;
    recorder.Step(step, state == VerdictState::kSuspect, state == VerdictState::kConfirmed);
  }
  return trial;
}

Trial RunLive(const Job& job, uint64_t seed) {
  Trial trial;
  Recorder recorder(job, trial);
  LiveJob live(job, seed);
  ProcessJudge judge;
  for (uint64_t step = 0; step < job.parts.front().mib.size(); ++step) {
    bool suspect = false;
    bool confirmed = false;
    for (const Verdict& verdict : judge.Judge(live.TickAt(step))) {
      suspect |= verdict.state == VerdictState::kSuspect;
      confirmed |= RaisesLeakAlert(verdict);
    }
    recorder.Step(step, suspect, confirmed);
  }
  if (trial.leaks && trial.confirmed_at_end) {
    trial.right_site = false;
    for (const Verdict& verdict : judge.verdicts()) {
      if (RaisesLeakAlert(verdict) && verdict.site) {
        trial.right_site = verdict.site->site_id == LiveJob::kLeakSite;
      }
    }
  }
  return trial;
}

}  // namespace tidemark::detect::evaluate
