#include "client/commands/diff_text.h"

#include <algorithm>
#include <set>

#include "client/rank_view.h"
#include "client/table.h"
#include "client/units.h"

namespace tidemark::client {
namespace {

uint64_t Steps(const v1::Recording& recording) {
  uint64_t steps = 0;
  for (const v1::Process& process : recording.snapshot().processes()) {
    steps = std::max(steps, process.current_step());
  }
  return steps;
}

std::string RunLine(const v1::Recording& recording, const std::string& name, int world) {
  std::string text = name + ": " + std::to_string(world) + (world == 1 ? " rank, " : " ranks, ") +
                     FormatCount(Steps(recording)) + " steps";
  std::set<std::string> tags;
  for (const auto& [key, value] : recording.tags()) tags.insert(key + "=" + value);
  for (const std::string& tag : tags) text += ", " + Printable(tag);
  return text;
}

std::string Cell(const std::optional<int64_t>& bytes) { return bytes ? FormatBytes(*bytes) : "-"; }

std::string DeltaCell(const std::optional<int64_t>& a, const std::optional<int64_t>& b) {
  return a && b && *a != *b ? FormatDelta(*b - *a) : "";
}

Table SidesTable(const RunDifference& difference) {
  Table table({{"per rank"},
               {"moment"},
               {"A", Align::kRight},
               {"B", Align::kRight},
               {"B - A", Align::kRight}});
  for (const SideDifference& side : difference.sides) {
    const auto add = [&](const char* moment, const std::optional<int64_t>& a,
                         const std::optional<int64_t>& b) {
      if (a || b) table.Add({SideTitle(side.side), moment, Cell(a), Cell(b), DeltaCell(a, b)});
    };
    add("load", side.a.load, side.b.load);
    add("last step", side.a.last_step, side.b.last_step);
    add("peak", side.a.peak, side.b.peak);
  }
  return table;
}

std::string SideOfSite(const SiteSide& side) {
  if (side.site == nullptr) return "nothing";
  v1::BytesAndCount held;
  held.set_bytes(side.bytes);
  held.set_count(side.count);
  std::string text =
      FormatBytes(side.bytes) + " on " +
      (side.ranks == 1 ? "one rank" : "each of " + FormatCount(side.ranks) + " ranks") + ", " +
      BlocksText(*side.site, held);
  const std::string age = AgeText(*side.site);
  if (!age.empty()) text += ", born in " + age;
  return text;
}

// Bytes per rank before and after, rank by rank; only where both runs have the same ranks.
Table RanksTable(const v1::Recording& a, const v1::Recording& b) {
  Table table({{"rank", Align::kRight},
               {"GPU live, A", Align::kRight},
               {"B", Align::kRight},
               {"B - A", Align::kRight},
               {"host anon, A", Align::kRight},
               {"B", Align::kRight},
               {"B - A", Align::kRight}});
  const auto find = [](const v1::Recording& recording, int rank) -> const v1::Process* {
    for (const v1::Process* process : ByRank(recording.snapshot())) {
      if (IsRank(*process) && process->identity().rank() == rank) return process;
    }
    return nullptr;
  };
  const auto anon = [](const v1::Process& process) -> std::optional<int64_t> {
    if (!process.host().known()) return std::nullopt;
    return process.host().anon_bytes();
  };
  for (const v1::Process* process : ByRank(a.snapshot())) {
    if (!IsRank(*process)) continue;
    const v1::Process* other = find(b, process->identity().rank());
    if (other == nullptr) continue;
    table.Add({RankText(*process), Cell(GpuLiveBytes(*process)), Cell(GpuLiveBytes(*other)),
               DeltaCell(GpuLiveBytes(*process), GpuLiveBytes(*other)), Cell(anon(*process)),
               Cell(anon(*other)), DeltaCell(anon(*process), anon(*other))});
  }
  return table;
}

Json SideJson(const SiteSide& side) {
  if (side.site == nullptr) return nullptr;
  return {{"bytes_per_rank", side.bytes},
          {"count_per_rank", side.count},
          {"ranks", side.ranks},
          {"grows", side.grows}};
}

Json MomentsJson(const Moments& m) {
  const auto number = [](const std::optional<int64_t>& bytes) {
    return bytes ? Json(*bytes) : Json(nullptr);
  };
  return {{"load_bytes", number(m.load)},
          {"last_step_bytes", number(m.last_step)},
          {"peak_bytes", number(m.peak)},
          {"exit_bytes", number(m.exit)}};
}

Json RunJson(const v1::Recording& recording, int world) {
  Json tags = Json::object();
  for (const auto& [key, value] : recording.tags()) tags[key] = value;
  return {{"world_size", world}, {"steps", Steps(recording)}, {"tags", std::move(tags)}};
}

const char* MomentName(At at) {
  switch (at) {
    case At::kNow:
      return "exit";
    case At::kLoad:
      return "load";
    case At::kPeak:
      return "peak";
    case At::kLastStep:
      return "last step";
  }
  return "";
}

}  // namespace

std::string DiffText(const v1::Recording& a, const v1::Recording& b,
                     const RunDifference& difference, const DiffNames& names, size_t limit,
                     const Ink& ink) {
  std::string text = "A  " + RunLine(a, names.a, difference.world_a) + "\nB  " +
                     RunLine(b, names.b, difference.world_b) + "\n";

  for (const SiteDifference& site : difference.sites) {
    if (!site.GrowsInOneOnly()) continue;
    text += "\n" + ink.Red(site.a.grows ? "grows in A only" : "grows in B only") + ": " +
            ink.Bold(SiteTextWithCallee(site.site())) + " (" + site.site().memory_class() + ")\n" +
            "  A: " + SideOfSite(site.a) + "\n  B: " + SideOfSite(site.b) + "\n";
  }
  if (!difference.AnyGrowsInOneOnly()) text += "\nNo site grows in one run only.\n";

  if (!difference.sides.empty()) text += "\n" + SidesTable(difference).Text();

  Table sites({{"A", Align::kRight},
               {"B", Align::kRight},
               {"B - A", Align::kRight},
               {"class"},
               {"spread"},
               {"allocated at"}});
  const bool worlds_differ = difference.world_a != difference.world_b;
  size_t shown = 0;
  size_t left_out = 0;
  for (const SiteDifference& site : difference.sites) {
    // Between world sizes what did not change is the news; else it is none.
    if (site.Delta() == 0 && !worlds_differ) continue;
    if (limit != 0 && shown == limit) {
      ++left_out;
      continue;
    }
    ++shown;
    sites.Add({FormatBytes(site.a.bytes), FormatBytes(site.b.bytes), FormatDelta(site.Delta()),
               site.site().memory_class(),
               SpreadText(site.spread, difference.world_a, difference.world_b),
               SiteTextWithCallee(site.site())});
  }
  if (!sites.empty()) {
    text += "\n" + ink.Bold(std::string("sites, per rank at ") + MomentName(difference.at)) + "\n" +
            sites.Text();
    if (left_out > 0) text += "and " + FormatCount(left_out) + " more (--limit 0 shows them)\n";
  }
  if (!worlds_differ) {
    const Table ranks = RanksTable(a, b);
    if (!ranks.empty()) text += "\n" + ink.Bold("by rank, at exit") + "\n" + ranks.Text();
  }
  return text;
}

Json DiffJson(const v1::Recording& a, const v1::Recording& b, const RunDifference& difference) {
  Json sides = Json::array();
  for (const SideDifference& side : difference.sides) {
    sides.push_back(
        {{"side", SideName(side.side)}, {"a", MomentsJson(side.a)}, {"b", MomentsJson(side.b)}});
  }
  Json sites = Json::array();
  for (const SiteDifference& site : difference.sites) {
    const std::string spread = SpreadText(site.spread, difference.world_a, difference.world_b);
    sites.push_back({{"id", SiteIdText(site.site().id())},
                     {"allocated_at", SiteText(site.site())},
                     {"memory_class", site.site().memory_class()},
                     {"a", SideJson(site.a)},
                     {"b", SideJson(site.b)},
                     {"delta_bytes_per_rank", site.Delta()},
                     {"grows_in_one_only", site.GrowsInOneOnly()},
                     {"spread", spread.empty() ? Json(nullptr) : Json(spread)}});
  }
  return {
      {"a", RunJson(a, difference.world_a)}, {"b", RunJson(b, difference.world_b)},
      {"moment", MomentName(difference.at)}, {"grows_in_one_only", difference.AnyGrowsInOneOnly()},
      {"sides", std::move(sides)},           {"sites", std::move(sites)}};
}

}  // namespace tidemark::client
