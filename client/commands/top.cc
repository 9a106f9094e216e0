// tidemark top: who holds what, refreshed with every tick; plain lines when not on a terminal.
#include <ctime>
#include <memory>

#include "client/commands/commands.h"
#include "client/commands/render.h"
#include "client/rank_view.h"
#include "client/report_tables.h"
#include "client/units.h"
#include "client/verdict_view.h"

namespace tidemark::client {
namespace {

constexpr size_t kTopSites = 10;

struct Options {
  SourceOptions source;
  double interval_seconds = 1;
  uint64_t count = 0;
};

std::string ClockText(uint64_t unix_ns) {
  const auto seconds = static_cast<time_t>(unix_ns / 1'000'000'000);
  std::tm local = {};
  ::localtime_r(&seconds, &local);
  char text[16];
  std::strftime(text, sizeof(text), "%H:%M:%S", &local);
  return text;
}

// One line a process, for logs and pipes.
std::string PlainLines(const v1::Snapshot& snapshot) {
  std::string text;
  for (const v1::Process* process : ByRank(snapshot)) {
    const auto gpu = GpuLiveBytes(*process);
    text += ClockText(snapshot.unix_ns()) + " " + ProcessName(*process) + " step " +
            std::to_string(process->current_step()) + " gpu " + (gpu ? FormatBytes(*gpu) : "-") +
            " rss " + (process->host().known() ? FormatBytes(process->host().rss_bytes()) : "-");
    for (const v1::Verdict& verdict : process->verdicts()) {
      if (WeightOf(verdict) <= Weight::kSuspect) {
        text += " " + verdict.state() + " " + verdict.cause() + " " + SlopeText(verdict);
      }
    }
    text += "\n";
  }
  return text;
}

int Run(Context& context, const Options& options) {
  Result<Connection> connection = options.source.Connect(context);
  if (!connection) return Fail(context, connection.error(), kNoDaemon);
  v1::GetSnapshotRequest request;
  request.set_omit_steps(true);
  request.set_max_sites(static_cast<int>(kTopSites));

  uint64_t shown = 0;
  uint64_t next_ns = 0;
  const auto interval_ns = static_cast<uint64_t>(options.interval_seconds * 1e9);
  const Result<void> watched =
      connection->WatchSnapshots(request, [&](const v1::Snapshot& received) {
        if (received.monotonic_ns() < next_ns) return true;
        next_ns = received.monotonic_ns() + interval_ns - interval_ns / 10;
        v1::Snapshot snapshot = received;
        options.source.Choose(snapshot);
        if (options.source.json) {
          context.out << ToJson(snapshot).dump(-1, ' ', false, Json::error_handler_t::replace)
                      << std::endl;
        } else if (context.out_is_terminal) {
          // Home, the text, then clear what an earlier, longer screen left below.
          context.out << "\033[H\033[J" << TopText(snapshot, kTopSites, context.ink) << std::flush;
        } else {
          context.out << PlainLines(snapshot) << std::flush;
        }
        ++shown;
        return context.out.good() && (options.count == 0 || shown < options.count);
      });
  return watched ? kOk : Fail(context, watched.error(), kNoDaemon);
}

}  // namespace

std::string TopText(const v1::Snapshot& snapshot, size_t sites, const Ink& ink) {
  const std::vector<const v1::Process*> processes = ByRank(snapshot);
  std::string text = "tidemark top  " + ClockText(snapshot.unix_ns()) + "  " +
                     Printable(snapshot.node()) + "  tick " +
                     std::to_string(snapshot.tick_ns() / 1000) + " us  daemon " +
                     FormatBytes(snapshot.daemon_rss_bytes()) + "\n\n";
  text += processes.empty() ? "No process uses a GPU or belongs to a training job.\n"
                            : PsText(snapshot, ink);
  for (const VerdictGroup& group : GroupVerdicts(processes)) {
    text += "\n" + Headline(group, processes.size(), ink);
    const std::string slope = SlopeText(*group.verdict);
    if (!slope.empty()) text += "  " + slope;
  }
  const std::vector<SiteRow> rows = FoldSites(processes, At::kNow);
  if (!rows.empty()) text += "\n\n" + SitesTable(rows, sites).Text();
  return text;
}

void AddTop(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command = line.Add("top", "Who holds what, refreshed; plain lines into a pipe",
                               [options](Context& context) { return Run(context, *options); });
  command->add_option("--socket", options->source.socket, "Ask the daemon on this socket");
  command->add_flag("--json", options->source.json, "Print one JSON object a line");
  command->add_option("--rank", options->source.rank, "Only this rank");
  command->add_option("--pid", options->source.pid, "Only this process");
  command->add_option("--job", options->source.job, "Only this training job");
  command->add_option("--interval", options->interval_seconds, "Seconds between two refreshes")
      ->check(CLI::Range(0.1, 3600.0));
  command->add_option("-n,--count", options->count, "End after this many refreshes");
}

}  // namespace tidemark::client
