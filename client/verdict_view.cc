#include "client/verdict_view.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "client/json.h"
#include "client/rank_view.h"
#include "client/site_view.h"
#include "client/table.h"
#include "client/units.h"
#include "daemon/detect/cause.h"

namespace tidemark::client {
namespace {

double Steepness(const v1::Verdict& verdict) {
  return std::max(std::abs(verdict.slope_bytes_per_step()) * 1e6,  // steps outrank hours
                  std::abs(verdict.slope_bytes_per_hour()));
}

std::string Title(const v1::Verdict& verdict) {
  const auto cause = detect::CauseFromString(verdict.cause());
  return cause ? std::string(detect::InfoOf(*cause).title) : Printable(verdict.cause());
}

std::string WeightWord(Weight weight, const Ink& ink) {
  switch (weight) {
    case Weight::kLeak:
      return ink.Red("LEAK");
    case Weight::kSuspect:
      return ink.Yellow("suspected leak");
    case Weight::kNotice:
      return ink.Yellow("notice, not a leak");
    case Weight::kRetracted:
      return ink.Faint("retracted");
    case Weight::kExplained:
      return ink.Green("not a leak");
    case Weight::kSilent:
      return "steady";
  }
  return "";
}

std::string WhoText(const VerdictGroup& group, size_t all_ranks) {
  const std::vector<const v1::Process*> processes = group.Processes();
  const bool ranked = std::all_of(processes.begin(), processes.end(), [](const auto* process) {
    return process->identity().rank() >= 0;
  });
  if (!ranked) return "in " + RanksText(processes);
  if (processes.size() > 1 && processes.size() == all_ranks) {
    return "on all " + std::to_string(all_ranks) + " ranks";
  }
  const std::string text =
      (processes.size() == 1 ? "on rank " : "on ranks ") + RanksText(processes);
  return all_ranks > processes.size() ? text + " of " + std::to_string(all_ranks) : text;
}

// The blamed site as the first member that lists it has it.
const v1::Site* BlamedSite(const VerdictGroup& group) {
  if (group.verdict->site_id() == 0) return nullptr;
  for (const auto& [process, verdict] : group.members) {
    if (const v1::Site* site = FindSite(*process, verdict->site_id(), verdict->memory_class())) {
      return site;
    }
  }
  return nullptr;
}

std::string BytesOrDash(std::optional<int64_t> bytes) { return bytes ? FormatBytes(*bytes) : "-"; }

std::string RankTable(const VerdictGroup& group) {
  Table table({{"rank", Align::kRight},
               {"GPU live", Align::kRight},
               {"host anon", Align::kRight},
               {"pinned", Align::kRight},
               {"grown", Align::kRight},
               {"slope"},
               {"state"}});
  for (const auto& [process, verdict] : group.members) {
    const bool host = process->host().known();
    table.Add({RankText(*process), BytesOrDash(GpuLiveBytes(*process)),
               host ? FormatBytes(process->host().anon_bytes()) : "-",
               BytesOrDash(LiveBytes(*process, "pinned")), FormatDelta(verdict->grown_bytes()),
               SlopeText(*verdict),
               verdict->state() + (IsDead(*process) ? ", " + LivenessText(*process) : "")});
  }
  return table.Text(4);
}

}  // namespace

Weight WeightOf(const v1::Verdict& verdict) {
  const auto cause = detect::CauseFromString(verdict.cause());
  const bool notice = cause && detect::InfoOf(*cause).kind == detect::CauseKind::kNotice;
  if (verdict.state() == "retracted") return Weight::kRetracted;
  if (verdict.state() == "confirmed" || verdict.state() == "suspect") {
    if (verdict.is_leak()) {
      return verdict.state() == "confirmed" ? Weight::kLeak : Weight::kSuspect;
    }
    return notice ? Weight::kNotice : Weight::kExplained;
  }
  if (notice) return Weight::kNotice;
  // Steady for a reason ("every rank holds the same bytes") is worth a line; plain steady is not.
  if (verdict.state() == "steady" && cause && *cause != detect::Cause::kNone) {
    return Weight::kExplained;
  }
  return Weight::kSilent;
}

std::vector<const v1::Process*> VerdictGroup::Processes() const {
  std::vector<const v1::Process*> processes;
  for (const auto& [process, verdict] : members) {
    if (processes.empty() || processes.back() != process) processes.push_back(process);
  }
  return processes;
}

std::vector<VerdictGroup> GroupVerdicts(const std::vector<const v1::Process*>& processes) {
  using Key = std::tuple<std::string, std::string, std::string, uint64_t>;
  std::map<Key, VerdictGroup> groups;
  for (const v1::Process* process : processes) {
    for (const v1::Verdict& verdict : process->verdicts()) {
      const Weight weight = WeightOf(verdict);
      if (weight == Weight::kSilent) continue;
      VerdictGroup& group = groups[Key(process->identity().training_job(), verdict.cause(),
                                       verdict.memory_class(), verdict.site_id())];
      if (group.verdict == nullptr) group.weight = weight;
      group.weight = std::min(group.weight, weight);
      if (group.verdict == nullptr || Steepness(verdict) > Steepness(*group.verdict)) {
        group.verdict = &verdict;
      }
      group.members.emplace_back(process, &verdict);
    }
  }
  std::vector<VerdictGroup> sorted;
  for (auto& [key, group] : groups) sorted.push_back(std::move(group));
  std::stable_sort(sorted.begin(), sorted.end(), [](const VerdictGroup& a, const VerdictGroup& b) {
    if (a.weight != b.weight) return a.weight < b.weight;
    return Steepness(*a.verdict) > Steepness(*b.verdict);
  });
  return sorted;
}

bool AnyConfirmedLeak(const std::vector<const v1::Process*>& processes) {
  return std::any_of(processes.begin(), processes.end(), [](const v1::Process* process) {
    return std::any_of(process->verdicts().begin(), process->verdicts().end(),
                       [](const v1::Verdict& v) { return WeightOf(v) == Weight::kLeak; });
  });
}

std::string Headline(const VerdictGroup& group, size_t all_ranks, const Ink& ink) {
  return WeightWord(group.weight, ink) + ": " + ink.Bold(Title(*group.verdict)) + ", " +
         WhoText(group, all_ranks) + " (" + group.verdict->memory_class() + ")";
}

std::string SlopeText(const v1::Verdict& verdict) {
  if (verdict.slope_bytes_per_step() != 0) {
    return FormatSlope(verdict.slope_bytes_per_step(), verdict.slope_low_bytes_per_step(),
                       verdict.slope_high_bytes_per_step(), "step");
  }
  if (verdict.slope_bytes_per_hour() != 0) {
    return FormatDelta(static_cast<int64_t>(verdict.slope_bytes_per_hour())) + "/h";
  }
  return "";
}

std::string EtaText(const v1::Verdict& verdict) {
  const bool steps = verdict.eta_steps() > 0 && std::isfinite(verdict.eta_steps());
  const bool seconds = verdict.eta_seconds() > 0 && std::isfinite(verdict.eta_seconds());
  if (!steps && !seconds) return "";
  if (!steps) return "out of memory in about " + FormatDuration(verdict.eta_seconds());
  std::string text = "out of memory in about " +
                     FormatCount(static_cast<uint64_t>(std::llround(verdict.eta_steps()))) +
                     " steps";
  if (seconds) text += " (" + FormatDuration(verdict.eta_seconds()) + ")";
  return text;
}

std::string VerdictDetails(const VerdictGroup& group, const Ink& ink) {
  const v1::Verdict& verdict = *group.verdict;
  std::string text;

  std::string pace = SlopeText(verdict);
  if (!pace.empty() && verdict.onset_step() > 0) {
    pace += " since step " + FormatCount(verdict.onset_step());
  }
  const std::string eta = EtaText(verdict);
  if (!eta.empty()) pace += (pace.empty() ? "" : "; ") + ink.Bold(eta);
  if (!pace.empty()) text += "    " + pace + "\n";

  if (const v1::Site* site = BlamedSite(group)) {
    text += "    allocated here: " + ink.Bold(SiteTextWithCallee(*site)) + "\n";
    // A process frees all it has on its way out: what it held at its last step is what leaked.
    const bool ended = site->live().count() == 0 && site->at_last_step().count() > 0;
    text += "      " + BlocksText(*site, ended ? site->at_last_step() : site->live()) +
            (ended ? " at the last step" : " live");
    if (verdict.site_share() > 0) {
      text += ", " + FormatShare(verdict.site_share()) + " of the growth";
    }
    const std::string age = AgeText(*site);
    if (!age.empty()) text += ", born in " + age;
    text += "\n    who holds it: tidemark sites --holders --site " + SiteIdText(site->id()) + "\n";
  }
  if (verdict.releasable_bytes() > 0) {
    text += "    could be released: " + FormatBytes(verdict.releasable_bytes()) + "\n";
  }
  for (const std::string& line : verdict.evidence()) {
    text += "    " + ink.Faint("- " + Printable(line)) + "\n";
  }
  if (!verdict.advice().empty()) text += "    next: " + Printable(verdict.advice()) + "\n";
  if (group.weight <= Weight::kRetracted) text += RankTable(group);
  return text;
}

}  // namespace tidemark::client
