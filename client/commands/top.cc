// tidemark top: who holds what, refreshed with every tick; plain lines when not on a terminal, or
// where so many are asked for.
#include <ctime>
#include <memory>

#include "client/commands/commands.h"
#include "client/commands/render.h"
#include "client/rank_view.h"
#include "client/top_screen.h"
#include "client/units.h"
#include "client/verdict_view.h"

namespace tidemark::client {
namespace {

// A process; what one drills down to.
constexpr int kTopSites = 100;

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
  request.set_max_sites(kTopSites);
  const TopFeed feed = {.connect = [&] { return options.source.Connect(context); },
                        .request = request,
                        .choose = [&](v1::Snapshot& snapshot) { options.source.Choose(snapshot); },
                        .interval_seconds = options.interval_seconds};
  const bool asks_for_lines = !context.out_is_terminal || options.source.json || options.count > 0;
  if (!asks_for_lines && RunTopScreen(&*connection, feed)) return kOk;

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
        } else {
          context.out << PlainLines(snapshot) << std::flush;
        }
        ++shown;
        return context.out.good() && (options.count == 0 || shown < options.count);
      });
  return watched ? kOk : Fail(context, watched.error(), kNoDaemon);
}

}  // namespace

void AddTop(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      line.Add("top", "Who holds what, live: sort, filter, trends, sites; lines into a pipe",
               [options](Context& context) { return Run(context, *options); });
  command->add_option("--socket", options->source.socket, "Ask the daemon on this socket");
  command->add_flag("--json", options->source.json, "Print one JSON object a line");
  command->add_option("--rank", options->source.rank, "Only this rank");
  command->add_option("--pid", options->source.pid, "Only this process");
  command->add_option("--job", options->source.job, "Only this training job");
  command->add_option("--interval", options->interval_seconds, "Seconds between two refreshes")
      ->check(CLI::Range(0.1, 3600.0));
  command->add_option("-n,--count", options->count, "Print this many refreshes as lines, then end");
}

}  // namespace tidemark::client
