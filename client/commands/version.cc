// tidemark version: of this program and of the daemon it would ask.
#include "client/version.h"

#include <memory>

#include "client/commands/commands.h"

namespace tidemark::client {
namespace {

struct Options {
  std::string socket;
  bool json = false;
};

int Run(Context& context, const Options& options) {
  SourceOptions source;
  source.socket = options.socket;
  v1::GetSnapshotRequest request;
  request.set_omit_sites(true);
  request.set_omit_steps(true);
  const Result<v1::Snapshot> snapshot = source.Load(context, request);
  // A missing daemon is no failure here: the question was about versions.
  const std::string daemon = snapshot ? Printable(snapshot->daemon_version()) : "";
  if (options.json) {
    context.out << JsonText(
        {{"tidemark", kVersion}, {"tidemarkd", snapshot ? Json(daemon) : Json(nullptr)}});
  } else {
    context.out << "tidemark " << kVersion << "\n"
                << (snapshot ? "tidemarkd " + daemon : "no tidemarkd answers") << "\n";
  }
  return kOk;
}

}  // namespace

void AddVersion(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command = line.Add("version", "Versions of this command and of the daemon",
                               [options](Context& context) { return Run(context, *options); });
  command->add_option("--socket", options->socket, "Ask the daemon on this socket");
  command->add_flag("--json", options->json, "Print JSON");
}

}  // namespace tidemark::client
