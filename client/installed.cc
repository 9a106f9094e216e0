#include "client/installed.h"

#include <filesystem>

namespace tidemark::client {
namespace {

std::filesystem::path BesideExecutable(const Context& context, const std::string& relative) {
  const auto directory = std::filesystem::path(context.executable).parent_path();
  return (directory / relative).lexically_normal();
}

}  // namespace

std::string InjectedLibrary(const Context& context) {
  const char* usual = "../lib/libtidemark_cupti.so";
  for (const char* place : {usual, "../lib/tidemark/libtidemark_cupti.so"}) {
    const auto path = BesideExecutable(context, place);
    if (std::filesystem::exists(path)) return path.string();
  }
  return BesideExecutable(context, usual).string();
}

std::string DaemonProgram(const Context& context) {
  if (const auto variable = context.environment.Get("TIDEMARK_DAEMON")) return *variable;
  return BesideExecutable(context, "tidemarkd").string();
}

}  // namespace tidemark::client
