// tidemark job: the ranks of a job side by side, and who differs.
#include <algorithm>
#include <map>
#include <memory>

#include "client/commands/commands.h"
#include "client/commands/render.h"
#include "client/fleet.h"
#include "client/rank_measures.h"
#include "client/rank_view.h"
#include "client/table.h"
#include "client/units.h"
#include "client/verdict_view.h"

namespace tidemark::client {
namespace {

// Marks a rank that stands apart: a tenth and 64 MiB off the median of its job.
bool StandsOut(int64_t bytes, int64_t median) {
  const int64_t difference = std::abs(bytes - median);
  return difference >= (64ll << 20) && difference * 10 >= std::abs(median);
}

std::map<std::string, std::optional<int64_t>> Medians(
    const std::vector<const v1::Process*>& processes) {
  std::map<std::string, std::optional<int64_t>> medians;
  for (const RankMeasure& measure : RankMeasures()) {
    std::vector<int64_t> values;
    for (const v1::Process* process : processes) {
      if (const auto bytes = measure.get(*process)) values.push_back(*bytes);
    }
    medians[measure.key] = MedianOf(std::move(values));
  }
  return medians;
}

}  // namespace

std::string JobText(const v1::Snapshot& snapshot, const Ink& ink) {
  std::string text;
  for (const auto& [job, processes] : RanksByJob(snapshot)) {
    const v1::Identity& first = processes.front()->identity();
    text += ink.Bold(job.empty() ? "no job name" : Printable(job));
    if (first.world_size() > 0) {
      text += ", " + FormatCount(processes.size()) + " of " +
              FormatCount(static_cast<uint64_t>(first.world_size())) +
              (snapshot.node().empty() ? " ranks are seen" : " ranks are on this node");
    }
    if (!first.launcher().empty()) text += ", started by " + Printable(first.launcher());
    if (!first.job_source().empty()) text += ", named by " + Printable(first.job_source());
    text += "\n";

    std::vector<Column> columns = {{"rank", Align::kRight}, {"step", Align::kRight}};
    for (const RankMeasure& measure : RankMeasures())
      columns.push_back({measure.title, Align::kRight});
    columns.push_back({"state"});
    Table table(columns);
    const auto medians = Medians(processes);
    for (const v1::Process* process : processes) {
      std::vector<std::string> cells = {RankText(*process), FormatCount(process->current_step())};
      for (const RankMeasure& measure : RankMeasures()) {
        const auto bytes = measure.get(*process);
        const auto median = medians.at(measure.key);
        std::string cell = bytes ? FormatBytes(*bytes) : "-";
        if (bytes && median && processes.size() > 2 && StandsOut(*bytes, *median)) {
          cell = ink.Yellow(cell + " *");
        }
        cells.push_back(std::move(cell));
      }
      cells.push_back(LivenessText(*process));
      table.Add(std::move(cells));
    }
    text += table.Text(2);
    if (text.find(" *") != std::string::npos) {
      text += ink.Faint("  * a tenth or more away from the median of the ranks") + "\n";
    }
    for (const VerdictGroup& group : GroupVerdicts(processes)) {
      text += "  " + Headline(group, processes.size(), ink) + "\n";
    }
    text += "\n";
  }
  return text.empty() ? "No process has a rank; see `tidemark ps`.\n" : text;
}

Json JobJson(const v1::Snapshot& snapshot) {
  Json jobs = Json::array();
  for (const auto& [job, processes] : RanksByJob(snapshot)) {
    Json entry = {{"training_job", job},
                  {"world_size", processes.front()->identity().world_size()},
                  {"launcher", processes.front()->identity().launcher()},
                  {"medians", Json::object()},
                  {"ranks", Json::array()}};
    for (const auto& [key, median] : Medians(processes)) {
      entry["medians"][key] = median ? Json(*median) : Json(nullptr);
    }
    for (const v1::Process* process : processes) {
      Json rank = {{"rank", process->identity().rank()},
                   {"pid", process->pid()},
                   {"step", process->current_step()},
                   {"liveness", process->liveness()}};
      for (const RankMeasure& measure : RankMeasures()) {
        const auto bytes = measure.get(*process);
        rank[measure.key] = bytes ? Json(*bytes) : Json(nullptr);
      }
      rank["verdicts"] = ToJsonArray(process->verdicts());
      entry["ranks"].push_back(std::move(rank));
    }
    jobs.push_back(std::move(entry));
  }
  return {{"node", snapshot.node()}, {"jobs", std::move(jobs)}};
}

void AddJob(CommandLine& line) {
  struct Options {
    SourceOptions source;
    FleetOptions fleet;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      line.Add("job", "The ranks of a job side by side", [options](Context& context) {
        v1::GetSnapshotRequest request;
        request.set_omit_sites(true);
        request.set_omit_steps(true);
        return LoadAndPrintFleet(context, options->source, options->fleet, request,
                                 FleetView::kMerged, {JobText, JobJson});
      });
  options->source.AddTo(*command);
  options->fleet.AddTo(*command);
}

}  // namespace tidemark::client
