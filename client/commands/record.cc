// tidemark record: keeps what a daemon knows and remembers in a file, for --from.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <memory>

#include "client/commands/commands.h"
#include "client/recording.h"
#include "client/recording_history.h"
#include "client/units.h"
#include "client/version.h"

namespace tidemark::client {
namespace {

struct Options {
  SourceOptions source;
  std::string output;
  std::string wait;
  std::string since;
};

uint64_t Now() {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Waits, with a line that says how long still; ^C ends it early and the recording is written.
void WaitFor(Context& context, uint64_t span_ns) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  const uint64_t until = Now() + span_ns;
  const bool live = ::isatty(STDERR_FILENO) == 1;
  if (!live) context.err << "tidemark: recording; ^C ends it and writes the file" << std::endl;
  for (uint64_t now = Now(); now < until; now = Now()) {
    const uint64_t left = until - now;
    if (live) {
      context.err << "\rtidemark: recording, " << FormatDuration(static_cast<double>(left) * 1e-9)
                  << " left; ^C ends it   " << std::flush;
    }
    const uint64_t nap = std::min<uint64_t>(left, 1'000'000'000);
    const timespec time = {static_cast<time_t>(nap / 1'000'000'000),
                           static_cast<long>(nap % 1'000'000'000)};
    if (sigtimedwait(&ends, nullptr, &time) > 0) break;
  }
  if (live) context.err << "\r\033[K" << std::flush;
}

int Run(Context& context, const Options& options) {
  uint64_t span = 0;
  uint64_t before = 0;
  for (const auto& [text, value] : {std::pair(&options.wait, &span), {&options.since, &before}}) {
    if (text->empty()) continue;
    const Result<uint64_t> parsed = ParseSpan(*text);
    if (!parsed) return Fail(context, parsed.error(), kUsage);
    *value = *parsed;
  }
  if (options.since.empty() && options.wait.empty()) before = 15ull * 60 * 1'000'000'000;

  v1::Recording recording;
  recording.set_version(kRecordingVersion);
  recording.set_tidemark_version(kVersion);
  recording.set_start_unix_ns(Now() - std::min(before, Now()));
  if (span > 0) {
    // Whoever has nobody to ask shall not wait first to be told.
    const Result<Connection> there = options.source.Connect(context);
    if (!there) return Fail(context, there.error(), kNoDaemon);
    WaitFor(context, span);
  }
  Result<Connection> connection = options.source.Connect(context);
  if (!connection) return Fail(context, connection.error(), kNoDaemon);
  Result<v1::Snapshot> snapshot = connection->GetSnapshot({});
  if (!snapshot) {
    return Fail(context, snapshot.error(), connection->refused() ? kRefused : kNoDaemon);
  }
  options.source.Choose(*snapshot);
  *recording.mutable_snapshot() = std::move(*snapshot);
  recording.set_end_unix_ns(Now());
  const Result<void> history = AddPast(*connection, recording.start_unix_ns(), &recording);
  if (!history) {
    context.err << "tidemark: the recording is without history: " << history.error().why << "\n";
  }
  const Result<void> written = WriteRecording(recording, options.output);
  if (!written) return Fail(context, written.error(), kBadFile);
  std::error_code ignored;
  context.err << "tidemark: " << options.output << ", "
              << FormatBytes(
                     static_cast<int64_t>(std::filesystem::file_size(options.output, ignored)))
              << ": " << recording.snapshot().processes_size() << " processes, "
              << recording.series_size() << " series\n";
  return kOk;
}

}  // namespace

void AddRecord(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command = line.Add("record", "Keep what a daemon knows in a file that --from takes",
                               [options](Context& context) { return Run(context, *options); });
  options->source.AddTo(*command);
  command->remove_option(command->get_option("--json"));
  command->remove_option(command->get_option("--from"));
  command->add_option("-o,--output", options->output, "The recording")->required();
  command->add_option("--for", options->wait,
                      "Wait that long first and record it: 90s, 10m; ^C ends it early");
  command->add_option("--since", options->since,
                      "Also what history holds of before: 15m (default without --for), 2h, 7d");
}

}  // namespace tidemark::client
