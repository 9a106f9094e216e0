// tidemark run: starts a job under observation and reports when it is done. The job's input, output
// and exit code stay its own; all that Tidemark says goes to standard error.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "client/collect.h"
#include "client/commands/commands.h"
#include "client/daemon_keeper.h"
#include "client/installed.h"
#include "client/job_process.h"
#include "client/private_daemon.h"
#include "client/rank_view.h"
#include "client/recording.h"
#include "client/recording_history.h"
#include "client/report.h"
#include "client/run_plan.h"
#include "client/verdict_view.h"
#include "client/version.h"

namespace tidemark::client {
namespace {

struct Options {
  std::string socket;
  std::string json_file;
  std::string markdown_file;
  std::string recording_file;
  std::vector<std::string> tags;
  std::string fail_on;
  bool only_private = false;
  bool quiet = false;
  std::vector<std::string> command;

  bool AsksForOutput() const {
    return !json_file.empty() || !markdown_file.empty() || !recording_file.empty() ||
           !fail_on.empty();
  }
};

uint64_t Nanoseconds(clockid_t clock) {
  timespec now = {};
  ::clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

std::string RandomRun() {
  std::random_device device;
  return SiteIdText(uint64_t{device()} << 32 | device()).substr(0, 12);
}

Result<void> ParseTags(const std::vector<std::string>& texts, v1::Recording& recording) {
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Error{"read --tag " + text, "a tag is NAME=VALUE", ""};
    }
    (*recording.mutable_tags())[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return {};
}

void Say(Context& context, const std::string& text) {
  context.err << "tidemark: " << text << std::endl;
}

// Where its metrics are, once the daemon has ticked for the first time.
std::string MetricsUrl(const DaemonEndpoint& endpoint) {
  Result<Connection> connection = Connection::Open({endpoint.api_socket});
  if (!connection) return "";
  v1::GetSnapshotRequest request;
  request.set_omit_sites(true);
  request.set_omit_steps(true);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (std::chrono::steady_clock::now() < deadline) {
    const Result<v1::Snapshot> snapshot = connection->GetSnapshot(request, std::chrono::seconds(1));
    if (snapshot) return snapshot->metrics_url();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return "";
}

Result<void> WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (!file) return Error{"write " + path, std::strerror(errno), ""};
  return {};
}

int StartUnobserved(Context& context, const Options& options, const SignalGate& gate) {
  auto started = JobProcess::Start(options.command, context.environment.Strings(), gate);
  if (const auto* failed = std::get_if<StartError>(&started)) {
    Fail(context, failed->error, kCannotStart);
    return failed->exit_code;
  }
  const int code = std::get<JobProcess>(started).Wait(gate);
  return code == 0 && !options.fail_on.empty() ? kNotObserved : code;
}

// Prints and writes what was asked for; the exit code of all.
int Report(Context& context, const Options& options, const v1::Recording& recording) {
  if (!options.quiet) context.err << "\n" << ReportText(recording, context.err_ink) << std::flush;
  bool written = true;
  const auto note = [&](const Result<void>& result) {
    if (result) return;
    Fail(context, result.error(), kBadFile);
    written = false;
  };
  if (!options.json_file.empty()) {
    note(WriteText(options.json_file, JsonText(ReportJson(recording))));
  }
  if (!options.markdown_file.empty()) {
    note(WriteText(options.markdown_file, ReportMarkdown(recording)));
  }
  if (!options.recording_file.empty()) note(WriteRecording(recording, options.recording_file));

  const int job = recording.exit_code();
  if (job != 0) return job;
  if (options.fail_on == "leak") {
    const auto processes = ByRank(recording.snapshot());
    if (AnyConfirmedLeak(processes)) return kLeakFound;
    const bool observed = std::any_of(processes.begin(), processes.end(),
                                      [](const auto* process) { return process->observed(); });
    if (!observed) return kNotObserved;
  }
  return written ? job : kBadFile;
}

int Run(Context& context, const Options& options) {
  if (options.command.empty()) {
    return Fail(context, {"run a job", "no command was given", "tidemark run -- python train.py"},
                kUsage);
  }
  v1::Recording recording;
  const Result<void> tags = ParseTags(options.tags, recording);
  if (!tags) return Fail(context, tags.error(), kUsage);

  const SignalGate gate;  // before gRPC starts threads
  if (context.environment.Get("TIDEMARK") == "off") {
    Say(context, "switched off by TIDEMARK=off; the job runs unobserved");
    return StartUnobserved(context, options, gate);
  }
  const DaemonLocator locator(options.socket, options.only_private, context.environment,
                              context.uid, DaemonProgram(context));
  const Result<DaemonEndpoint> endpoint = locator.FindOrStart();
  if (!endpoint) {
    // The job matters more than its observer.
    Fail(context, endpoint.error(), kNoDaemon);
    Say(context, "the job runs unobserved");
    return StartUnobserved(context, options, gate);
  }

  const std::string library = InjectedLibrary(context);
  const RunPlan plan =
      PlanRun(context.environment, endpoint->agent_socket, library,
              std::filesystem::exists(library), options.AsksForOutput(), RandomRun());
  for (const std::string& note : plan.notes) Say(context, note);
  if (plan.reports && !options.quiet) {
    const std::string url = MetricsUrl(*endpoint);
    Say(context, url.empty() ? "watching" : "watching; metrics at " + url);
  }

  recording.set_version(kRecordingVersion);
  recording.set_tidemark_version(kVersion);
  recording.set_start_unix_ns(Nanoseconds(CLOCK_REALTIME));
  auto started = JobProcess::Start(options.command, plan.job.Strings(), gate);
  if (const auto* failed = std::get_if<StartError>(&started)) {
    Fail(context, failed->error, kCannotStart);
    return failed->exit_code;
  }
  DaemonKeeper keeper(locator, *endpoint);
  recording.set_exit_code(std::get<JobProcess>(started).Wait(gate));
  recording.set_end_unix_ns(Nanoseconds(CLOCK_REALTIME));
  const uint64_t ended_ns = Nanoseconds(CLOCK_MONOTONIC);
  const int restarts = keeper.Stop();
  if (!plan.reports) return recording.exit_code();
  if (restarts > 0) {
    Say(context, "the daemon had to be started again " + std::to_string(restarts) +
                     (restarts == 1 ? " time" : " times"));
  }

  Result<Connection> connection = Connection::Open({endpoint->api_socket});
  if (connection) {
    Result<v1::Snapshot> snapshot =
        CollectRun(*connection, plan.run, ended_ns, std::chrono::seconds(5));
    if (snapshot) {
      *recording.mutable_snapshot() = std::move(*snapshot);
      if (!options.recording_file.empty()) {
        const Result<void> past = AddPast(*connection, recording.start_unix_ns(), &recording);
        if (!past) Say(context, "the recording is without history: " + past.error().why);
      }
      return Report(context, options, recording);
    }
    Fail(context, snapshot.error(), kNoDaemon);
  } else {
    Fail(context, connection.error(), kNoDaemon);
  }
  Say(context,
      "the job ended with " + std::to_string(recording.exit_code()) + ", but there is no report");
  if (recording.exit_code() != 0) return recording.exit_code();
  return options.AsksForOutput() ? kNotObserved : kOk;
}

}  // namespace

void AddRun(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      line.Add("run", "Run a job under observation and report: tidemark run -- CMD",
               [options, &line](Context& context) {
                 // Without "--" the command begins at the first word that is no option of ours.
                 options->command = line.app().get_subcommand("run")->remaining();
                 options->command.insert(options->command.end(), line.trailing().begin(),
                                         line.trailing().end());
                 return Run(context, *options);
               });
  command->add_option("--json", options->json_file, "Write the report as JSON to this file");
  command->add_option("--markdown", options->markdown_file, "Write the report as Markdown");
  command->add_option("-o,--output", options->recording_file,
                      "Write a recording that every reading command takes by --from");
  command->add_option("--tag", options->tags, "NAME=VALUE kept in the recording; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--fail-on", options->fail_on,
                   "leak: exit with 10 when the job ends with 0 but a leak is confirmed")
      ->check(CLI::IsMember({"leak"}));
  CLI::Option* socket =
      command->add_option("--socket", options->socket, "Use the daemon on this socket");
  command
      ->add_flag("--private", options->only_private,
                 "Use a private daemon even where the node has one")
      ->excludes(socket);
  command->add_flag("-q,--quiet", options->quiet, "Print no report, only trouble");
  command->prefix_command();
  command->footer(
      "Starts a private daemon when the node has none, sets CUDA_INJECTION64_PATH for the job "
      "(one\n"
      "that is set already is left alone), passes signals on and leaves input and output alone.\n"
      "Under mpirun, srun and torchrun the ranks of a node share one daemon and local rank 0 "
      "reports.");
}

}  // namespace tidemark::client
