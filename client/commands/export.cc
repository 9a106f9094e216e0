// tidemark export: a file for somebody else's tool, from a daemon or a recording.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>

#include "client/commands/commands.h"
#include "client/recording.h"
#include "client/recording_history.h"

namespace tidemark::client {
namespace {

struct Options {
  SourceOptions source;
  std::string format;
  std::string what;
  std::string since;
  std::string over;
  std::string output;
};

// "load", "peak", "last-step", or how long ago.
Result<v1::Moment> MomentOf(const std::string& text, uint64_t now_unix_ns) {
  v1::Moment moment;
  if (text.empty() || text == "load" || text == "peak") {
    moment.set_name(text);
  } else if (text == "last-step") {
    moment.set_name("last_step");
  } else {
    const Result<uint64_t> span = ParseSpan(text);
    if (!span) {
      return Error{"read --since " + text, "there is no such moment",
                   "use load, peak, last-step, or how long ago, as in 10m"};
    }
    moment.set_name("time");
    moment.set_unix_ns(now_unix_ns - std::min(*span, now_unix_ns));
  }
  return moment;
}

uint64_t Now() {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

Result<std::string> FromRecording(const Options& options, const v1::Moment& since,
                                  v1::Recording& recording) {
  const Result<exports::Plan> plan = exports::MakePlan(options.format, options.what, since);
  if (!plan) return plan.error();
  exports::Input input = InputOf(recording, options.source);
  if (since.name() == "time") input.then = exports::SitesAt(input.series, since.unix_ns());
  return exports::Write(*plan, input);
}

Result<std::string> FromDaemon(const Options& options, const v1::Moment& since,
                               uint64_t start_unix_ns, Connection& connection) {
  v1::ExportRequest request;
  request.set_format(options.format);
  request.set_what(options.what);
  *request.mutable_since() = since;
  if (options.source.pid) request.add_pids(*options.source.pid);
  if (options.source.rank) request.add_ranks(*options.source.rank);
  request.set_training_job(options.source.job);
  request.set_start_unix_ns(start_unix_ns);
  return connection.Export(request);
}

int Write(Context& context, const Options& options, const std::string& file) {
  if (options.output.empty()) {
    context.out << file << std::flush;
    return kOk;
  }
  std::ofstream out(options.output, std::ios::binary | std::ios::trunc);
  out << file;
  out.close();
  if (out) return kOk;
  return Fail(context, {"write " + options.output, std::strerror(errno), ""}, kBadFile);
}

int Run(Context& context, const Options& options) {
  // Known before anything is asked, so that a wrong word is a wrong word whoever answers.
  if (const auto plan = exports::MakePlan(options.format, options.what, {}); !plan) {
    return Fail(context, plan.error(), kUsage);
  }
  if (const auto since = MomentOf(options.since, Now()); !since) {
    return Fail(context, since.error(), kUsage);
  }
  const bool binary =
      options.format == "pprof" || options.format == "torch" || options.format == "perfetto";
  if (binary && options.output.empty() && context.out_is_terminal) {
    return Fail(
        context,
        {"export " + options.format, "it is no text for a terminal", "write it to a file: -o FILE"},
        kUsage);
  }
  uint64_t start_unix_ns = 0;
  if (!options.over.empty()) {
    const Result<uint64_t> span = ParseSpan(options.over);
    if (!span) return Fail(context, span.error(), kUsage);
    start_unix_ns = Now() - std::min(*span, Now());
  }
  if (options.source.from.empty()) {
    Result<Connection> connection = options.source.Connect(context);
    if (!connection) return Fail(context, connection.error(), kNoDaemon);
    const Result<std::string> file =
        FromDaemon(options, *MomentOf(options.since, Now()), start_unix_ns, *connection);
    if (!file) {
      return Fail(context, file.error(), connection->refused() ? kRefused : kNoDaemon);
    }
    return Write(context, options, *file);
  }
  Result<v1::Recording> recording = ReadRecording(options.source.from);
  if (!recording) return Fail(context, recording.error(), kBadFile);
  const auto since = MomentOf(options.since, recording->snapshot().unix_ns());
  const Result<std::string> file = FromRecording(options, *since, *recording);
  if (!file) return Fail(context, file.error(), kBadFile);
  return Write(context, options, *file);
}

}  // namespace

void AddExport(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      line.Add("export", "Write a file for pprof, PyTorch, Perfetto, Prometheus or a spreadsheet",
               [options](Context& context) { return Run(context, *options); });
  options->source.AddTo(*command);
  command->remove_option(command->get_option("--json"));
  command
      ->add_option("format", options->format,
                   "pprof, torch (memory snapshot), folded, csv, perfetto or openmetrics")
      ->required();
  command->add_option(
      "--what", options->what,
      "Of the sites: live (default), growth, peak or allocations; csv: also history");
  command->add_option("--since", options->since,
                      "Growth since load (default), peak, last-step, or how long ago: 10m");
  command->add_option("--over", options->over,
                      "History of the last 15m (default), 2h, 7d; of a recording: all of it");
  command->add_option("-o,--output", options->output, "Write to this file instead of the output");
}

}  // namespace tidemark::client
