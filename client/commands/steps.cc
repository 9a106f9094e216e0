// tidemark steps: a row per rank and step, with what changed since the step before.
#include <memory>

#include "client/commands/commands.h"
#include "client/commands/render.h"
#include "client/rank_view.h"
#include "client/step_rows.h"
#include "client/table.h"
#include "client/units.h"

namespace tidemark::client {
namespace {

std::string Cell(const std::optional<int64_t>& bytes) { return bytes ? FormatBytes(*bytes) : "-"; }
std::string DeltaCell(const std::optional<int64_t>& bytes) {
  return bytes && *bytes != 0 ? FormatDelta(*bytes) : "";
}

std::string MoveText(const StepRow& row) {
  switch (row.move) {
    case Move::kNone:
      return "";
    case Move::kDeviceToHost:
      return FormatBytes(row.moved_bytes) + " moved from device to host";
    case Move::kHostToDevice:
      return FormatBytes(row.moved_bytes) + " moved from host to device";
  }
  return "";
}

Json NumberOrNull(const std::optional<int64_t>& bytes) {
  return bytes ? Json(*bytes) : Json(nullptr);
}

Json BytesJson(const StepBytes& bytes) {
  return {{"device", NumberOrNull(bytes.device)},
          {"pinned", NumberOrNull(bytes.pinned)},
          {"anon", NumberOrNull(bytes.anon)},
          {"shmem", NumberOrNull(bytes.shmem)}};
}

struct Options {
  SourceOptions source;
  size_t last = 20;
};

int Run(Context& context, const Options& options) {
  v1::GetSnapshotRequest request;
  request.set_omit_sites(true);
  // One more than shown: the first row's change is against it.
  request.set_max_steps(options.last == 0 ? 0 : static_cast<int>(options.last) + 1);
  return LoadAndPrint(
      context, options.source, request,
      {[&](const v1::Snapshot& snapshot, const Ink& ink) {
         return StepsText(snapshot, options.last, ink);
       },
       [&](const v1::Snapshot& snapshot) { return StepsJson(snapshot, options.last); }});
}

}  // namespace

std::string StepsText(const v1::Snapshot& snapshot, size_t last, const Ink& ink) {
  Table table({{"rank", Align::kRight},
               {"step", Align::kRight},
               {"phase"},
               {"device", Align::kRight},
               {"", Align::kRight},
               {"pinned", Align::kRight},
               {"", Align::kRight},
               {"anon", Align::kRight},
               {"", Align::kRight},
               {"shmem", Align::kRight},
               {"", Align::kRight},
               {""}});
  std::vector<const v1::Process*> without;
  for (const v1::Process* process : ByRank(snapshot)) {
    const std::vector<StepRow> rows = StepRowsOf(*process, last);
    if (rows.empty()) without.push_back(process);
    const int first = process->steps_size() - static_cast<int>(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const StepRow& row = rows[i];
      table.Add({RankText(*process), FormatCount(row.step),
                 Printable(process->steps(first + static_cast<int>(i)).phase()),
                 Cell(row.bytes.device), DeltaCell(row.delta.device), Cell(row.bytes.pinned),
                 DeltaCell(row.delta.pinned), Cell(row.bytes.anon), DeltaCell(row.delta.anon),
                 Cell(row.bytes.shmem), DeltaCell(row.delta.shmem), MoveText(row)});
    }
  }
  std::string text = table.empty() ? "" : table.Text();
  if (!without.empty()) {
    text += ink.Faint(RanksPhrase(without) + ": no step was completed") + "\n";
  }
  return text;
}

Json StepsJson(const v1::Snapshot& snapshot, size_t last) {
  Json ranks = Json::array();
  for (const v1::Process* process : ByRank(snapshot)) {
    Json steps = Json::array();
    const std::vector<StepRow> rows = StepRowsOf(*process, last);
    const int first = process->steps_size() - static_cast<int>(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const StepRow& row = rows[i];
      const v1::Step& step = process->steps(first + static_cast<int>(i));
      Json entry = {{"step", row.step},
                    {"fw_allocated_bytes", step.fw_allocated_bytes()},
                    {"fw_reserved_bytes", step.fw_reserved_bytes()},
                    {"bytes", BytesJson(row.bytes)},
                    {"delta_bytes", BytesJson(row.delta)}};
      if (row.move != Move::kNone) {
        entry["moved_bytes"] = row.moved_bytes;
        entry["moved"] = row.move == Move::kDeviceToHost ? "device_to_host" : "host_to_device";
      }
      steps.push_back(std::move(entry));
    }
    ranks.push_back({{"rank", process->identity().rank()},
                     {"pid", process->pid()},
                     {"current_step", process->current_step()},
                     {"backward_passes", process->backward_passes()},
                     {"steps", std::move(steps)}});
  }
  return {{"node", snapshot.node()}, {"ranks", std::move(ranks)}};
}

void AddSteps(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command = line.Add("steps", "Memory by rank and step, and what changed",
                               [options](Context& context) { return Run(context, *options); });
  options->source.AddTo(*command);
  command->add_option("--last", options->last, "Steps to show per rank (0 = all that are kept)");
}

}  // namespace tidemark::client
