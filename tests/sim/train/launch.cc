// The launcher: one process a rank, each with the variables that the named launcher would set.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "tests/sim/train/rank.h"

namespace tidemark::simtrain {
namespace {

constexpr const char* kRankProcess = "SIMTRAIN_RANK_PROCESS";

std::vector<pid_t> children;  // read by the signal handler, complete before it is installed

void Forward(int signal) {
  for (const pid_t child : children) kill(child, signal);
}

std::map<std::string, std::string> Environment(const Options& options, int rank) {
  const std::string number = std::to_string(rank);
  const std::string world = std::to_string(options.ranks);
  const std::string port = std::to_string(29500 + getpid() % 1000);
  std::map<std::string, std::string> env = {{kRankProcess, "1"}};
  if (options.launcher == "torchrun" || options.launcher == "accelerate" ||
      options.launcher == "deepspeed") {
    env["RANK"] = number;
    env["LOCAL_RANK"] = number;
    env["WORLD_SIZE"] = world;
    env["LOCAL_WORLD_SIZE"] = world;
    env["MASTER_ADDR"] = "127.0.0.1";
    env["MASTER_PORT"] = port;
  }
  if (options.launcher == "torchrun" || options.launcher == "accelerate") {
    env["GROUP_RANK"] = "0";
    env["ROLE_RANK"] = number;
    env["ROLE_WORLD_SIZE"] = world;
    env["TORCHELASTIC_RUN_ID"] = "simtrain-" + std::to_string(getpid());
    env["TORCHELASTIC_RESTART_COUNT"] = "0";
    env["TORCHELASTIC_MAX_RESTARTS"] = "0";
  }
  if (options.launcher == "accelerate") env["ACCELERATE_MIXED_PRECISION"] = "bf16";
  if (options.launcher == "deepspeed") env["CROSS_RANK"] = "0";
  if (options.launcher == "slurm") {
    env["SLURM_JOB_ID"] = std::to_string(getpid());
    env["SLURM_STEP_ID"] = "0";
    env["SLURM_PROCID"] = number;
    env["SLURM_LOCALID"] = number;
    env["SLURM_NTASKS"] = world;
    env["SLURM_NPROCS"] = world;
    env["SLURM_NODEID"] = "0";
    env["SLURM_NNODES"] = "1";
    env["SLURM_TASKS_PER_NODE"] = world;
    env["SLURM_RESTART_COUNT"] = "0";
  }
  if (options.launcher == "ompi") {
    env["OMPI_COMM_WORLD_RANK"] = number;
    env["OMPI_COMM_WORLD_LOCAL_RANK"] = number;
    env["OMPI_COMM_WORLD_SIZE"] = world;
    env["OMPI_COMM_WORLD_LOCAL_SIZE"] = world;
    env["OMPI_COMM_WORLD_NODE_RANK"] = number;
    env["OMPI_MCA_ess_base_jobid"] = std::to_string(getpid());
  }
  // Before the libraries load, as a user would set it.
  if (options.scenario == "expandable") {
    env["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True";
  }
  return env;
}

}  // namespace

bool IsRankProcess() { return getenv(kRankProcess) != nullptr; }

int Launch(const Options& options, int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  arguments.push_back(nullptr);
  const pid_t launcher = getpid();
  for (int rank = 0; rank < options.ranks; ++rank) {
    const auto env = Environment(options, rank);
    const pid_t child = fork();
    if (child < 0) {
      perror("simtrain: fork");
      Forward(SIGTERM);
      return kFailed;
    }
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != launcher) _exit(kFailed);
      for (const auto& [name, value] : env) setenv(name.c_str(), value.c_str(), 1);
      execv("/proc/self/exe", arguments.data());
      perror("simtrain: exec");
      _exit(kFailed);
    }
    children.push_back(child);
  }
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action = {};
    action.sa_handler = &Forward;
    sigaction(signal_number, &action, nullptr);
  }
  // Each rank is waited for, also after one has failed: a test wants to see what the others did.
  int worst = kOk;
  for (size_t left = children.size(); left > 0;) {
    int status = 0;
    if (waitpid(-1, &status, 0) < 0) continue;
    --left;
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code > worst) worst = code;
  }
  return worst;
}

}  // namespace tidemark::simtrain
