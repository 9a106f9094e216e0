// tidemark completion bash: a completion script made of the commands themselves, so that it never
// lags behind them: eval "$(tidemark completion bash)".
#include <memory>

#include "client/commands/commands.h"

namespace tidemark::client {
namespace {

std::string WordsOf(const CLI::App& command) {
  std::string words;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) words += "--" + name + " ";
  }
  return words;
}

}  // namespace

void AddCompletion(CommandLine& line) {
  auto shell = std::make_shared<std::string>("bash");
  CLI::App* command =
      line.Add("completion", "Shell completion: eval \"$(tidemark completion bash)\"",
               [&line](Context& context) {
                 std::string names;
                 std::string cases;
                 for (const CLI::App* sub : line.app().get_subcommands({})) {
                   names += sub->get_name() + " ";
                   cases += "    " + sub->get_name() + ") words=\"" + WordsOf(*sub) + "\" ;;\n";
                 }
                 context.out << "_tidemark() {\n  local words=\"" << names
                             << "\"\n  case ${COMP_WORDS[1]} in\n"
                             << cases << "  esac\n  [ \"$COMP_CWORD\" -gt 1 ] || words=\"" << names
                             << "\"\n  COMPREPLY=($(compgen -W \"$words\" -- "
                                "\"${COMP_WORDS[COMP_CWORD]}\"))\n}\n"
                             << "complete -o default -F _tidemark tidemark\n";
                 return kOk;
               });
  command->add_option("shell", *shell, "bash")->check(CLI::IsMember({"bash"}));
}

}  // namespace tidemark::client
