#include "cupti_agent/environment.h"

#include <cstring>

#include "wire/handshake.h"

namespace tidemark::agent {
namespace {

// The most telling first: the room is bounded.
constexpr const char* kAllowed[] = {
    "TIDEMARK_JOB", wire::kRunVariable, "TIDEMARK_POD", "TIDEMARK_NAMESPACE", "TIDEMARK_CONTAINER",
    // torchrun, DeepSpeed, Accelerate and whatever speaks torch.distributed
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "CROSS_RANK",
    "CROSS_SIZE", "LOCAL_SIZE", "ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_DEEPSPEED",
    "ACCELERATE_USE_FSDP", "PET_NNODES", "PET_NPROC_PER_NODE",
    // Slurm
    "SLURM_JOB_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_RESTART_COUNT",
    "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_NAME",
    // Open MPI, MPICH, PMIx, Intel MPI
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_SIZE",
    "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
    // Ray, JAX, Kubeflow, Volcano
    "RAY_JOB_ID", "RAY_TRAIN_RUN_ID", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES",
    "JAX_COORDINATOR_ADDRESS", "VC_TASK_INDEX", "VK_TASK_INDEX",
    // which devices the ordinals mean
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES",
    // pod names by the downward API, under the usual names
    "POD_NAME", "POD_NAMESPACE", "POD_UID", "KUBERNETES_POD_NAME"};

}  // namespace

size_t CollectEnvironment(GetEnv get, char* to, size_t room) {
  size_t used = 0;
  for (const char* name : kAllowed) {
    const char* value = get(name);
    if (value == nullptr) continue;
    const size_t name_bytes = strlen(name);
    const size_t value_bytes = strlen(value);
    if (used + name_bytes + 1 + value_bytes + 1 > room) continue;
    memcpy(to + used, name, name_bytes);
    to[used + name_bytes] = '=';
    memcpy(to + used + name_bytes + 1, value, value_bytes + 1);
    used += name_bytes + 1 + value_bytes + 1;
  }
  return used;
}

}  // namespace tidemark::agent
