#include "client/command_line.h"

#include <algorithm>
#include <utility>

#include "client/recording.h"
#include "client/socket_path.h"

namespace tidemark::client {

int Fail(Context& context, const Error& error, ExitCode code) {
  context.err << "tidemark: " << error.tried << ": " << error.why << "\n";
  if (!error.hint.empty()) context.err << "  " << error.hint << "\n";
  return code;
}

CommandLine::CommandLine()
    : app_("Where a training job's memory is, and whether it leaks.", "tidemark") {
  app_.require_subcommand(1);
  app_.footer(kExitCodeHelp);
}

CLI::App* CommandLine::Add(const std::string& name, const std::string& description, Action action) {
  CLI::App* command = app_.add_subcommand(name, description);
  command->callback([this, action = std::move(action)] { chosen_ = action; });
  return command;
}

int CommandLine::Run(std::vector<std::string> arguments, Context& context) {
  // Taken off before parsing, so that nothing in the job's command is read as an option or altered.
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes != arguments.end()) {
    trailing_.assign(dashes + 1, arguments.end());
    arguments.erase(dashes, arguments.end());
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them last first
  try {
    app_.parse(arguments);
  } catch (const CLI::ParseError& error) {
    const int code = app_.exit(error, context.out, context.err);
    return code == 0 ? kOk : kUsage;
  }
  return chosen_ ? chosen_(context) : kUsage;
}

void SourceOptions::AddTo(CLI::App& command) {
  CLI::Option* socket_option = command.add_option(
      "--socket", socket,
      "Ask the daemon on this socket (default: TIDEMARK_SOCKET, else the node's, "
      "else your private one)");
  command.add_option("--from", from, "Read a recording made by `tidemark run -o FILE`")
      ->excludes(socket_option);
  command.add_flag("--json", json, "Print JSON, with exact bytes");
  command.add_option("--rank", rank, "Only this rank");
  command.add_option("--pid", pid, "Only this process");
  command.add_option("--job", job, "Only this training job");
}

Result<Connection> SourceOptions::Connect(const Context& context) const {
  return Connection::Open(ApiSocketCandidates(socket, context.environment, context.uid));
}

void SourceOptions::Choose(v1::Snapshot& snapshot) const {
  auto& processes = *snapshot.mutable_processes();
  processes.erase(std::remove_if(processes.begin(), processes.end(),
                                 [this](const v1::Process& process) {
                                   const v1::Identity& id = process.identity();
                                   return (rank && id.rank() != *rank) ||
                                          (pid && process.pid() != *pid) ||
                                          (!job.empty() && id.training_job() != job);
                                 }),
                  processes.end());
}

Result<v1::Snapshot> SourceOptions::Load(Context& context,
                                         const v1::GetSnapshotRequest& request) const {
  v1::Snapshot snapshot;
  if (from.empty()) {
    Result<Connection> connection = Connect(context);
    if (!connection) return connection.error();
    Result<v1::Snapshot> answer = connection->GetSnapshot(request);
    if (!answer) return answer.error();
    snapshot = std::move(*answer);
  } else {
    Result<v1::Recording> recording = ReadRecording(from);
    if (!recording) return recording.error();
    snapshot = std::move(*recording->mutable_snapshot());
  }
  Choose(snapshot);
  return snapshot;
}

int LoadAndPrint(Context& context, const SourceOptions& source,
                 const v1::GetSnapshotRequest& request, const Renderer& renderer) {
  const Result<v1::Snapshot> snapshot = source.Load(context, request);
  if (!snapshot) return Fail(context, snapshot.error(), source.FailureCode());
  if (source.json) {
    context.out << JsonText(renderer.json(*snapshot));
    return kOk;
  }
  if (snapshot->processes().empty()) {
    const bool chosen = source.rank || source.pid || !source.job.empty();
    context.out << (chosen ? "No such process is known; see `tidemark ps`.\n"
                           : "No process uses a GPU or belongs to a training job.\n");
    return kOk;
  }
  context.out << renderer.text(*snapshot, context.ink);
  return kOk;
}

}  // namespace tidemark::client
