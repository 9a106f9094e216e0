// The frame that every sub-command stands in: options that all share, where output goes, how a
// failure is told.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/connection.h"
#include "client/environment.h"
#include "client/exit_code.h"
#include "client/json.h"
#include "client/terminal.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

// The world as a command sees it; a test passes its own.
struct Context {
  std::ostream& out;
  std::ostream& err;
  Ink ink;      // for out
  Ink err_ink;  // for err
  Environment environment;
  uid_t uid = 0;
  bool out_is_terminal = false;
  std::string executable;  // this program's path; daemon and injected library lie beside it
};

// Prints "tidemark: TRIED: WHY" and the hint on its own line, and returns `code`.
int Fail(Context& context, const Error& error, ExitCode code);

class CommandLine {
 public:
  using Action = std::function<int(Context&)>;

  CommandLine();

  // The callback runs after parsing; its value is the exit code.
  CLI::App* Add(const std::string& name, const std::string& description, Action action);

  // What stood after "--". Stays empty until Run.
  const std::vector<std::string>& trailing() const { return trailing_; }
  CLI::App& app() { return app_; }

  // `arguments` without the program's name.
  int Run(std::vector<std::string> arguments, Context& context);

 private:
  CLI::App app_;
  std::vector<std::string> trailing_;
  Action chosen_;
};

// --socket, --from, --json and the choice of processes: what every reading command takes.
struct SourceOptions {
  std::string socket;
  std::string from;
  bool json = false;
  std::optional<int> rank;
  std::optional<int> pid;
  std::string job;

  void AddTo(CLI::App& command);

  // The daemon's latest snapshot, or the recording's, with only the processes that were chosen.
  // Fails when none is left that was asked for.
  Result<v1::Snapshot> Load(Context& context, const v1::GetSnapshotRequest& request) const;
  // What Load's failure means to the shell.
  ExitCode FailureCode() const { return from.empty() ? kNoDaemon : kBadFile; }

  Result<Connection> Connect(const Context& context) const;

  // Drops the processes that were not asked for.
  void Choose(v1::Snapshot& snapshot) const;
};

// Reads a daemon or file and answers with text or JSON: the shape of most commands. Text is
// only asked for when at least one process is there.
struct Renderer {
  std::function<std::string(const v1::Snapshot&, const Ink&)> text;
  std::function<Json(const v1::Snapshot&)> json;
};
int LoadAndPrint(Context& context, const SourceOptions& source,
                 const v1::GetSnapshotRequest& request, const Renderer& renderer);

}  // namespace tidemark::client
