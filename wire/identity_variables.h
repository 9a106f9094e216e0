// The environment variables that tell who a process is: all that the agent (in Header::environment)
// and the daemon (from /proc/PID/environ) ever read of a job's environment. The agent's room is
// bounded, so the most telling come first.
#pragma once

#include <array>
#include <string_view>

namespace tidemark::wire {

inline constexpr auto kIdentityVariables = std::to_array<std::string_view>({
    // Tidemark's own.
    "TIDEMARK_JOB",
    "TIDEMARK_RUN",
    // Pod names, where the manifest hands them down.
    "TIDEMARK_POD",
    "TIDEMARK_NAMESPACE",
    "TIDEMARK_CONTAINER",
    "POD_NAME",
    "POD_NAMESPACE",
    // torchrun, DeepSpeed, Accelerate, Kubeflow's PyTorchJob.
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "CROSS_RANK",
    "CROSS_SIZE",
    "LOCAL_SIZE",
    "ACCELERATE_MIXED_PRECISION",
    "PET_NNODES",
    // Open MPI, PMIx, MPICH and its relatives.
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    // Slurm.
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_RESTART_COUNT",
    // Ray.
    "RAY_JOB_ID",
    "RAY_TRAIN_RUN_ID",
    // Volcano, Kubernetes indexed jobs.
    "VC_TASK_INDEX",
    "JOB_COMPLETION_INDEX",
    // JAX.
    "JAX_PROCESS_ID",
    "JAX_NUM_PROCESSES",
    "JAX_COORDINATOR_ADDRESS",
    // Which devices the process sees.
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
});

}  // namespace tidemark::wire
