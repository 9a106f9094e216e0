// tidemark ps: who is there, on which rank, job, container and device, and seen by what.
#include <memory>

#include "client/commands/commands.h"
#include "client/commands/render.h"
#include "client/fleet.h"
#include "client/rank_view.h"
#include "client/table.h"
#include "client/units.h"
#include "client/verdict_view.h"

namespace tidemark::client {
namespace {

std::string WatchedBy(const v1::Process& process) {
  if (!process.observed()) return "not observed: " + Printable(process.not_observed_reason());
  std::string text;
  for (const v1::ClassTotal& total : process.totals()) {
    if (total.witness().empty()) continue;
    const bool known = (" " + text + " ").find(" " + total.witness() + " ") != std::string::npos;
    if (!known) text += (text.empty() ? "" : " ") + total.witness();
  }
  return text.empty() ? "observed" : text;
}

std::string DevicesText(const v1::Process& process) {
  std::vector<int32_t> devices;
  for (const v1::ClassTotal& total : process.totals()) {
    if (total.device() >= 0) devices.push_back(total.device());
  }
  for (const v1::Waterfall& waterfall : process.waterfalls()) {
    if (waterfall.device() >= 0) devices.push_back(waterfall.device());
  }
  return FormatRanges(std::move(devices));
}

std::string StateText(const v1::Process& process, const Ink& ink) {
  Weight worst = Weight::kSilent;
  for (const v1::Verdict& verdict : process.verdicts()) worst = std::min(worst, WeightOf(verdict));
  const std::string alive = IsDead(process) ? LivenessText(process) : "";
  std::string verdict;
  if (worst == Weight::kLeak) verdict = ink.Red("LEAK");
  if (worst == Weight::kSuspect) verdict = ink.Yellow("suspected leak");
  if (worst == Weight::kNotice) verdict = ink.Yellow("notice");
  if (alive.empty()) return verdict.empty() ? "ok" : verdict;
  return verdict.empty() ? alive : verdict + ", " + alive;
}

std::string Workload(const v1::Identity& identity) {
  if (!identity.workload_pod().empty()) {
    return Printable(identity.workload_namespace() + "/" + identity.workload_pod());
  }
  return Printable(identity.container().substr(0, 12));
}

// The snapshot without what has commands of its own; a recording holds it all.
Json PsJson(const v1::Snapshot& snapshot) {
  v1::Snapshot slim = snapshot;
  for (v1::Process& process : *slim.mutable_processes()) {
    process.clear_sites();
    process.clear_steps();
  }
  return ToJson(slim);
}

int Run(Context& context, const SourceOptions& source, const FleetOptions& fleet) {
  v1::GetSnapshotRequest request;
  request.set_omit_sites(true);
  request.set_omit_steps(true);
  return LoadAndPrintFleet(context, source, fleet, request, FleetView::kByNode, {PsText, PsJson});
}

}  // namespace

std::string PsText(const v1::Snapshot& snapshot, const Ink& ink) {
  Table table({{"pid", Align::kRight},
               {"job"},
               {"rank", Align::kRight},
               {"command"},
               {"GPU", Align::kRight},
               {"GPU live", Align::kRight},
               {"GPU figure", Align::kRight},
               {"host rss", Align::kRight},
               {"pinned", Align::kRight},
               {"step", Align::kRight},
               {"container"},
               {"seen by"},
               {"state"}});
  for (const v1::Process* process : ByRank(snapshot)) {
    const v1::Identity& id = process->identity();
    const auto gpu = GpuLiveBytes(*process);
    const auto pinned = LiveBytes(*process, "pinned");
    std::optional<int64_t> figure;
    bool device_wide = false;
    for (const v1::Waterfall& waterfall : process->waterfalls()) {
      if (!waterfall.figure_known()) continue;
      figure = figure.value_or(0) + waterfall.figure_bytes();
      device_wide |= waterfall.device_wide();
    }
    std::string rank = id.rank() < 0 ? "" : std::to_string(id.rank());
    if (id.helper_of() > 0) rank = "helper of " + std::to_string(id.helper_of());
    const bool host = process->host().known();
    table.Add({std::to_string(process->pid()), Printable(id.training_job()), rank,
               Printable(id.command()), DevicesText(*process), gpu ? FormatBytes(*gpu) : "-",
               figure ? FormatBytes(*figure) + (device_wide ? " (device)" : "") : "-",
               host ? FormatBytes(process->host().rss_bytes()) : "-",
               pinned ? FormatBytes(*pinned) : "-",
               process->current_step() > 0 ? FormatCount(process->current_step()) : "-",
               Workload(id), WatchedBy(*process), StateText(*process, ink)});
  }
  std::string text = table.Text();
  for (const v1::Device& device : snapshot.devices()) {
    text += "GPU " + std::to_string(device.index()) + ": " + Printable(device.name()) + ", " +
            FormatBytes(device.used_bytes()) + " of " + FormatBytes(device.total_bytes()) +
            " used" + (device.mig() ? ", MIG" : "") + "\n";
  }
  if (snapshot.memory().total_bytes() > 0) {
    text += "host: " + FormatBytes(snapshot.memory().available_bytes()) + " of " +
            FormatBytes(snapshot.memory().total_bytes()) + " available\n";
  }
  return text;
}

void AddPs(CommandLine& line) {
  struct Options {
    SourceOptions source;
    FleetOptions fleet;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = line.Add(
      "ps", "Processes with their rank, job, device and memory",
      [options](Context& context) { return Run(context, options->source, options->fleet); });
  options->source.AddTo(*command);
  options->fleet.AddTo(*command);
}

}  // namespace tidemark::client
