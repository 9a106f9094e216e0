// tidemark: the command.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <iostream>

#include "client/command_line.h"
#include "client/commands/commands.h"

int main(int argc, char** argv) {
  using namespace tidemark::client;
  std::error_code ignored;
  Context context{std::cout,
                  std::cerr,
                  Ink::For(STDOUT_FILENO),
                  Ink::For(STDERR_FILENO),
                  Environment::OfProcess(),
                  ::getuid(),
                  ::isatty(STDOUT_FILENO) == 1,
                  std::filesystem::read_symlink("/proc/self/exe", ignored).string()};
  CommandLine line;
  for (const auto add :
       {AddRun,        AddReport,  AddPs,       AddWhere,   AddSites,     AddSteps,
        AddLeaks,      AddJob,     AddSkew,     AddDiff,    AddHistory,   AddPostmortem,
        AddRecord,     AddExport,  AddTop,      AddEnv,     AddDoctor,    AddDetach,
        AddReleaseGpu, AddAnalyze, AddEstimate, AddVersion, AddCompletion}) {
    add(line);
  }
  return line.Run(std::vector<std::string>(argv + 1, argv + argc), context);
}
