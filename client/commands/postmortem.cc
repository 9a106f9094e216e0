// tidemark postmortem: what was kept of processes that died or ran out of memory.
#include <ctime>
#include <memory>

#include "client/commands/commands.h"
#include "client/commands/render.h"
#include "client/site_view.h"
#include "client/socket_path.h"
#include "client/table.h"
#include "client/units.h"

namespace tidemark::client {
namespace {

constexpr size_t kGrowersShown = 8;
constexpr size_t kSitesShown = 10;
constexpr size_t kStepsShown = 10;

struct Options {
  std::string socket;
  bool json = false;
  std::string id;
};

std::string TimeText(uint64_t unix_ns) {
  const auto seconds = static_cast<time_t>(unix_ns / 1'000'000'000);
  std::tm local = {};
  ::localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof(text), "%F %T", &local);
  return text;
}

std::string NameOf(const v1::ProcessRef& process) {
  const std::string pid = "pid " + std::to_string(process.pid());
  return process.rank() >= 0 ? "rank " + std::to_string(process.rank()) + ", " + pid
                             : pid + " (" + Printable(process.command()) + ")";
}

std::string CauseText(const std::string& cause) {
  if (cause == "device_out_of_memory") return "out of memory on the device";
  if (cause == "oom_killer") return "out of memory on the host";
  if (cause == "signal") return "killed";
  if (cause == "exit_status") return "ended with an error";
  return "ended, nobody saw how";
}

std::string HowText(const v1::PostmortemSummary& summary) {
  return summary.how().empty() ? "lived on when this was written" : Printable(summary.how());
}

std::string FailingCallText(const v1::Event& call) {
  const std::string what = call.entry_point().empty() ? call.type() : call.entry_point();
  std::string text = Printable(what) + " of " + FormatBytes(static_cast<int64_t>(call.bytes()));
  if (call.device() >= 0) text += " on GPU " + std::to_string(call.device());
  if (call.code() != 0) text += ", code " + std::to_string(call.code());
  text += ", in step " + FormatCount(call.step() + 1);
  return text;
}

std::string GrowersText(const v1::Postmortem& message) {
  Table table({{"process"},
               {"memory"},
               {"where"},
               {"grew", Align::kRight},
               {"to", Align::kRight},
               {"allocated at"}});
  for (const v1::Grower& grower : message.growers()) {
    table.Add({NameOf(grower.process()), Printable(grower.memory_class()),
               grower.device() < 0 ? "host" : "GPU " + std::to_string(grower.device()),
               FormatDelta(grower.grew_bytes()), FormatBytes(grower.live_bytes()),
               grower.has_site()
                   ? SiteText(grower.site()) + " (" + FormatShare(grower.site_share()) + ")"
                   : ""});
    if (table.rows() == kGrowersShown) break;
  }
  return table.empty() ? "" : table.Text(2);
}

Result<Connection> Connect(const Context& context, const Options& options) {
  return Connection::Open(ApiSocketCandidates(options.socket, context.environment, context.uid));
}

int List(Context& context, const Options& options, Connection& connection) {
  const Result<v1::ListPostmortemsResponse> list = connection.ListPostmortems();
  if (!list) return Fail(context, list.error(), connection.refused() ? kRefused : kNoDaemon);
  if (options.json) {
    context.out << JsonText({{"postmortems", ToJsonArray(list->postmortems())}});
    return kOk;
  }
  context.out << PostmortemsText(*list);
  return kOk;
}

int Run(Context& context, const Options& options) {
  Result<Connection> connection = Connect(context, options);
  if (!connection) return Fail(context, connection.error(), kNoDaemon);
  if (options.id.empty()) return List(context, options, *connection);
  const Result<v1::Postmortem> message = connection->GetPostmortem(options.id);
  if (!message) return Fail(context, message.error(), connection->refused() ? kRefused : kNoDaemon);
  if (options.json) {
    context.out << JsonText(ToJson(*message));
  } else {
    context.out << PostmortemText(*message, context.ink);
  }
  return kOk;
}

}  // namespace

std::string PostmortemsText(const v1::ListPostmortemsResponse& list) {
  if (list.postmortems().empty()) {
    return "Nothing that was watched here has died or run out of memory.\n";
  }
  Table table({{"id"}, {"when"}, {"process"}, {"job"}, {"cause"}, {"how"}, {"biggest grower"}});
  for (const v1::PostmortemSummary& summary : list.postmortems()) {
    table.Add({Printable(summary.id()), TimeText(summary.unix_ns()), NameOf(summary.process()),
               Printable(summary.process().training_job()), CauseText(summary.cause()),
               HowText(summary), Printable(summary.biggest_grower())});
  }
  return table.Text();
}

std::string PostmortemText(const v1::Postmortem& message, const Ink& ink) {
  const v1::PostmortemSummary& summary = message.summary();
  std::string text = ink.Bold(NameOf(summary.process())) + ": " + CauseText(summary.cause()) +
                     "; " + HowText(summary) + "\n";
  text += TimeText(summary.unix_ns()) + " on " + Printable(message.node()) + ", after step " +
          FormatCount(summary.step()) + "\n";
  if (message.has_failing_call()) {
    text += "The call that failed: " + FailingCallText(message.failing_call()) + "\n";
  }
  if (!summary.biggest_grower().empty()) {
    text += "Grew most: " + Printable(summary.biggest_grower()) + "\n";
  }
  text += GrowersText(message);
  for (const std::string& note : message.notes()) text += "Not known: " + Printable(note) + "\n";

  v1::Snapshot last;
  *last.add_processes() = message.process();
  last.set_node(message.node());
  *last.mutable_memory() = message.memory();
  text += "\n" + WhereText(last, ink);
  SitesView sites;
  sites.at = message.has_failing_call() ? At::kPeak : At::kNow;
  sites.limit = kSitesShown;
  text += "\n" + SitesText(last, sites, ink);
  if (!message.process().verdicts().empty()) text += "\n" + LeaksText(last, ink);
  if (!message.process().steps().empty()) text += "\n" + StepsText(last, kStepsShown, ink);
  return text;
}

void AddPostmortem(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      line.Add("postmortem", "What was kept of processes that died or ran out of memory",
               [options](Context& context) { return Run(context, *options); });
  command->add_option("id", options->id, "One of the list; without it the list is printed");
  command->add_option("--socket", options->socket,
                      "Ask the daemon on this socket (default: as other commands)");
  command->add_flag("--json", options->json, "Print JSON, with exact bytes");
}

}  // namespace tidemark::client
