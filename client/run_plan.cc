#include "client/run_plan.h"

#include <array>
#include <charconv>

#include "wire/handshake.h"

namespace tidemark::client {
namespace {

constexpr char kInjection[] = "CUDA_INJECTION64_PATH";

struct LauncherVariables {
  const char* name;
  const char* launch;
  const char* step;  // refines `launch`; may be null
  const char* local_rank;
};
// In this order: Open MPI under Slurm sets both.
constexpr std::array<LauncherVariables, 4> kLaunchers = {{
    {"ompi", "PMIX_NAMESPACE", nullptr, "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"mpich", "PMI_ID_FD", nullptr, "MPI_LOCALRANKID"},
    {"slurm", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_LOCALID"},
    {"torchrun", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "LOCAL_RANK"},
}};

int ParseRank(const std::string& text) {
  int rank = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  return error == std::errc() && end == text.data() + text.size() && rank >= 0 ? rank : -1;
}

// TIDEMARK_RUN travels in a small table of the agent's, so names stay short and plain.
std::string Plain(const std::string& text) {
  std::string plain;
  for (const char c : text.substr(0, 48)) {
    const bool kept = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      c == '-' || c == '_';
    plain += kept ? c : '-';
  }
  return plain;
}

}  // namespace

LaunchPlace PlaceOf(const Environment& environment) {
  for (const LauncherVariables& launcher : kLaunchers) {
    const auto rank = environment.Get(launcher.local_rank);
    if (!rank || ParseRank(*rank) < 0) continue;
    LaunchPlace place;
    place.local_rank = ParseRank(*rank);
    place.launch = launcher.name;
    if (const auto launch = environment.Get(launcher.launch)) place.launch += "-" + Plain(*launch);
    if (launcher.step != nullptr) {
      if (const auto step = environment.Get(launcher.step)) place.launch += "-" + Plain(*step);
    }
    return place;
  }
  return {};
}

RunPlan PlanRun(const Environment& environment, const std::string& agent_socket,
                const std::string& library, bool library_exists, bool asked_for_output,
                const std::string& random_run) {
  RunPlan plan;
  plan.job = environment;
  const LaunchPlace place = PlaceOf(environment);
  const auto outer = environment.Get(wire::kRunVariable);
  if (outer) {
    // A name that begins with the outer's, so that the outer run's report holds these ranks too.
    plan.run = *outer + "." + random_run;
    if (!asked_for_output) {
      plan.reports = false;
      plan.why_not = "inside another `tidemark run`, which reports";
    }
  } else if (place.local_rank >= 0) {
    plan.run = place.launch;
    if (place.local_rank > 0) {
      plan.reports = false;
      plan.why_not = "local rank 0 reports for all ranks of this node";
    }
  } else {
    plan.run = random_run;
  }
  plan.job.Set(wire::kRunVariable, plan.run);
  plan.job.Set(wire::kAgentSocketVariable, agent_socket);

  const auto already = environment.Get(kInjection);
  if (already && *already != library) {
    plan.injects = false;
    plan.notes.push_back("CUDA_INJECTION64_PATH is already set to " + *already +
                         ": left alone, so Tidemark's agent is not in the job; only eBPF and the "
                         "driver's figures see it");
  } else if (!library_exists) {
    plan.injects = false;
    plan.notes.push_back("there is no " + library +
                         ": the job runs without Tidemark's agent; build it with ./setup");
  } else {
    plan.job.Set(kInjection, library);
  }
  return plan;
}

bool BelongsTo(const std::string& process_run, const std::string& run) {
  return process_run == run || process_run.rfind(run + ".", 0) == 0;
}

}  // namespace tidemark::client
