// tidemark detach: takes Tidemark out of a running process, live; nothing stays patched.
#include <memory>

#include "client/commands/commands.h"

namespace tidemark::client {
namespace {

struct Options {
  SourceOptions source;
  int pid = 0;
  bool all = false;
};

int Run(Context& context, const Options& options) {
  if ((options.pid > 0) == options.all) {
    return Fail(context, {"detach", "say from what", "tidemark detach --pid P, or --all"}, kUsage);
  }
  Result<Connection> connection = options.source.Connect(context);
  if (!connection) return Fail(context, connection.error(), kNoDaemon);
  v1::DetachRequest request;
  request.set_pid(options.pid);
  request.set_all(options.all);
  const Result<v1::DetachResponse> answer = connection->Detach(request);
  if (!answer) return Fail(context, answer.error(), connection->refused() ? kRefused : kNoDaemon);

  if (options.source.json) {
    context.out << JsonText(ToJson(*answer));
  } else if (answer->detached_pids().empty()) {
    context.out << "No process had an agent.\n";
  } else {
    for (const int32_t pid : answer->detached_pids()) {
      context.out << "detached from pid " << pid << "; it goes on unobserved\n";
    }
  }
  return kOk;
}

}  // namespace

void AddDetach(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      line.Add("detach", "Take Tidemark out of a running process; there is no way back in",
               [options](Context& context) { return Run(context, *options); });
  command->add_option("--socket", options->source.socket, "Ask the daemon on this socket");
  command->add_flag("--json", options->source.json, "Print JSON");
  command->add_option("--pid", options->pid, "The process");
  command->add_flag("--all", options->all, "Every process that you may detach from");
}

}  // namespace tidemark::client
