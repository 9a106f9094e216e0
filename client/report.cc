#include "client/report.h"

#include <algorithm>
#include <set>

#include "client/rank_view.h"
#include "client/report_tables.h"
#include "client/units.h"
#include "client/verdict_view.h"

namespace tidemark::client {
namespace {

constexpr size_t kPeakSites = 5;

// What the report is about, found once.
struct Subject {
  explicit Subject(const v1::Recording& recording) : recording(recording) {
    processes = ByRank(recording.snapshot());
    // A run also holds its launcher, shells and helpers: they get a row only where they hold GPU
    // memory, or where no process does better.
    bool ranked = false;
    bool on_gpu = false;
    for (const v1::Process* process : processes) {
      ranked |= IsRank(*process);
      on_gpu |= GpuLiveBytes(*process).value_or(0) > 0;
    }
    for (const v1::Process* process : processes) {
      const bool holds_gpu = GpuLiveBytes(*process).value_or(0) > 0;
      if (IsRank(*process) || holds_gpu || (!ranked && !on_gpu)) mains.push_back(process);
    }
    std::set<std::string> names;
    for (const v1::Process* process : processes) {
      if (IsRank(*process)) ++ranks;
      steps = std::max(steps, process->current_step());
      if (!process->identity().training_job().empty()) {
        names.insert(Printable(process->identity().training_job()));
      }
    }
    for (const std::string& name : names) job += (job.empty() ? "" : ", ") + name;
    groups = GroupVerdicts(processes);
  }

  std::string Headline() const {
    std::string text = job.empty() ? "Tidemark report" : "Tidemark report: job " + job;
    const v1::Snapshot& snapshot = recording.snapshot();
    if (!snapshot.node().empty()) text += " on " + Printable(snapshot.node());
    if (ranks > 0) text += ", " + FormatCount(ranks) + (ranks == 1 ? " rank" : " ranks");
    text += ", " + FormatCount(steps) + (steps == 1 ? " step" : " steps");
    if (recording.end_unix_ns() > recording.start_unix_ns()) {
      text += ", " +
              FormatDuration(
                  static_cast<double>(recording.end_unix_ns() - recording.start_unix_ns()) / 1e9);
    }
    return text + ", exit code " + std::to_string(recording.exit_code());
  }

  std::string Conclusion() const {
    if (processes.empty()) return "No process of this job was observed.";
    const auto flagged = std::find_if(groups.begin(), groups.end(), [](const VerdictGroup& group) {
      return group.weight <= Weight::kSuspect;
    });
    if (flagged != groups.end()) return "";
    const bool judged =
        std::any_of(processes.begin(), processes.end(), [](const v1::Process* process) {
          return std::any_of(
              process->verdicts().begin(), process->verdicts().end(),
              [](const v1::Verdict& verdict) { return verdict.state() != "warming_up"; });
        });
    if (judged) return "No leak found.";
    return steps == 0 ? "No step was completed: this is what loading holds. A leak shows in steps."
                      : "Too little was seen to tell whether anything leaks.";
  }

  const v1::Recording& recording;
  std::vector<const v1::Process*> processes;
  std::vector<const v1::Process*> mains;
  std::vector<VerdictGroup> groups;
  std::string job;
  size_t ranks = 0;
  uint64_t steps = 0;
};

std::string PeakTitle(const PeakComposition& composition) {
  std::string text = "peak of " + RanksPhrase(composition.processes) + ": " +
                     FormatBytes(composition.peak_bytes) + " of " + composition.side_title;
  if (composition.processes.size() > 1) text += ", the same on each";
  if (composition.peak_step > 0) text += " in step " + FormatCount(composition.peak_step);
  return text;
}

// The rows of one rank need no rank column, but share of the peak.
Table PeakTable(const PeakComposition& composition) {
  Table table(
      {{"share", Align::kRight}, {"bytes", Align::kRight}, {"blocks"}, {"age"}, {"allocated at"}});
  int64_t shown = 0;
  for (size_t i = 0; i < std::min(kPeakSites, composition.rows.size()); ++i) {
    const SiteRow& row = composition.rows[i];
    shown += row.each.bytes();
    const double share =
        composition.peak_bytes > 0
            ? static_cast<double>(row.each.bytes()) / static_cast<double>(composition.peak_bytes)
            : 0;
    table.Add({FormatShare(share), FormatBytes(row.each.bytes()), BlocksText(*row.site, row.each),
               AgeText(*row.site), SiteTextWithCallee(*row.site)});
  }
  const int64_t rest = composition.peak_bytes - shown;
  if (rest > 0 && composition.peak_bytes > 0 && !composition.rows.empty()) {
    table.Add({FormatShare(static_cast<double>(rest) / static_cast<double>(composition.peak_bytes)),
               FormatBytes(rest), "", "", "all other sites"});
  }
  return table;
}

std::string Tags(const v1::Recording& recording) {
  std::set<std::string> sorted;
  for (const auto& [key, value] : recording.tags()) {
    sorted.insert(Printable(key) + "=" + Printable(value));
  }
  std::string text;
  for (const std::string& tag : sorted) text += (text.empty() ? "" : ", ") + tag;
  return text;
}

}  // namespace

std::string ReportText(const v1::Recording& recording, const Ink& ink) {
  const Subject subject(recording);
  std::string text = ink.Bold(subject.Headline()) + "\n";
  const std::string tags = Tags(recording);
  if (!tags.empty()) text += "tags: " + tags + "\n";
  text += "\n";

  const std::string conclusion = subject.Conclusion();
  if (!conclusion.empty()) text += conclusion + "\n";
  for (const VerdictGroup& group : subject.groups) {
    text += Headline(group, subject.ranks, ink) + "\n" + VerdictDetails(group, ink);
  }

  const Table moments = MomentsTable(subject.mains);
  if (!moments.empty()) text += "\n" + ink.Bold("memory by rank") + "\n" + moments.Text(2);
  for (const PeakComposition& composition : PeakCompositions(subject.mains)) {
    text += "\n" + ink.Bold(PeakTitle(composition)) + "\n" + PeakTable(composition).Text(2);
  }
  const Table phases = PhasesTable(subject.mains);
  if (!phases.empty()) text += "\n" + ink.Bold("phases") + "\n" + phases.Text(2);

  const std::vector<std::string> blind = BlindSpots(recording.snapshot());
  if (!blind.empty()) {
    text += "\n" + ink.Bold("not seen") + "\n";
    for (const std::string& line : blind) text += "  " + line + "\n";
  }
  return text;
}

std::string ReportMarkdown(const v1::Recording& recording) {
  const Subject subject(recording);
  const Ink plain;
  std::string text = "## " + subject.Headline() + "\n\n";
  const std::string tags = Tags(recording);
  if (!tags.empty()) text += "Tags: " + tags + "\n\n";
  const std::string conclusion = subject.Conclusion();
  if (!conclusion.empty()) text += conclusion + "\n\n";
  for (const VerdictGroup& group : subject.groups) {
    text += "### " + Headline(group, subject.ranks, plain) + "\n\n```\n" +
            VerdictDetails(group, plain) + "```\n\n";
  }
  const Table moments = MomentsTable(subject.mains);
  if (!moments.empty()) text += "### Memory by rank\n\n" + moments.Markdown() + "\n";
  for (const PeakComposition& composition : PeakCompositions(subject.mains)) {
    text += "### " + PeakTitle(composition) + "\n\n" + PeakTable(composition).Markdown() + "\n";
  }
  const Table phases = PhasesTable(subject.mains);
  if (!phases.empty()) text += "### Phases\n\n" + phases.Markdown() + "\n";
  const std::vector<std::string> blind = BlindSpots(recording.snapshot());
  if (!blind.empty()) {
    text += "### Not seen\n\n";
    for (const std::string& line : blind) text += "- " + line + "\n";
  }
  return text;
}

Json ReportJson(const v1::Recording& recording) {
  const Subject subject(recording);
  Json json;
  json["tidemark_version"] = recording.tidemark_version();
  json["node"] = recording.snapshot().node();
  json["training_job"] = subject.job;
  json["exit_code"] = recording.exit_code();
  json["start_unix_ns"] = recording.start_unix_ns();
  json["end_unix_ns"] = recording.end_unix_ns();
  json["steps"] = subject.steps;
  json["leak"] = AnyConfirmedLeak(subject.processes);
  json["tags"] = Json::object();
  for (const auto& [key, value] : recording.tags()) json["tags"][key] = value;

  json["ranks"] = Json::array();
  for (const v1::Process* process : subject.processes) {
    Json rank;
    rank["rank"] = process->identity().rank();
    rank["pid"] = process->pid();
    rank["liveness"] = process->liveness();
    rank["exit_reason"] = process->exit_reason();
    rank["observed"] = process->observed();
    rank["memory"] = Json::array();
    const auto number = [](const std::optional<int64_t>& bytes) {
      return bytes ? Json(*bytes) : Json(nullptr);
    };
    for (const Moments& m : MomentsOf(*process)) {
      rank["memory"].push_back({{"side", SideName(m.side)},
                                {"device", m.device},
                                {"load_bytes", number(m.load)},
                                {"last_step_bytes", number(m.last_step)},
                                {"peak_bytes", number(m.peak)},
                                {"peak_step", m.peak_step},
                                {"exit_bytes", number(m.exit)}});
    }
    rank["phases"] = Json::array();
    for (const v1::Phase& phase : process->phases()) {
      Json entry = {{"name", phase.name()},
                    {"first_step", phase.first_step()},
                    {"last_step", phase.last_step()},
                    {"memory", Json::array()}};
      for (const v1::PhaseGroup& group : phase.groups()) {
        entry["memory"].push_back(
            {{"memory_class", group.memory_class()},
             {"device", group.device()},
             {"before_bytes", group.before_bytes()},
             {"alloc_delta_bytes", group.end_bytes() - group.before_bytes()},
             {"peaked_delta_bytes", std::max<int64_t>(0, group.peak_bytes() - group.end_bytes())}});
      }
      rank["phases"].push_back(std::move(entry));
    }
    rank["verdicts"] = ToJsonArray(process->verdicts());
    rank["sites"] = ToJsonArray(process->sites());
    json["ranks"].push_back(std::move(rank));
  }
  json["not_seen"] = BlindSpots(recording.snapshot());
  return json;
}

}  // namespace tidemark::client
