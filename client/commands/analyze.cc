// tidemark analyze FILE: the daemon's detector on metrics that exist already.
#include "daemon/detect/analyze.h"

#include <memory>

#include "client/commands/commands.h"

namespace tidemark::client {
namespace {

struct Options {
  detect::AnalyzeOptions analyze;
  std::string fail_on;
};

int Run(Context& context, Options options) {
  options.analyze.fail_on_leak = options.fail_on == "leak";
  switch (detect::RunAnalyze(options.analyze, context.out, context.err)) {
    case 0:
      return kOk;
    case 1:
      return kLeakFound;
    default:
      return kBadFile;
  }
}

}  // namespace

void AddAnalyze(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      line.Add("analyze", "Judge a CSV or a Prometheus range query that you have already",
               [options](Context& context) { return Run(context, *options); });
  command
      ->add_option("file", options->analyze.path,
                   "CSV sample,rank,metric,value or Prometheus JSON; - reads standard input")
      ->required();
  command->add_flag("--json", options->analyze.json, "Print one JSON object");
  command
      ->add_option("--fail-on", options->fail_on, "leak: exit with 10 when the verdict is a leak")
      ->check(CLI::IsMember({"leak"}));
}

}  // namespace tidemark::client
