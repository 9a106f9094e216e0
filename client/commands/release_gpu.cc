// tidemark release-gpu: the daemon closes NVML and device files, so that a GPU can be reset, its
// MIG layout changed or its driver upgraded; --resume opens them again.
#include <memory>

#include "client/commands/commands.h"

namespace tidemark::client {
namespace {

struct Options {
  SourceOptions source;
  bool resume = false;
};

int Run(Context& context, const Options& options) {
  Result<Connection> connection = options.source.Connect(context);
  if (!connection) return Fail(context, connection.error(), kNoDaemon);
  v1::ReleaseGpuRequest request;
  request.set_resume(options.resume);
  const Result<v1::ReleaseGpuResponse> answer = connection->ReleaseGpu(request);
  if (!answer) return Fail(context, answer.error(), connection->refused() ? kRefused : kNoDaemon);
  if (options.source.json) {
    context.out << JsonText(ToJson(*answer));
  } else {
    context.out
        << (answer->released()
                ? "The daemon holds no GPU now. `tidemark release-gpu --resume` ends this.\n"
                : "The daemon reads the GPUs again.\n");
  }
  return kOk;
}

}  // namespace

void AddReleaseGpu(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      line.Add("release-gpu", "Make the daemon let go of the GPUs (for a reset, MIG or an upgrade)",
               [options](Context& context) { return Run(context, *options); });
  command->add_option("--socket", options->source.socket, "Ask the daemon on this socket");
  command->add_flag("--json", options->source.json, "Print JSON");
  command->add_flag("--resume", options->resume, "Read the GPUs again");
}

}  // namespace tidemark::client
