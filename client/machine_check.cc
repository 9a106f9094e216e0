#include "client/machine_check.h"

#include <dlfcn.h>

#include <filesystem>
#include <fstream>

#include "client/installed.h"
#include "client/socket_path.h"

namespace tidemark::client {
namespace {

std::string FirstLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Loading is the only honest test; neither library does anything until it is called.
bool CanLoad(const char* library) {
  void* handle = ::dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return false;
  ::dlclose(handle);
  return true;
}

MachineFinding CheckDaemon(const Context& context) {
  const auto sockets = ApiSocketCandidates("", context.environment, context.uid);
  std::string why;
  for (const std::string& socket : sockets) {
    const Result<void> answers = ProbeSocket(socket);
    if (answers) return {"daemon", true, "answers on " + socket, ""};
    why += (why.empty() ? "" : "; ") + socket + ": " + answers.error().why;
  }
  return {"daemon", false, why,
          "systemctl start tidemarkd; or watch one job with `tidemark run -- CMD`"};
}

MachineFinding CheckAgent(const Context& context) {
  const std::string library = InjectedLibrary(context);
  if (!std::filesystem::exists(library)) {
    return {"agent library", false, "no " + library, "build it with ./setup"};
  }
  return {"agent library", true, library, ""};
}

MachineFinding CheckInjection(const Context& context) {
  const auto set = context.environment.Get("CUDA_INJECTION64_PATH");
  if (!set) return {"injection", true, "CUDA_INJECTION64_PATH is free", ""};
  if (*set == InjectedLibrary(context)) return {"injection", true, "set to Tidemark's agent", ""};
  return {"injection", false, "CUDA_INJECTION64_PATH is " + *set,
          "only one library can be injected: unset it, or jobs are seen by eBPF alone"};
}

MachineFinding CheckSwitch(const Context& context, const ProcRoot& root) {
  const auto file = root.Proc().parent_path() / "etc/tidemark/off";
  if (std::filesystem::exists(file)) {
    return {"switch", false, "off for this node", "remove " + file.string()};
  }
  if (context.environment.Get("TIDEMARK") == "off") {
    return {"switch", false, "TIDEMARK=off in this environment", "unset TIDEMARK"};
  }
  return {"switch", true, "not switched off", ""};
}

MachineFinding CheckBpf(const Context& context, const ProcRoot& root) {
  const bool btf = std::filesystem::exists(root.Sys() / "kernel/btf/vmlinux");
  const std::string kernel = FirstLine(root.Proc() / "sys/kernel/osrelease");
  if (!btf) {
    return {"eBPF", false, "kernel " + kernel + " has no BTF",
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF; the agent works without"};
  }
  if (context.uid != 0) {
    return {"eBPF", false, "kernel " + kernel + " can, this user may not",
            "a private daemon of yours has no eBPF; the node's daemon, run by systemd, has"};
  }
  return {"eBPF", true, "kernel " + kernel + " with BTF", ""};
}

MachineFinding CheckLibrary(const char* name, const char* library, const char* without) {
  if (CanLoad(library)) return {name, true, std::string(library) + " loads", ""};
  return {name, false, std::string("no ") + library, without};
}

}  // namespace

std::vector<MachineFinding> CheckMachine(const Context& context, const ProcRoot& root) {
  return {CheckDaemon(context),
          CheckAgent(context),
          CheckInjection(context),
          CheckSwitch(context, root),
          CheckBpf(context, root),
          CheckLibrary("CUDA driver", "libcuda.so.1",
                       "install NVIDIA's driver; without a GPU try ./demo, which simulates one"),
          CheckLibrary("NVML", "libnvidia-ml.so.1",
                       "comes with NVIDIA's driver; without it there are no device figures")};
}

}  // namespace tidemark::client
