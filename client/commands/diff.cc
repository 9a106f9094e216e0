// tidemark diff A.tdm B.tdm: what changed between two runs; 1 when a site grows in one only.
#include <filesystem>
#include <memory>

#include "client/commands/commands.h"
#include "client/commands/diff_text.h"
#include "client/recording.h"

namespace tidemark::client {
namespace {

struct Options {
  std::string a;
  std::string b;
  std::string at;
  size_t limit = 15;
  bool json = false;
};

int Run(Context& context, const Options& options) {
  std::optional<At> at;
  if (!options.at.empty()) {
    at = AtFromText(options.at);
    if (!at) {
      return Fail(context,
                  {"read --at " + options.at, "there is no such moment",
                   "use load, peak, last-step or exit"},
                  kUsage);
    }
  }
  const Result<v1::Recording> a = ReadRecording(options.a);
  if (!a) return Fail(context, a.error(), kBadFile);
  const Result<v1::Recording> b = ReadRecording(options.b);
  if (!b) return Fail(context, b.error(), kBadFile);

  const RunDifference difference = CompareRuns(*a, *b, at);
  const DiffNames names{std::filesystem::path(options.a).filename().string(),
                        std::filesystem::path(options.b).filename().string()};
  if (options.json) {
    context.out << JsonText(DiffJson(*a, *b, difference));
  } else {
    context.out << DiffText(*a, *b, difference, names, options.limit, context.ink);
  }
  return difference.AnyGrowsInOneOnly() ? kDiffers : kOk;
}

}  // namespace

void AddDiff(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      line.Add("diff", "Compare two recordings by site, class and rank; 1 if one grows alone",
               [options](Context& context) { return Run(context, *options); });
  command->add_option("a", options->a, "A recording made by `tidemark run -o`")->required();
  command->add_option("b", options->b, "Another")->required();
  command->add_option("--at", options->at, "Moment to compare: load, peak, last-step or exit");
  command->add_option("--limit", options->limit, "Sites to show (0 = all)");
  command->add_flag("--json", options->json, "Print JSON, with exact bytes");
}

}  // namespace tidemark::client
