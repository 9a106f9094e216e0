#include "client/recording_history.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace tidemark::client {
namespace {

constexpr int kMostPoints = 10'000;
constexpr int kMostPidsOfRequest = 1024;

bool Chosen(const SourceOptions& source, const v1::ProcessRef& process) {
  return (!source.rank || process.rank() == *source.rank) &&
         (!source.pid || process.pid() == *source.pid) &&
         (source.job.empty() || process.training_job() == source.job);
}

// Phases and verdicts as marks, for snapshots that come without any.
std::vector<v1::HistoryMark> MarksOf(const v1::Snapshot& snapshot) {
  std::vector<v1::HistoryMark> marks;
  const auto unix_ns = [&](uint64_t monotonic_ns) {
    return snapshot.unix_ns() - (snapshot.monotonic_ns() - monotonic_ns);
  };
  for (const v1::Process& process : snapshot.processes()) {
    v1::HistoryMark mark;
    mark.mutable_process()->set_pid(process.pid());
    mark.mutable_process()->set_start_time_ticks(process.start_time_ticks());
    mark.mutable_process()->set_boot_id(snapshot.boot_id());
    mark.mutable_process()->set_rank(process.identity().rank());
    mark.mutable_process()->set_command(process.identity().command());
    mark.mutable_process()->set_helper_of(process.identity().helper_of());
    mark.mutable_process()->set_training_job(process.identity().training_job());
    for (const v1::Phase& phase : process.phases()) {
      mark.set_kind("phase");
      mark.set_text(phase.name());
      mark.set_step(phase.first_step());
      mark.set_start_unix_ns(unix_ns(phase.start_monotonic_ns()));
      mark.set_end_unix_ns(phase.end_monotonic_ns() == 0 ? 0 : unix_ns(phase.end_monotonic_ns()));
      marks.push_back(mark);
    }
    mark.set_end_unix_ns(0);
    for (const v1::Verdict& verdict : process.verdicts()) {
      if (verdict.state() == "steady" || verdict.state() == "warming_up") continue;
      mark.set_kind("verdict");
      mark.set_text(verdict.summary());
      mark.set_step(process.current_step());
      mark.set_start_unix_ns(snapshot.unix_ns());
      *mark.mutable_verdict() = verdict;
      marks.push_back(mark);
    }
  }
  return marks;
}

}  // namespace

Result<void> AddPast(Connection& connection, uint64_t start_unix_ns, v1::Recording* recording) {
  v1::QueryRangeRequest request;
  request.set_start_unix_ns(start_unix_ns);
  request.set_max_points(kMostPoints);
  request.set_fresh(true);
  const v1::Snapshot& snapshot = recording->snapshot();
  if (snapshot.processes_size() < kMostPidsOfRequest) {
    request.add_pids(0);
    for (const v1::Process& process : snapshot.processes()) request.add_pids(process.pid());
  }
  const auto add = [&](v1::QueryRangeResponse& answer) {
    for (v1::Series& series : *answer.mutable_series()) {
      *recording->add_series() = std::move(series);
    }
    for (v1::HistoryMark& mark : *answer.mutable_marks()) {
      *recording->add_marks() = std::move(mark);
    }
  };
  request.set_include_marks(true);
  Result<v1::QueryRangeResponse> classes = connection.QueryRange(request);
  if (!classes) return classes.error();
  add(*classes);
  request.set_include_marks(false);
  request.set_fresh(false);
  request.set_all_sites(true);
  Result<v1::QueryRangeResponse> sites = connection.QueryRange(request);
  if (!sites) return sites.error();
  add(*sites);
  request.set_all_sites(false);
  request.set_align("step");
  Result<v1::QueryRangeResponse> steps = connection.QueryRange(request);
  if (!steps) return steps.error();
  add(*steps);
  return {};
}

exports::Input InputOf(v1::Recording& recording, const SourceOptions& source) {
  source.Choose(*recording.mutable_snapshot());
  exports::Input input;
  input.snapshot = &recording.snapshot();
  for (const v1::Series& series : recording.series()) {
    if (!Chosen(source, series.process())) continue;
    (series.steps_size() > 0 ? input.steps : input.series).push_back(series);
  }
  for (const v1::HistoryMark& mark : recording.marks()) {
    if (Chosen(source, mark.process())) input.marks.push_back(mark);
  }
  if (input.steps.empty()) input.steps = exports::StepSeries(recording.snapshot());
  if (recording.marks().empty()) input.marks = MarksOf(recording.snapshot());
  return input;
}

Result<uint64_t> ParseSpan(const std::string& text) {
  uint64_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  const std::string unit(end, last);
  constexpr std::pair<const char*, uint64_t> kUnits[] = {
      {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  for (const auto& [name, seconds] : kUnits) {
    if (error != std::errc() || unit != name || number > 3650 * 86400 / seconds) continue;
    return number * seconds * 1'000'000'000;
  }
  return Error{"read the time \"" + text + "\"", "it is none", "as in 90s, 15m, 2h or 7d"};
}

}  // namespace tidemark::client
