#include "client/report_tables.h"

#include <algorithm>
#include <map>

#include "client/rank_view.h"
#include "client/terminal.h"
#include "client/units.h"

namespace tidemark::client {
namespace {

std::string OptionalBytes(const std::optional<int64_t>& bytes) {
  return bytes ? FormatBytes(*bytes) : "-";
}

// Rows in order of first appearance; equal rows of several processes become one.
class FoldedRows {
 public:
  void Add(const v1::Process* process, std::vector<std::string> cells) {
    for (auto& [known, processes] : rows_) {
      if (known == cells) {
        processes.push_back(process);
        return;
      }
    }
    rows_.emplace_back(std::move(cells), std::vector<const v1::Process*>{process});
  }
  // With the ranks as the first cell.
  void MoveTo(Table& table) {
    for (auto& [cells, processes] : rows_) {
      cells.insert(cells.begin(), RanksText(processes));
      table.Add(std::move(cells));
    }
  }

 private:
  std::vector<std::pair<std::vector<std::string>, std::vector<const v1::Process*>>> rows_;
};

int NamedDevice(const v1::Process& process, int device) {
  return HasSeveralGpus(process) ? device : -1;
}

std::string PhaseGroupTitle(const v1::PhaseGroup& group, int device) {
  if (group.memory_class() == "fw_live") return SideTitle(Side::kFramework, device);
  if (group.memory_class() == "device") return SideTitle(Side::kDriver, device);
  if (group.memory_class() == "anon") return SideTitle(Side::kAnon);
  if (group.memory_class() == "pinned") return SideTitle(Side::kPinned);
  if (group.memory_class() == "fw_host") return "CPU tensors";
  return group.memory_class();
}

std::string PhaseTitle(const v1::Phase& phase) {
  const std::string name = Printable(phase.name());
  if (phase.last_step() == 0 || phase.last_step() < phase.first_step()) return name;
  return name + " " + FormatCount(phase.first_step()) + "-" + FormatCount(phase.last_step());
}

bool AllZero(const v1::PhaseGroup& group) {
  return group.before_bytes() == 0 && group.peak_bytes() == 0 && group.end_bytes() == 0;
}

// The peak that a person means: the framework's, else the driver's; the largest over devices.
const v1::Peak* MainPeak(const v1::Process& process) {
  const v1::Peak* best = nullptr;
  for (const Side side : {Side::kFramework, Side::kDriver}) {
    for (const v1::Peak& peak : process.peaks()) {
      if (peak.side() != SideName(side) || peak.peak_bytes() == 0) continue;
      if (best == nullptr || peak.peak_bytes() > best->peak_bytes()) best = &peak;
    }
    if (best != nullptr) return best;
  }
  return nullptr;
}

// Sites whose bytes count in this peak.
std::vector<SiteRow> RowsOfPeak(const v1::Process& process, const v1::Peak& peak) {
  const bool framework = peak.side() == SideName(Side::kFramework);
  std::vector<SiteRow> rows = FoldSites({&process}, At::kPeak);
  std::erase_if(rows, [&](const SiteRow& row) {
    const bool fits = framework ? row.site->memory_class() == "fw_live"
                                : !IsFrameworkClass(row.site->memory_class());
    return !fits || row.site->device() != peak.device();
  });
  return rows;
}

bool SameRows(const std::vector<SiteRow>& a, const std::vector<SiteRow>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.site->id() == y.site->id() && x.each.bytes() == y.each.bytes() &&
           x.each.count() == y.each.count();
  });
}

std::string LossText(const v1::Loss& loss) {
  std::string text = Printable(loss.cause()) + ": " + FormatCount(loss.count());
  if (loss.bytes() > 0) text += " (" + FormatBytes(static_cast<int64_t>(loss.bytes())) + ")";
  return text;
}

}  // namespace

Table MomentsTable(const std::vector<const v1::Process*>& processes) {
  const bool dead = std::all_of(processes.begin(), processes.end(),
                                [](const auto* process) { return IsDead(*process); });
  Table table({{"rank", Align::kRight},
               {"memory"},
               {"load", Align::kRight},
               {"last step", Align::kRight},
               {"peak", Align::kRight},
               {dead ? "exit" : "now", Align::kRight}});
  // A side's rows stay together: first all ranks' tensors, then the driver's bytes, ...
  std::map<std::pair<Side, int>, FoldedRows> sides;
  for (const v1::Process* process : processes) {
    for (const Moments& m : MomentsOf(*process)) {
      const int device = NamedDevice(*process, m.device);
      sides[{m.side, device}].Add(
          process, {SideTitle(m.side, device), OptionalBytes(m.load), OptionalBytes(m.last_step),
                    OptionalBytes(m.peak), OptionalBytes(m.exit)});
    }
  }
  for (auto& [side, rows] : sides) rows.MoveTo(table);
  return table;
}

Table PhasesTable(const std::vector<const v1::Process*>& processes) {
  Table table({{"rank", Align::kRight},
               {"phase"},
               {"memory"},
               {"before", Align::kRight},
               {"alloc_delta", Align::kRight},
               {"peaked_delta", Align::kRight}});
  FoldedRows rows;
  for (const v1::Process* process : processes) {
    for (const v1::Phase& phase : process->phases()) {
      for (const v1::PhaseGroup& group : phase.groups()) {
        if (AllZero(group)) continue;
        const int64_t peaked = std::max<int64_t>(0, group.peak_bytes() - group.end_bytes());
        rows.Add(process,
                 {PhaseTitle(phase), PhaseGroupTitle(group, NamedDevice(*process, group.device())),
                  FormatBytes(group.before_bytes()),
                  FormatDelta(group.end_bytes() - group.before_bytes()), FormatDelta(peaked)});
      }
    }
  }
  rows.MoveTo(table);
  return table;
}

Table SitesTable(const std::vector<SiteRow>& rows, size_t limit) {
  Table table({{"rank", Align::kRight},
               {"class"},
               {"bytes", Align::kRight},
               {"blocks"},
               {"age"},
               {"allocated at"}});
  for (size_t i = 0; i < std::min(limit, rows.size()); ++i) {
    const SiteRow& row = rows[i];
    table.Add({RanksText(row.processes), row.site->memory_class(), FormatBytes(row.each.bytes()),
               BlocksText(*row.site, row.each), AgeText(*row.site), SiteTextWithCallee(*row.site)});
  }
  return table;
}

std::vector<PeakComposition> PeakCompositions(const std::vector<const v1::Process*>& processes) {
  std::vector<PeakComposition> compositions;
  for (const v1::Process* process : processes) {
    const v1::Peak* peak = MainPeak(*process);
    if (peak == nullptr) continue;
    std::vector<SiteRow> rows = RowsOfPeak(*process, *peak);
    if (rows.empty()) continue;
    const auto same =
        std::find_if(compositions.begin(), compositions.end(), [&](const PeakComposition& known) {
          return known.peak_bytes == peak->peak_bytes() && SameRows(known.rows, rows);
        });
    if (same != compositions.end()) {
      same->processes.push_back(process);
      continue;
    }
    const bool framework = peak->side() == SideName(Side::kFramework);
    compositions.push_back({{process},
                            std::move(rows),
                            peak->peak_bytes(),
                            peak->peak_step(),
                            SideTitle(framework ? Side::kFramework : Side::kDriver,
                                      NamedDevice(*process, peak->device()))});
  }
  return compositions;
}

std::vector<std::string> BlindSpots(const v1::Snapshot& snapshot) {
  std::vector<std::string> lines;
  // One line a reason, however many processes share it.
  std::map<std::string, std::vector<const v1::Process*>> reasons;
  for (const v1::Process* process : ByRank(snapshot)) {
    if (!process->observed()) {
      reasons["not observed: " + Printable(process->not_observed_reason())].push_back(process);
    }
    for (const v1::Feature& feature : process->features()) {
      if (feature.state() == "on" || feature.state() == "off" || feature.state().empty()) continue;
      reasons[Printable(feature.name() + " " + feature.state() + ": " + feature.reason())]
          .push_back(process);
    }
    for (const v1::Loss& loss : process->losses()) {
      if (loss.count() > 0 || loss.bytes() > 0) reasons[LossText(loss)].push_back(process);
    }
    int64_t untracked = 0;
    for (const v1::ClassTotal& total : process->totals()) untracked += total.untracked_bytes();
    if (untracked > 0) {
      reasons["live bytes are known to within " + FormatBytes(untracked)].push_back(process);
    }
  }
  for (const auto& [reason, processes] : reasons) {
    lines.push_back(RanksPhrase(processes) + ": " + reason);
  }
  for (const v1::Feature& source : snapshot.sources()) {
    if (source.state() == "unavailable") {
      lines.push_back(Printable(source.name() + " unavailable: " + source.reason()));
    }
  }
  for (const v1::Loss& loss : snapshot.losses()) {
    if (loss.count() > 0) lines.push_back("node: " + LossText(loss));
  }
  return lines;
}

}  // namespace tidemark::client
