// tidemark report: the report of `tidemark run`, of a recording or of what runs now.
#include "client/report.h"

#include <memory>

#include "client/commands/commands.h"
#include "client/recording.h"
#include "client/version.h"

namespace tidemark::client {
namespace {

struct Options {
  SourceOptions source;
  bool markdown = false;
};

Result<v1::Recording> LoadRecording(Context& context, const SourceOptions& source) {
  if (!source.from.empty()) {
    Result<v1::Recording> recording = ReadRecording(source.from);
    if (recording) source.Choose(*recording->mutable_snapshot());
    return recording;
  }
  Result<v1::Snapshot> snapshot = source.Load(context, {});
  if (!snapshot) return snapshot.error();
  v1::Recording recording;
  recording.set_tidemark_version(kVersion);
  *recording.mutable_snapshot() = std::move(*snapshot);
  return recording;
}

int Run(Context& context, const Options& options) {
  const Result<v1::Recording> recording = LoadRecording(context, options.source);
  if (!recording) return Fail(context, recording.error(), options.source.FailureCode());
  if (options.source.json) {
    context.out << JsonText(ReportJson(*recording));
  } else if (options.markdown) {
    context.out << ReportMarkdown(*recording);
  } else {
    context.out << ReportText(*recording, context.ink);
  }
  return kOk;
}

}  // namespace

void AddReport(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      line.Add("report", "The report of `tidemark run`, of a recording or of what runs now",
               [options](Context& context) { return Run(context, *options); });
  options->source.AddTo(*command);
  command->add_flag("--markdown", options->markdown, "Print Markdown");
}

}  // namespace tidemark::client
