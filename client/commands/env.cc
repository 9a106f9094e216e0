// tidemark env --for LAUNCHER: what to export so that the launcher's processes are observed without
// `tidemark run`. The text can be given to the shell: eval "$(tidemark env --for torchrun)".
#include <filesystem>
#include <memory>

#include "client/commands/commands.h"
#include "client/installed.h"
#include "client/socket_path.h"
#include "wire/handshake.h"

namespace tidemark::client {
namespace {

struct Options {
  std::string launcher;
  bool json = false;
};

struct Variable {
  std::string name;
  std::string value;
};

std::string ShellQuote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// The agent looks for the node's daemon by itself; a private one it must be told of.
std::vector<Variable> VariablesFor(const Context& context) {
  std::vector<Variable> variables = {{"CUDA_INJECTION64_PATH", InjectedLibrary(context)}};
  const std::string directory = PrivateDirectory(context.environment, context.uid);
  if (!ProbeSocket(kNodeApiSocket).ok() && ProbeSocket(directory + "/api.sock").ok()) {
    variables.push_back({wire::kAgentSocketVariable, directory + "/agent.sock"});
  }
  return variables;
}

std::vector<std::string> NotesFor(const std::string& launcher,
                                  const std::vector<Variable>& variables) {
  std::string x_arguments;
  std::string list;
  for (const Variable& variable : variables) {
    x_arguments += " -x " + variable.name;
    list += (list.empty() ? "" : ",") + variable.name;
  }
  if (launcher == "torchrun" || launcher == "accelerate") {
    return {launcher +
            " hands its environment to the workers of its node; on several nodes, "
            "export on each of them"};
  }
  if (launcher == "deepspeed") {
    std::vector<std::string> notes = {
        "on one node the exports are enough; for several, these lines go into ~/.deepspeed_env:"};
    for (const Variable& variable : variables) {
      notes.push_back("  " + variable.name + "=" + variable.value);
    }
    return notes;
  }
  if (launcher == "srun") {
    return {"srun --export=ALL hands them on (its default); with a list of your own, add: " + list};
  }
  if (launcher == "mpirun") {
    return {"Open MPI: mpirun" + x_arguments + " ...", "MPICH: mpiexec -genvlist " + list + " ..."};
  }
  Json runtime = {{"env_vars", Json::object()}};
  for (const Variable& variable : variables) runtime["env_vars"][variable.name] = variable.value;
  return {"workers get them from the runtime environment:",
          "  ray job submit --runtime-env-json=" + ShellQuote(runtime.dump()) + " -- ...",
          "or in code: ray.init(runtime_env=" + runtime.dump() + ")"};
}

int Run(Context& context, const Options& options) {
  const std::vector<Variable> variables = VariablesFor(context);
  std::vector<std::string> notes = NotesFor(options.launcher, variables);
  if (!std::filesystem::exists(variables.front().value)) {
    notes.push_back("there is no " + variables.front().value + " yet: build it with ./setup");
  }
  if (!ProbeSocket(kNodeApiSocket).ok() && variables.size() == 1) {
    notes.push_back(
        "no daemon runs on this node: systemctl start tidemarkd, or use `tidemark run`");
  }
  if (const auto set = context.environment.Get("CUDA_INJECTION64_PATH");
      set && *set != variables.front().value) {
    notes.push_back("CUDA_INJECTION64_PATH is " + *set +
                    " now; only one library can be injected, so this replaces it");
  }
  if (options.json) {
    Json json = {{"launcher", options.launcher}, {"variables", Json::object()}, {"notes", notes}};
    for (const Variable& variable : variables) json["variables"][variable.name] = variable.value;
    context.out << JsonText(json);
    return kOk;
  }
  for (const Variable& variable : variables) {
    context.out << "export " << variable.name << "=" << ShellQuote(variable.value) << "\n";
  }
  for (const std::string& note : notes) context.out << "# " << note << "\n";
  return kOk;
}

}  // namespace

void AddEnv(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      line.Add("env", "The exports a launcher needs: eval \"$(tidemark env --for torchrun)\"",
               [options](Context& context) { return Run(context, *options); });
  command
      ->add_option("--for", options->launcher, "torchrun, deepspeed, accelerate, srun, mpirun, ray")
      ->required()
      ->check(CLI::IsMember({"torchrun", "deepspeed", "accelerate", "srun", "mpirun", "ray"}));
  command->add_flag("--json", options->json, "Print JSON");
}

}  // namespace tidemark::client
