#include "daemon/serve/alert/alert_board.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <tuple>

#include "daemon/serve/rank_metrics.h"

namespace tidemark::serve {
namespace {

constexpr double kAheadSeconds = 3600;

uint64_t Ns(std::chrono::nanoseconds time) { return static_cast<uint64_t>(time.count()); }

std::string Name(MemoryClass memory_class) { return std::string(ToString(memory_class)); }

// Alive, or dead so lately that what it died of is still news.
bool Speaks(const ProcessSnapshot& process, const NodeSnapshot& snapshot) {
  return process.identity.rank >= 0 &&
         (process.liveness == Liveness::kAlive ||
          snapshot.unix_ns < process.last_update_unix_ns + Ns(AlertBoard::kAfterDeath));
}

std::string WhereOf(const ProcessSnapshot& process, const detect::Verdict& verdict) {
  if (verdict.site) {
    for (const auto& site : *process.sites) {
      if (site->info->id == verdict.site->site_id) return SiteLabel(*site->info);
    }
  }
  return "no single site";
}

AlertTexts JobLabels(const char* name, const std::string& job, MemoryClass memory_class) {
  AlertTexts labels = {{"alertname", name}, {"class", Name(memory_class)}, {"scope", "job"}};
  // An empty label is none, for Alertmanager too.
  if (!job.empty()) labels["training_job"] = job;
  return labels;
}

AlertTexts RankLabels(const char* name, const NodeSnapshot& snapshot,
                      const ProcessSnapshot& process, const detect::Verdict& verdict) {
  AlertTexts labels = JobLabels(name, process.identity.training_job, verdict.memory_class);
  labels["scope"] = "rank";
  labels["node"] = snapshot.node;
  labels["rank"] = std::to_string(process.identity.rank);
  if (verdict.site) labels["site"] = SiteIdLabel(verdict.site->site_id);
  return labels;
}

std::string Runbook(detect::Cause cause) {
  return "docs/runbooks/" + std::string(detect::InfoOf(cause).runbook);
}

std::string Duration(double seconds) {
  const auto whole = static_cast<long long>(std::max(0.0, seconds));
  char text[48];
  std::snprintf(text, sizeof text, "%lldh %lldm %llds", whole / 3600, whole / 60 % 60, whole % 60);
  return text;
}

std::string ListOf(const std::set<int>& ranks) {
  std::string list;
  for (const int rank : ranks) list += (list.empty() ? "" : ", ") + std::to_string(rank);
  return list;
}

struct Leaking {
  const ProcessSnapshot* process;
  const detect::Verdict* verdict;
};

AlertTexts LeakTexts(const Leaking& leak, std::string summary, const std::string& ask_on) {
  const detect::Verdict& verdict = *leak.verdict;
  AlertTexts texts;
  texts["summary"] = std::move(summary);
  texts["description"] = "Allocated at " + WhereOf(*leak.process, verdict) +
                         ". Who holds it is another question: tidemark sites --holders on " +
                         ask_on + ".";
  texts["slope"] = detect::FormatBytes(verdict.slope.per_unit) + " per " +
                   std::string(detect::UnitName(verdict.aligned_to));
  texts["cause"] = detect::ToString(verdict.cause);
  texts["runbook_url"] = Runbook(verdict.cause);
  return texts;
}

}  // namespace

void AlertBoard::ClaimLeaks(const NodeSnapshot& snapshot, Claims* claims) {
  std::map<std::tuple<std::string, MemoryClass>, std::vector<Leaking>> leaks;
  std::map<std::string, std::set<int>> here;
  for (const ProcessSnapshot& process : snapshot.processes) {
    if (!Speaks(process, snapshot)) continue;
    const std::string& job = process.identity.training_job;
    here[job].insert(process.identity.rank);
    for (const detect::Verdict& verdict : process.verdicts) {
      if (!detect::RaisesLeakAlert(verdict)) continue;
      leaks[{job, verdict.memory_class}].push_back({&process, &verdict});
    }
  }
  for (const auto& [key, leaking] : leaks) {
    const auto& [job, memory_class] = key;
    std::set<int> ranks;
    for (const Leaking& leak : leaking) ranks.insert(leak.process->identity.rank);
    const size_t neighbours = here[job].size();
    if (ranks.size() >= 2 && 2 * ranks.size() >= neighbours) {
      const std::string summary = job + " leaks " + Name(memory_class) + " memory on " +
                                  std::to_string(ranks.size()) + " ranks of " + snapshot.node;
      AlertTexts texts = LeakTexts(leaking.front(), summary, snapshot.node);
      texts["node"] = snapshot.node;
      texts["ranks"] = ListOf(ranks);
      (*claims)[JobLabels("TidemarkMemoryLeak", job, memory_class)] = {std::move(texts),
                                                                       std::chrono::seconds(0)};
      continue;
    }
    for (const Leaking& leak : leaking) {
      const std::string summary = "Rank " + std::to_string(leak.process->identity.rank) + " of " +
                                  job + " on " + snapshot.node + " leaks " + Name(memory_class) +
                                  " memory" +
                                  (neighbours > 1 ? "; the other ranks of this node do not" : "");
      (*claims)[RankLabels("TidemarkMemoryLeak", snapshot, *leak.process, *leak.verdict)] = {
          LeakTexts(leak, summary, snapshot.node),
          neighbours > 1 ? kRankWaits : std::chrono::seconds(0)};
    }
  }
}

void AlertBoard::ClaimOutOfMemory(const NodeSnapshot& snapshot, Claims* claims) {
  std::map<AlertTexts, double> soonest;
  for (const ProcessSnapshot& process : snapshot.processes) {
    if (!Speaks(process, snapshot)) continue;
    for (const detect::Verdict& verdict : process.verdicts) {
      const bool suspect = verdict.state == detect::VerdictState::kSuspect;
      if (!suspect && verdict.state != detect::VerdictState::kConfirmed) continue;
      if (!verdict.forecast) continue;
      const double seconds = verdict.forecast->seconds_left.value_or(
          verdict.aligned_to == detect::AlignedTo::kSeconds ? verdict.forecast->units_left
                                                            : kAheadSeconds);
      if (!(seconds < kAheadSeconds)) continue;
      const std::string& job = process.identity.training_job;
      const AlertTexts labels = JobLabels("TidemarkOutOfMemoryAhead", job, verdict.memory_class);
      const auto [before, first] = soonest.try_emplace(labels, seconds);
      if (!first && before->second <= seconds) continue;
      before->second = seconds;
      (*claims)[labels] = {{{"summary", job + " runs out of memory (" + Name(verdict.memory_class) +
                                            ") in " + Duration(seconds) + " at the present slope"},
                            {"runbook_url", Runbook(detect::Cause::kOutOfMemoryAhead)}},
                           suspect ? kSuspectWaits : kRankWaits};
    }
  }
}

std::vector<Alert> AlertBoard::Update(const NodeSnapshot& snapshot) {
  const uint64_t now = snapshot.monotonic_ns;
  Claims claims;
  ClaimLeaks(snapshot, &claims);
  ClaimOutOfMemory(snapshot, &claims);
  for (auto& [labels, claim] : claims) {
    auto state = states_.find(labels);
    if (state == states_.end()) {
      if (states_.size() >= kMost) {
        ++left_out_;
        continue;
      }
      state = states_.emplace(labels, State{}).first;
    }
    State& known = state->second;
    if (known.true_since_ns == 0 || known.ended_ns != 0) {
      known = State{};
      known.true_since_ns = now;
    }
    known.true_last_ns = now;
    known.annotations = std::move(claim.annotations);
    if (known.starts_unix_ns == 0 && now - known.true_since_ns >= Ns(claim.waits)) {
      known.starts_unix_ns = snapshot.unix_ns;
    }
  }
  std::vector<Alert> alerts;
  for (auto state = states_.begin(); state != states_.end();) {
    State& known = state->second;
    const bool is_true = claims.contains(state->first);
    const bool fires = known.starts_unix_ns != 0;
    if (!is_true && fires && known.ended_ns == 0 && now - known.true_last_ns >= Ns(kGoesOn)) {
      known.ended_ns = now;
      // Alertmanager refuses a whole message for one alert that ends before it starts, which it
      // does when the wall clock is set back.
      known.ends_unix_ns = std::max(snapshot.unix_ns, known.starts_unix_ns);
    }
    if ((!is_true && !fires) || (known.ended_ns != 0 && now - known.ended_ns >= Ns(kRemembered))) {
      state = states_.erase(state);
      continue;
    }
    if (fires) {
      alerts.push_back({state->first, known.annotations, known.starts_unix_ns, known.ends_unix_ns});
    }
    ++state;
  }
  return alerts;
}

}  // namespace tidemark::serve
