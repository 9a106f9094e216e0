#include "daemon/identity/launcher.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>

namespace tidemark {
namespace {

constexpr int kMostRanks = 1 << 22;
constexpr size_t kMaxNameBytes = 128;

std::string_view Get(const Variables& variables, std::string_view name) {
  const auto it = variables.find(name);
  return it == variables.end() ? std::string_view() : std::string_view(it->second);
}

// A rank or size; -1 where it is absent or absurd.
int Number(const Variables& variables, std::string_view name) {
  const std::string_view text = Get(variables, name);
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return -1;
  return value >= 0 && value < kMostRanks ? value : -1;
}

bool Has(const Variables& variables, std::string_view name) {
  return !Get(variables, name).empty();
}

// Launchers that speak in variables of their own, innermost first.
struct OwnVariables {
  std::string_view launcher;
  std::string_view rank;
  std::string_view world_size;
  std::string_view local_rank;
  std::string_view local_world_size;
};
constexpr std::array<OwnVariables, 5> kOwnVariables = {{
    {"ompi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"jax", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "", ""},
    {"mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"pmix", "PMIX_RANK", "", "", ""},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
}};

// Who set RANK and WORLD_SIZE.
std::string_view LauncherOfRank(const Variables& variables) {
  if (Has(variables, "ACCELERATE_MIXED_PRECISION")) return "accelerate";
  if (Has(variables, "TORCHELASTIC_RUN_ID")) return "torchrun";
  if (Has(variables, "CROSS_SIZE")) return "deepspeed";
  if (Has(variables, "RAY_JOB_ID") || Has(variables, "RAY_TRAIN_RUN_ID")) return "ray";
  if (Has(variables, "VC_TASK_INDEX")) return "volcano";
  if (Has(variables, "PET_NNODES")) return "kubeflow";
  for (const OwnVariables& own : kOwnVariables) {
    if (Has(variables, own.rank)) return own.launcher;
  }
  return "environment";
}

// FNV-1a: short, and the same on every node.
uint64_t Hash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// "/slurm/uid_1000/job_123/step_0", "/system.slice/slurmstepd.scope/job_123/step_0/user".
std::string_view SlurmJobOfCgroup(std::string_view path) {
  if (path.find("slurm") == std::string_view::npos) return {};
  const size_t at = path.find("/job_");
  if (at == std::string_view::npos) return {};
  const std::string_view rest = path.substr(at + 5);
  return rest.substr(0, rest.find_first_not_of("0123456789"));
}

// Job names become labels: one printable line of bounded length.
std::string Printable(std::string_view text) {
  std::string name;
  for (const char c : text.substr(0, kMaxNameBytes)) {
    name += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '_' : c;
  }
  return name;
}

}  // namespace

Launch IdentifyLaunch(const Variables& variables) {
  Launch launch;
  launch.rank = Number(variables, "RANK");
  launch.world_size = Number(variables, "WORLD_SIZE");
  if (launch.rank >= 0 && launch.world_size > launch.rank) {
    launch.launcher = LauncherOfRank(variables);
    launch.local_rank = Number(variables, "LOCAL_RANK");
    launch.local_world_size = Number(variables, "LOCAL_WORLD_SIZE");
    if (launch.local_world_size < 0) launch.local_world_size = Number(variables, "LOCAL_SIZE");
  } else {
    launch = {};
    for (const OwnVariables& own : kOwnVariables) {
      const int rank = Number(variables, own.rank);
      if (rank < 0) continue;
      launch.launcher = own.launcher;
      launch.rank = rank;
      launch.world_size = Number(variables, own.world_size);
      launch.local_rank = Number(variables, own.local_rank);
      launch.local_world_size = Number(variables, own.local_world_size);
      break;
    }
  }
  launch.attempt = Number(variables, "TORCHELASTIC_RESTART_COUNT");
  if (launch.attempt < 0) launch.attempt = Number(variables, "SLURM_RESTART_COUNT");
  if (launch.attempt < 0) launch.attempt = 0;
  return launch;
}

JobName NameJob(const Variables& variables, std::string_view configured,
                std::string_view kubernetes_owner, std::string_view cgroup_path) {
  auto named = [](std::string_view name, std::string_view source) {
    return JobName{Printable(name), std::string(source)};
  };
  if (Has(variables, "TIDEMARK_JOB")) return named(Get(variables, "TIDEMARK_JOB"), "TIDEMARK_JOB");
  if (!configured.empty()) return named(configured, "config");
  if (!kubernetes_owner.empty()) return named(kubernetes_owner, "kubernetes");
  if (Has(variables, "SLURM_JOB_ID")) return named(Get(variables, "SLURM_JOB_ID"), "slurm");
  if (const std::string_view id = SlurmJobOfCgroup(cgroup_path); !id.empty()) {
    return named(id, "slurm");
  }
  // torchrun without --rdzv-id says "none" everywhere.
  const std::string_view elastic = Get(variables, "TORCHELASTIC_RUN_ID");
  if (!elastic.empty() && elastic != "none") return named(elastic, "torchelastic");
  if (Has(variables, "MASTER_ADDR")) {
    const std::string rendezvous = std::string(Get(variables, "MASTER_ADDR")) + ":" +
                                   std::string(Get(variables, "MASTER_PORT")) + "/" +
                                   std::string(Get(variables, "WORLD_SIZE"));
    char text[24];
    std::snprintf(text, sizeof(text), "job-%012llx",
                  static_cast<unsigned long long>(Hash(rendezvous) & 0xffffffffffff));
    return named(text, "rendezvous");
  }
  if (Has(variables, "PMIX_NAMESPACE")) return named(Get(variables, "PMIX_NAMESPACE"), "pmix");
  if (Has(variables, "JAX_COORDINATOR_ADDRESS")) {
    return named(Get(variables, "JAX_COORDINATOR_ADDRESS"), "jax");
  }
  if (Has(variables, "RAY_JOB_ID")) return named(Get(variables, "RAY_JOB_ID"), "ray");
  if (Has(variables, "TIDEMARK_RUN")) {
    // A run inside a run appends ".suffix": the outermost names the job.
    const std::string_view run = Get(variables, "TIDEMARK_RUN");
    return named(run.substr(0, run.find('.')), "tidemark run");
  }
  return {};
}

}  // namespace tidemark
