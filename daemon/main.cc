// tidemarkd: reads flags and config, hands over to Daemon.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "daemon/config/config.h"
#include "daemon/daemon.h"
#include "daemon/version.h"

namespace {

// sysexits.h, so that systemd and people can tell a wrong setting from a failure.
constexpr int kExitUsage = 64;
constexpr int kExitConfig = 78;

int Fail(const tidemark::Error& error, int status) {
  std::fprintf(stderr, "tidemarkd: %s\n", error.ToString().c_str());
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Watches the memory of training jobs on this node."};
  app.set_version_flag("--version", tidemark::kVersion);
  std::string config_path;
  std::string agent_socket;
  std::string api_socket;
  std::string http;
  std::string state;
  std::string log_level;
  std::string nvml_library;
  std::string proc_root = "/";
  bool no_bpf = false;
  bool check_config = false;
  int idle_seconds = -1;
  tidemark::DaemonOptions options;
  app.add_option("--config", config_path,
                 "Config file (default " + std::string(tidemark::kConfigPath) +
                     ", if it is there; none with --private)");
  app.add_option("--agent-socket", agent_socket, "Where agents connect");
  app.add_option("--api-socket", api_socket, "Where the gRPC API is served");
  app.add_option("--http", http, "ADDRESS:PORT of metrics and page, or off; port 0 = any free one");
  app.add_option("--state", state, "Folder for what is kept of processes that ended");
  app.add_option("--nvml", nvml_library, "NVML's library, or off");
  app.add_flag("--no-bpf", no_bpf, "Attach no probes");
  app.add_option("--log-level", log_level, "trace, debug, info, warn, error, critical or off");
  app.add_flag("--private", options.private_mode, "One user's own daemon, for `tidemark run`");
  app.add_option("--exit-when-idle", idle_seconds,
                 "Seconds without anything to watch after which to end; 0 = never "
                 "(default 0, with --private 30)");
  app.add_option("--ready-fd", options.ready_fd,
                 "Descriptor that is told the metrics' address once everything is served");
  app.add_option("--proc-root", proc_root, "Folder that holds proc and sys");
  app.add_flag("--check-config", check_config, "Only check flags and config file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error);
    return status == 0 ? 0 : kExitUsage;
  }

  tidemark::Config config;
  std::error_code ignored;
  if (config_path.empty() && !options.private_mode &&
      std::filesystem::exists(tidemark::kConfigPath, ignored)) {
    config_path = tidemark::kConfigPath;
  }
  if (!config_path.empty()) {
    const tidemark::Result<void> read = tidemark::ReadConfigFile(config_path, &config);
    if (!read.ok()) return Fail(read.error(), kExitConfig);
  }
  if (!agent_socket.empty()) config.agent_socket = agent_socket;
  if (!api_socket.empty()) config.api_socket = api_socket;
  if (!http.empty()) {
    const tidemark::Result<tidemark::HttpListen> listen = tidemark::ParseHttpListen(http);
    if (!listen.ok()) return Fail(listen.error(), kExitUsage);
    config.http = *listen;
  }
  if (options.private_mode) {
    config.state_directory =
        (std::filesystem::path(config.agent_socket).parent_path() / "state").string();
    // Everything that a run started is in its report, however many ranks ended before it did.
    config.keep_ended_processes = 512;
    config.keep_ended_for = std::chrono::hours(24);
    config.history_bytes = 64ull << 20;  // in memory, as a rule: the runtime directory is one
  }
  options.exit_when_idle =
      std::chrono::seconds(idle_seconds >= 0 ? idle_seconds : (options.private_mode ? 30 : 0));
  if (!state.empty()) config.state_directory = state;
  if (nvml_library == "off") {
    config.nvml = false;
  } else if (!nvml_library.empty()) {
    config.nvml_library = nvml_library;
  }
  if (no_bpf) config.bpf = false;
  if (!log_level.empty()) config.log_level = log_level;
  if (check_config) return 0;

  spdlog::set_default_logger(spdlog::stderr_logger_mt("tidemarkd"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  spdlog::set_level(spdlog::level::from_str(config.log_level));
  spdlog::flush_on(spdlog::level::info);
  if (options.ready_fd >= 0) ::fcntl(options.ready_fd, F_SETFD, FD_CLOEXEC);

  // Before any thread is made: all of them inherit it, and only the tick reads the signals.
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGPIPE}) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  tidemark::Daemon daemon(std::move(config), options, tidemark::ProcRoot(proc_root));
  const tidemark::Result<void> ran = daemon.Run();
  return ran.ok() ? 0 : Fail(ran.error(), 1);
}
