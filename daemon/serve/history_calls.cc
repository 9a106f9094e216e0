#include "daemon/serve/history_calls.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "daemon/serve/export.h"
#include "daemon/serve/moment_view.h"
#include "daemon/serve/to_proto.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::serve {
namespace {

constexpr int kDefaultSites = 100;
constexpr int kMostSites = 10'000;

QueryContext ContextOf(const Viewer& viewer, std::chrono::steady_clock::time_point deadline,
                       const SnapshotHub::Pointer& latest) {
  return {[viewer](uid_t uid) { return viewer.Sees(uid); },
          std::min(deadline, std::chrono::steady_clock::now() + HistoryCalls::kPatience),
          latest == nullptr ? 0 : latest->unix_ns};
}

struct SiteSums {
  BytesAndCount before;
  BytesAndCount after;
  int32_t processes_before = 0;
  int32_t processes_after = 0;
  const SiteView* site = nullptr;

  int64_t Change() const { return std::abs(after.bytes - before.bytes); }
};

void Fill(const BytesAndCount& in, v1::BytesAndCount* out) {
  out->set_bytes(in.bytes);
  out->set_count(in.count);
}

void Add(const MomentView& view, BytesAndCount SiteSums::*side, int32_t SiteSums::*processes,
         std::map<SeriesKey, SiteSums>* sums) {
  for (const ProcessMoment& held : view.processes) {
    for (const auto& [key, bytes] : held.sites) {
      SiteSums& sum = (*sums)[key];
      (sum.*side).bytes += bytes.bytes;
      (sum.*side).count += bytes.count;
      ++(sum.*processes);
      if (sum.site == nullptr) sum.site = FindSite(*held.process, key);
    }
  }
}

void AddSites(const MomentView& before, const MomentView& after, int most, v1::DiffResponse* out) {
  std::map<SeriesKey, SiteSums> sums;
  Add(after, &SiteSums::after, &SiteSums::processes_after, &sums);
  Add(before, &SiteSums::before, &SiteSums::processes_before, &sums);
  std::vector<std::pair<SeriesKey, SiteSums>> order(sums.begin(), sums.end());
  std::ranges::stable_sort(
      order, [](const auto& a, const auto& b) { return a.second.Change() > b.second.Change(); });
  const size_t keep = std::min(order.size(), static_cast<size_t>(most));
  for (size_t i = 0; i < keep; ++i) {
    const auto& [key, sum] = order[i];
    v1::DiffSite* site = out->add_sites();
    if (sum.site != nullptr) {
      ToProto(*sum.site, site->mutable_site());
    } else {  // only history still knows it
      site->mutable_site()->set_id(key.site_id);
      site->mutable_site()->set_memory_class(key.memory_class);
      site->mutable_site()->set_device(key.device);
      site->mutable_site()->set_blamed_frame(-1);
    }
    Fill(sum.before, site->mutable_before());
    Fill(sum.after, site->mutable_after());
    site->set_processes_before(sum.processes_before);
    site->set_processes_after(sum.processes_after);
  }
  out->set_sites_omitted(static_cast<int32_t>(order.size() - keep));
}

// Ranks of two attempts, or of two runs, are the same rank; without a rank a process is its pid.
using RankKey = std::pair<int, pid_t>;
RankKey KeyOf(const ProcessSnapshot& process) {
  const int rank = process.identity.rank;
  const bool main = rank >= 0 && process.identity.helper_of == 0;
  return main ? RankKey{rank, 0} : RankKey{-1, process.key.pid};
}

// Whether the class means the same on both sides and is known on both.
bool Comparable(const std::string& memory_class, const MomentView& before,
                const MomentView& after) {
  if (before.known_classes.empty() && after.known_classes.empty()) {
    return memory_class != "driver_device";  // its parts are there
  }
  const auto known = [&](const MomentView& view) {
    return view.known_classes.empty() || view.known_classes.contains(memory_class);
  };
  return known(before) && known(after);
}

void AddClassesAndRanks(const MomentView& before, const MomentView& after, v1::DiffResponse* out) {
  struct Sides {
    int64_t before = 0;
    int64_t after = 0;
  };
  std::map<SeriesKey, Sides> classes;
  std::map<RankKey, std::pair<const ProcessSnapshot*, std::map<SeriesKey, Sides>>> ranks;
  const auto add = [&](const MomentView& view, int64_t Sides::*side) {
    for (const ProcessMoment& held : view.processes) {
      auto& [process, of_rank] = ranks[KeyOf(*held.process)];
      process = held.process;
      for (const auto& [key, bytes] : held.classes) {
        if (!Comparable(key.memory_class, before, after)) continue;
        classes[key].*side += bytes;
        of_rank[key].*side += bytes;
      }
    }
  };
  add(before, &Sides::before);
  add(after, &Sides::after);
  for (const auto& [key, sides] : classes) {
    v1::DiffClass* line = out->add_classes();
    line->set_memory_class(key.memory_class);
    line->set_device(key.device);
    line->set_before_bytes(sides.before);
    line->set_after_bytes(sides.after);
  }
  for (const auto& [rank, entry] : ranks) {
    for (const auto& [key, sides] : entry.second) {
      v1::DiffRank* line = out->add_ranks();
      ToProto(*entry.first, line->mutable_process());
      line->set_memory_class(key.memory_class);
      line->set_device(key.device);
      line->set_before_bytes(sides.before);
      line->set_after_bytes(sides.after);
    }
  }
}

bool Chosen(const v1::ExportRequest& request, const ProcessSnapshot& process) {
  const auto among = [](const auto& list, int32_t value) {
    return list.empty() || std::ranges::find(list, value) != list.end();
  };
  return among(request.pids(), process.key.pid) && among(request.ranks(), process.identity.rank) &&
         (request.training_job().empty() ||
          request.training_job() == process.identity.training_job);
}

v1::QueryRangeRequest RangeOf(const v1::ExportRequest& request, const char* align) {
  v1::QueryRangeRequest range;
  range.set_start_unix_ns(request.start_unix_ns());
  range.set_end_unix_ns(request.end_unix_ns());
  *range.mutable_pids() = request.pids();
  *range.mutable_ranks() = request.ranks();
  range.set_training_job(request.training_job());
  range.set_align(align);
  range.set_max_points(HistoryReader::kMostPoints);
  range.set_fresh(true);
  return range;
}

// Every page of it.
QueryStatus ReadAll(const HistoryReader& history, v1::QueryRangeRequest range,
                    const QueryContext& context, std::vector<v1::Series>* series,
                    std::vector<v1::HistoryMark>* marks) {
  // Together the answers must stay within what can be sent.
  size_t points = 0;
  do {
    v1::QueryRangeResponse page;
    const QueryStatus status = history.QueryRange(range, context, &page);
    if (!status.ok()) return status;
    for (v1::Series& line : *page.mutable_series()) {
      points += static_cast<size_t>(line.unix_ns_size());
      series->push_back(std::move(line));
    }
    for (v1::HistoryMark& mark : *page.mutable_marks()) marks->push_back(std::move(mark));
    if (points > HistoryCalls::kMostPointsOfFile) {
      return {QueryCode::kTooLarge, "that is too much for one file: choose ranks, or less time"};
    }
    range.set_page_token(page.next_page_token());
    range.set_include_marks(false);
  } while (!range.page_token().empty());
  return {};
}

}  // namespace

QueryStatus HistoryCalls::QueryRange(const v1::QueryRangeRequest& request, const Viewer& viewer,
                                     std::chrono::steady_clock::time_point deadline,
                                     v1::QueryRangeResponse* out) const {
  if (history_ == nullptr) {
    return {QueryCode::kUnavailable, "this daemon keeps no history: state.history is 0"};
  }
  return history_->QueryRange(request, ContextOf(viewer, deadline, hub_.Latest()), out);
}

QueryStatus HistoryCalls::Diff(const v1::DiffRequest& request, const Viewer& viewer,
                               std::chrono::steady_clock::time_point deadline,
                               v1::DiffResponse* out) const {
  if (request.max_sites() < 0 || request.max_sites() > kMostSites) {
    return {QueryCode::kInvalid, "max_sites lies between 0 (the default, 100) and 10000"};
  }
  const SnapshotHub::Pointer latest = hub_.Latest();
  if (latest == nullptr) return {QueryCode::kUnavailable, "the first snapshot is not done yet"};
  const QueryContext context = ContextOf(viewer, deadline, latest);
  MomentView before;
  MomentView after;
  QueryStatus status = ViewMoment(*latest, request.before(), history_, context, &before);
  if (status.ok()) status = ViewMoment(*latest, request.after(), history_, context, &after);
  if (!status.ok()) return status;
  AddClassesAndRanks(before, after, out);
  AddSites(before, after, request.max_sites() == 0 ? kDefaultSites : request.max_sites(), out);
  out->set_before_unix_ns(before.unix_ns);
  out->set_after_unix_ns(after.unix_ns);
  for (const MomentView* view : {&before, &after}) {
    for (const std::string& note : view->notes) out->add_notes(note);
  }
  return {};
}

QueryStatus HistoryCalls::Export(const v1::ExportRequest& request, const Viewer& viewer,
                                 std::chrono::steady_clock::time_point deadline,
                                 std::string* file) const {
  const Result<exports::Plan> plan =
      exports::MakePlan(request.format(), request.what(), request.since());
  if (!plan) return {QueryCode::kInvalid, plan.error().ToString()};
  const SnapshotHub::Pointer latest = hub_.Latest();
  if (latest == nullptr) return {QueryCode::kUnavailable, "the first snapshot is not done yet"};
  const bool since_time = plan->what == exports::What::kGrowth && request.since().name() == "time";
  if ((plan->of_history() || since_time) && history_ == nullptr) {
    return {QueryCode::kUnavailable, "this daemon keeps no history: state.history is 0"};
  }
  const QueryContext context = ContextOf(viewer, deadline, latest);
  exports::Input input;
  v1::Snapshot snapshot;
  input.snapshot = &snapshot;
  if (plan->of_history()) {
    QueryStatus status = {};
    v1::QueryRangeRequest range = RangeOf(request, "time");
    range.set_include_marks(true);
    status = ReadAll(*history_, range, context, &input.series, &input.marks);
    if (status.ok() && plan->format != exports::Format::kOpenMetrics) {
      range = RangeOf(request, "step");
      status = ReadAll(*history_, range, context, &input.steps, &input.marks);
    }
    if (!status.ok()) return status;
  } else {
    const auto chosen = [&](const ProcessSnapshot& process) {
      return viewer.Sees(process.identity.uid) && Chosen(request, process);
    };
    ToProto(*latest, {.omit_steps = true}, chosen, &snapshot);
    if (snapshot.processes().empty()) {
      return {QueryCode::kNotFound, "no process here is selected"};
    }
    for (const ProcessSnapshot& process : latest->processes) {
      if (!since_time || !chosen(process)) continue;
      HistoryReader::SitesThen then;
      const QueryStatus status =
          history_->At(process.key, request.since().unix_ns(), context, &then);
      // A process that was not there yet held nothing.
      if (!status.ok() && status.code != QueryCode::kNotFound) return status;
      for (const auto& [key, bytes] : then.sites) {
        input.then[{process.key.pid, process.key.start_time_ticks, key.memory_class, key.device,
                    key.site_id}] = bytes;
      }
    }
  }
  Result<std::string> written = exports::Write(*plan, input);
  if (!written) return {QueryCode::kNotFound, written.error().ToString()};
  if (written->size() > kMostFileBytes) {
    return {QueryCode::kTooLarge, "that is too much for one file: choose ranks, or less time"};
  }
  *file = std::move(*written);
  return {};
}

}  // namespace tidemark::serve
