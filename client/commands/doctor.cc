// tidemark doctor: every feature with its state, the reason and what to do; the machine's part also
// without a daemon.
#include <algorithm>
#include <memory>

#include "client/commands/commands.h"
#include "client/commands/render.h"
#include "client/machine_check.h"
#include "client/rank_view.h"
#include "client/table.h"
#include "client/units.h"

namespace tidemark::client {
namespace {

std::string StateInk(const std::string& state, const Ink& ink) {
  if (state == "on") return ink.Green(state);
  if (state == "unavailable") return ink.Red(state);
  return ink.Yellow(state.empty() ? "unknown" : state);
}

std::string MachineText(const std::vector<MachineFinding>& findings, const Ink& ink) {
  Table table({{""}, {""}, {""}});
  for (const MachineFinding& finding : findings) {
    table.Add({finding.good ? ink.Green("ok") : ink.Yellow("no"), finding.name, finding.what});
    if (!finding.advice.empty()) table.Add({"", "", "-> " + finding.advice});
  }
  return ink.Bold("this machine") + "\n" + table.Text(2);
}

int Run(Context& context, const SourceOptions& source) {
  const std::vector<MachineFinding> findings = CheckMachine(context, ProcRoot());
  v1::GetSnapshotRequest request;
  request.set_omit_sites(true);
  request.set_omit_steps(true);
  const Result<v1::Snapshot> snapshot = source.Load(context, request);
  if (!snapshot && (!source.socket.empty() || !source.from.empty())) {
    return Fail(context, snapshot.error(), source.FailureCode());
  }
  if (source.json) {
    Json json = {{"machine", Json::array()}, {"daemon", nullptr}};
    for (const MachineFinding& finding : findings) {
      json["machine"].push_back({{"name", finding.name},
                                 {"good", finding.good},
                                 {"what", finding.what},
                                 {"advice", finding.advice}});
    }
    if (snapshot) {
      json["daemon"] = {{"version", snapshot->daemon_version()},
                        {"sources", ToJsonArray(snapshot->sources())},
                        {"losses", ToJsonArray(snapshot->losses())},
                        {"processes", Json::array()}};
      for (const v1::Process* process : ByRank(*snapshot)) {
        json["daemon"]["processes"].push_back(
            {{"pid", process->pid()},
             {"rank", process->identity().rank()},
             {"observed", process->observed()},
             {"not_observed_reason", process->not_observed_reason()},
             {"features", ToJsonArray(process->features())},
             {"losses", ToJsonArray(process->losses())},
             {"entry_points", ToJsonArray(process->entry_points())},
             {"witness_differences", ToJsonArray(process->witness_differences())}});
      }
    }
    context.out << JsonText(json);
    return kOk;
  }
  context.out << MachineText(findings, context.ink);
  if (snapshot) context.out << "\n" << DoctorText(*snapshot, context.ink);
  return kOk;
}

}  // namespace

std::string DoctorText(const v1::Snapshot& snapshot, const Ink& ink) {
  std::string text = ink.Bold("tidemarkd " + Printable(snapshot.daemon_version())) + ", " +
                     FormatBytes(snapshot.daemon_rss_bytes()) + ", last tick " +
                     FormatCount(snapshot.tick_ns() / 1000) + " us\n";
  Table sources({{""}, {""}, {""}});
  for (const v1::Feature& source : snapshot.sources()) {
    sources.Add(
        {StateInk(source.state(), ink), Printable(source.name()), Printable(source.reason())});
  }
  text += sources.Text(2);

  // Processes with the same features in the same state share their rows.
  std::vector<std::pair<std::vector<const v1::Process*>, std::string>> blocks;
  for (const v1::Process* process : ByRank(snapshot)) {
    Table features({{""}, {""}, {""}});
    if (!process->observed()) {
      features.Add({ink.Red("not observed"), "", Printable(process->not_observed_reason())});
    }
    for (const v1::Feature& feature : process->features()) {
      features.Add(
          {StateInk(feature.state(), ink), Printable(feature.name()), Printable(feature.reason())});
    }
    if (features.empty()) continue;
    const std::string block = features.Text(2);
    const auto same = std::find_if(blocks.begin(), blocks.end(),
                                   [&](const auto& known) { return known.second == block; });
    if (same == blocks.end()) {
      blocks.push_back({{process}, block});
    } else {
      same->first.push_back(process);
    }
  }
  for (const auto& [processes, block] : blocks) {
    text += "\n" + ink.Bold(RanksPhrase(processes)) + "\n" + block;
  }

  std::string losses;
  for (const v1::Loss& loss : snapshot.losses()) {
    losses += "  " + Printable(loss.cause()) + ": " + FormatCount(loss.count()) + "\n";
  }
  std::string disagreements;
  for (const v1::Process* process : ByRank(snapshot)) {
    for (const v1::Loss& loss : process->losses()) {
      losses += "  " + ProcessName(*process) + " " + Printable(loss.cause()) + ": " +
                FormatCount(loss.count()) + "\n";
    }
    if (WitnessesDisagree(*process)) disagreements += WitnessText(*process);
  }
  if (!losses.empty()) text += "\n" + ink.Bold("lost or refused") + "\n" + losses;
  if (!disagreements.empty()) {
    text += "\n" + ink.Bold("witnesses that disagree") + "\n" + disagreements;
  }
  return text;
}

void AddDoctor(CommandLine& line) {
  auto source = std::make_shared<SourceOptions>();
  CLI::App* command = line.Add("doctor", "What works here, what does not, why, and what to do",
                               [source](Context& context) { return Run(context, *source); });
  source->AddTo(*command);
}

}  // namespace tidemark::client
