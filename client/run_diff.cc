#include "client/run_diff.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "client/verdict_view.h"

namespace tidemark::client {
namespace {

// What grows less than this in all is no finding, however regular: a list of losses.
constexpr int64_t kSmallestGrowth = 1 << 20;

std::vector<const v1::Process*> MainProcesses(const v1::Snapshot& snapshot) {
  std::vector<const v1::Process*> processes;
  for (const v1::Process* process : ByRank(snapshot)) {
    if (process->identity().helper_of() == 0) processes.push_back(process);
  }
  return processes;
}

int WorldSize(const std::vector<const v1::Process*>& processes) {
  int world = 0;
  int ranks = 0;
  for (const v1::Process* process : processes) {
    world = std::max(world, process->identity().world_size());
    ranks += process->identity().rank() >= 0 ? 1 : 0;
  }
  return world > 0 ? world : std::max(ranks, 1);
}

bool MadeSteps(const std::vector<const v1::Process*>& processes) {
  return std::any_of(processes.begin(), processes.end(),
                     [](const v1::Process* process) { return process->current_step() > 0; });
}

bool Grows(const v1::Process& process, const v1::Site& site) {
  for (const v1::Verdict& verdict : process.verdicts()) {
    if (verdict.site_id() == site.id() && WeightOf(verdict) <= Weight::kSuspect) return true;
  }
  return site.live().bytes() - site.at_load().bytes() >= kSmallestGrowth &&
         GrowsByAge(site, process.current_step());
}

struct Holding {
  const v1::Process* process;
  const v1::Site* site;
  v1::BytesAndCount held;
};
using SiteKey = std::pair<uint64_t, std::string>;  // id, class

std::map<SiteKey, std::vector<Holding>> HoldingsBySite(
    const std::vector<const v1::Process*>& processes, At at) {
  std::map<SiteKey, std::vector<Holding>> sites;
  for (const v1::Process* process : processes) {
    for (const v1::Site& site : process->sites()) {
      const v1::BytesAndCount held = BytesAt(site, at);
      if (held.bytes() == 0 && held.count() == 0 && !Grows(*process, site)) continue;
      sites[{site.id(), site.memory_class()}].push_back({process, &site, held});
    }
  }
  return sites;
}

SiteSide Summarize(std::vector<Holding> holdings) {
  SiteSide side;
  if (holdings.empty()) return side;
  side.site = holdings.front().site;
  side.ranks = holdings.size();
  for (const Holding& holding : holdings) side.grows |= Grows(*holding.process, *holding.site);
  const auto middle = holdings.begin() + static_cast<std::ptrdiff_t>((holdings.size() - 1) / 2);
  std::nth_element(
      holdings.begin(), middle, holdings.end(),
      [](const Holding& x, const Holding& y) { return x.held.bytes() < y.held.bytes(); });
  side.bytes = middle->held.bytes();
  side.count = middle->held.count();
  return side;
}

bool Near(double x, double y) { return std::abs(x - y) <= 0.02 * std::max(x, y); }

Spread SpreadOf(const SiteSide& a, const SiteSide& b, int world_a, int world_b) {
  if (world_a == world_b || a.bytes <= 0 || b.bytes <= 0 || a.grows || b.grows) {
    return Spread::kUnknown;
  }
  const auto bytes_a = static_cast<double>(a.bytes);
  const auto bytes_b = static_cast<double>(b.bytes);
  if (Near(bytes_a, bytes_b)) return Spread::kReplicated;
  if (Near(bytes_a * world_a, bytes_b * world_b)) return Spread::kSharded;
  return Spread::kUnknown;
}

std::optional<int64_t> MedianOf(std::vector<int64_t> values) {
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Bytes of one side of a rank summed over its devices, then the median over ranks.
Moments MedianMoments(const std::vector<const v1::Process*>& processes, Side side) {
  std::vector<int64_t> load, last_step, peak, exit;
  for (const v1::Process* process : processes) {
    Moments sum;
    for (const Moments& m : MomentsOf(*process)) {
      if (m.side != side) continue;
      const auto add = [](std::optional<int64_t>& to, const std::optional<int64_t>& what) {
        if (what) to = to.value_or(0) + *what;
      };
      add(sum.load, m.load);
      add(sum.last_step, m.last_step);
      add(sum.peak, m.peak);
      add(sum.exit, m.exit);
    }
    if (sum.load) load.push_back(*sum.load);
    if (sum.last_step) last_step.push_back(*sum.last_step);
    if (sum.peak) peak.push_back(*sum.peak);
    if (sum.exit) exit.push_back(*sum.exit);
  }
  Moments median;
  median.side = side;
  median.load = MedianOf(std::move(load));
  median.last_step = MedianOf(std::move(last_step));
  median.peak = MedianOf(std::move(peak));
  median.exit = MedianOf(std::move(exit));
  return median;
}

bool Known(const Moments& m) { return m.load || m.last_step || m.peak || m.exit; }

}  // namespace

bool RunDifference::AnyGrowsInOneOnly() const {
  return std::any_of(sites.begin(), sites.end(),
                     [](const SiteDifference& site) { return site.GrowsInOneOnly(); });
}

RunDifference CompareRuns(const v1::Recording& a, const v1::Recording& b, std::optional<At> at) {
  const auto processes_a = MainProcesses(a.snapshot());
  const auto processes_b = MainProcesses(b.snapshot());
  RunDifference difference;
  difference.world_a = WorldSize(processes_a);
  difference.world_b = WorldSize(processes_b);
  const bool stepped = MadeSteps(processes_a) && MadeSteps(processes_b);
  // A job that only loads has given everything back when it ends: its peak is what loading held.
  difference.at = at.value_or(stepped ? At::kLastStep : At::kPeak);

  for (const Side side : kSides) {
    const SideDifference compared{side, MedianMoments(processes_a, side),
                                  MedianMoments(processes_b, side)};
    if (Known(compared.a) || Known(compared.b)) difference.sides.push_back(compared);
  }

  auto sites_a = HoldingsBySite(processes_a, difference.at);
  auto sites_b = HoldingsBySite(processes_b, difference.at);
  for (auto& [key, holdings] : sites_a) {
    SiteDifference site;
    site.a = Summarize(std::move(holdings));
    if (const auto found = sites_b.find(key); found != sites_b.end()) {
      site.b = Summarize(std::move(found->second));
      sites_b.erase(found);
    }
    difference.sites.push_back(site);
  }
  for (auto& [key, holdings] : sites_b) {
    SiteDifference site;
    site.b = Summarize(std::move(holdings));
    difference.sites.push_back(site);
  }
  for (SiteDifference& site : difference.sites) {
    site.spread = SpreadOf(site.a, site.b, difference.world_a, difference.world_b);
  }
  std::stable_sort(difference.sites.begin(), difference.sites.end(),
                   [](const SiteDifference& x, const SiteDifference& y) {
                     if (x.GrowsInOneOnly() != y.GrowsInOneOnly()) return x.GrowsInOneOnly();
                     return std::abs(x.Delta()) > std::abs(y.Delta());
                   });
  return difference;
}

std::string SpreadText(Spread spread, int world_a, int world_b) {
  switch (spread) {
    case Spread::kUnknown:
      return "";
    case Spread::kReplicated:
      return "replicated";
    case Spread::kSharded:
      return "sharded 1/" + std::to_string(std::max(world_a, world_b));
  }
  return "";
}

}  // namespace tidemark::client
