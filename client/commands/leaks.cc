// tidemark leaks: what grows, on whom, how fast, from which line, and how long is left.
#include <memory>

#include "client/commands/commands.h"
#include "client/commands/render.h"
#include "client/fleet.h"
#include "client/rank_view.h"
#include "client/units.h"
#include "client/verdict_view.h"

namespace tidemark::client {
namespace {

struct Options {
  SourceOptions source;
  FleetOptions fleet;
  std::string fail_on;
};

size_t RankCount(const std::vector<const v1::Process*>& processes) {
  size_t ranks = 0;
  for (const v1::Process* process : processes) ranks += IsRank(*process) ? 1 : 0;
  return ranks;
}

int Run(Context& context, const Options& options) {
  bool leak = false;
  v1::GetSnapshotRequest request;
  request.set_omit_steps(true);
  const int code =
      LoadAndPrintFleet(context, options.source, options.fleet, request, FleetView::kMerged,
                        {[&](const v1::Snapshot& snapshot, const Ink& ink) {
                           leak = AnyConfirmedLeak(ByRank(snapshot));
                           return LeaksText(snapshot, ink);
                         },
                         [&](const v1::Snapshot& snapshot) {
                           leak = AnyConfirmedLeak(ByRank(snapshot));
                           return LeaksJson(snapshot);
                         }});
  return code == kOk && leak && options.fail_on == "leak" ? kLeakFound : code;
}

}  // namespace

std::string LeaksText(const v1::Snapshot& snapshot, const Ink& ink) {
  const std::vector<const v1::Process*> processes = ByRank(snapshot);
  const std::vector<VerdictGroup> groups = GroupVerdicts(processes);
  std::string text;
  bool leak = false;
  for (const VerdictGroup& group : groups) {
    leak |= group.weight <= Weight::kSuspect;
    text += Headline(group, RankCount(processes), ink) + "\n" + VerdictDetails(group, ink) + "\n";
  }
  if (leak) return text;

  std::vector<const v1::Process*> steady;
  std::vector<const v1::Process*> warming;
  std::vector<const v1::Process*> unseen;
  for (const v1::Process* process : processes) {
    if (!process->observed() && process->verdicts().empty()) {
      unseen.push_back(process);
      continue;
    }
    bool judged = false;
    for (const v1::Verdict& verdict : process->verdicts()) {
      judged |= verdict.state() != "warming_up";
    }
    (judged ? steady : warming).push_back(process);
  }
  const auto line = [](const std::vector<const v1::Process*>& who, const std::string& what) {
    if (who.empty()) return std::string();
    return RanksPhrase(who) + ": " + what + "\n";
  };
  text += line(steady, ink.Green("no leak found"));
  text += line(warming, "too little seen to tell yet");
  text += line(unseen, "not observed; see `tidemark ps`");
  return text;
}

Json LeaksJson(const v1::Snapshot& snapshot) {
  const std::vector<const v1::Process*> processes = ByRank(snapshot);
  Json json = {{"node", snapshot.node()},
               {"leak", AnyConfirmedLeak(processes)},
               {"verdicts", Json::array()}};
  for (const VerdictGroup& group : GroupVerdicts(processes)) {
    Json entry = ToJson(*group.verdict);
    entry["training_job"] = group.members.front().first->identity().training_job();
    const v1::Site* site = nullptr;
    entry["members"] = Json::array();
    for (const auto& [process, verdict] : group.members) {
      if (site == nullptr && verdict->site_id() != 0) {
        site = FindSite(*process, verdict->site_id(), verdict->memory_class());
      }
      Json member = {{"rank", process->identity().rank()},
                     {"pid", process->pid()},
                     {"liveness", process->liveness()}};
      member["verdict"] = ToJson(*verdict);
      const auto gpu = GpuLiveBytes(*process);
      member["gpu_live_bytes"] = gpu ? Json(*gpu) : Json(nullptr);
      member["host_anon_bytes"] =
          process->host().known() ? Json(process->host().anon_bytes()) : Json(nullptr);
      entry["members"].push_back(std::move(member));
    }
    entry["site"] = site != nullptr ? ToJson(*site) : Json(nullptr);
    entry["allocated_at"] = site != nullptr ? Json(SiteText(*site)) : Json(nullptr);
    json["verdicts"].push_back(std::move(entry));
  }
  return json;
}

void AddLeaks(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command = line.Add("leaks", "Whether memory leaks: rank, pace, line of code, time left",
                               [options](Context& context) { return Run(context, *options); });
  options->source.AddTo(*command);
  options->fleet.AddTo(*command);
  command->add_option("--fail-on", options->fail_on, "leak: exit with 10 when a leak is confirmed")
      ->check(CLI::IsMember({"leak"}));
}

}  // namespace tidemark::client
