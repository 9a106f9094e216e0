#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "daemon/identity/container.h"
#include "daemon/identity/device_map.h"
#include "daemon/identity/launcher.h"

namespace tidemark {
namespace {

struct LauncherCase {
  const char* name;
  Variables variables;
  const char* launcher;
  int rank;
  int local_rank;
  int world_size;
  int local_world_size;
  int attempt;
};

// What each launcher sets, as seen in its own source.
const LauncherCase kLaunchers[] = {
    {"torchrun",
     {{"RANK", "5"},
      {"LOCAL_RANK", "1"},
      {"WORLD_SIZE", "8"},
      {"LOCAL_WORLD_SIZE", "4"},
      {"MASTER_ADDR", "n0"},
      {"MASTER_PORT", "29500"},
      {"TORCHELASTIC_RUN_ID", "run7"},
      {"TORCHELASTIC_RESTART_COUNT", "2"}},
     "torchrun",
     5,
     1,
     8,
     4,
     2},
    {"accelerate",
     {{"RANK", "0"},
      {"LOCAL_RANK", "0"},
      {"WORLD_SIZE", "2"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"TORCHELASTIC_RUN_ID", "none"},
      {"ACCELERATE_MIXED_PRECISION", "bf16"}},
     "accelerate",
     0,
     0,
     2,
     2,
     0},
    {"deepspeed",
     {{"RANK", "9"},
      {"LOCAL_RANK", "1"},
      {"WORLD_SIZE", "16"},
      {"CROSS_RANK", "1"},
      {"CROSS_SIZE", "2"},
      {"LOCAL_SIZE", "8"}},
     "deepspeed",
     9,
     1,
     16,
     8,
     0},
    {"ompi",
     {{"OMPI_COMM_WORLD_RANK", "3"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "4"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"PMIX_RANK", "3"}},
     "ompi",
     3,
     1,
     4,
     2,
     0},
    {"mpich",
     {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}},
     "mpich",
     2,
     0,
     4,
     2,
     0},
    {"pmix alone", {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "ns"}}, "pmix", 1, -1, -1, -1, 0},
    {"slurm",
     {{"SLURM_PROCID", "6"},
      {"SLURM_LOCALID", "2"},
      {"SLURM_NTASKS", "8"},
      {"SLURM_NTASKS_PER_NODE", "4"},
      {"SLURM_JOB_ID", "123"},
      {"SLURM_RESTART_COUNT", "1"}},
     "slurm",
     6,
     2,
     8,
     4,
     1},
    {"slurm that starts torchrun",
     {{"SLURM_PROCID", "1"},
      {"SLURM_NTASKS", "2"},
      {"RANK", "9"},
      {"LOCAL_RANK", "1"},
      {"WORLD_SIZE", "16"},
      {"TORCHELASTIC_RUN_ID", "x"}},
     "torchrun",
     9,
     1,
     16,
     -1,
     0},
    {"ray",
     {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"RAY_JOB_ID", "01000000"}},
     "ray",
     0,
     0,
     4,
     -1,
     0},
    {"kubeflow",
     {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "m"}, {"PET_NNODES", "4"}},
     "kubeflow",
     2,
     -1,
     4,
     -1,
     0},
    {"volcano",
     {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"VC_TASK_INDEX", "1"}},
     "volcano",
     1,
     -1,
     2,
     -1,
     0},
    {"jax",
     {{"JAX_PROCESS_ID", "3"}, {"JAX_NUM_PROCESSES", "4"}, {"JAX_COORDINATOR_ADDRESS", "h:1"}},
     "jax",
     3,
     -1,
     4,
     -1,
     0},
    {"by hand", {{"RANK", "1"}, {"WORLD_SIZE", "2"}}, "environment", 1, -1, 2, -1, 0},
    {"nothing", {}, "", -1, -1, -1, -1, 0},
    {"a rank beyond its world", {{"RANK", "4"}, {"WORLD_SIZE", "4"}}, "", -1, -1, -1, -1, 0},
    {"nonsense", {{"RANK", "-1"}, {"WORLD_SIZE", "1e9"}}, "", -1, -1, -1, -1, 0},
    {"overflow", {{"RANK", "99999999999999999999"}, {"WORLD_SIZE", "4"}}, "", -1, -1, -1, -1, 0},
    {"trailing text", {{"SLURM_PROCID", "3x"}}, "", -1, -1, -1, -1, 0},
};

TEST(LauncherTest, EveryLauncherIsToldByItsVariables) {
  for (const LauncherCase& c : kLaunchers) {
    SCOPED_TRACE(c.name);
    const Launch launch = IdentifyLaunch(c.variables);
    EXPECT_EQ(launch.launcher, c.launcher);
    EXPECT_EQ(launch.rank, c.rank);
    EXPECT_EQ(launch.local_rank, c.local_rank);
    EXPECT_EQ(launch.world_size, c.world_size);
    EXPECT_EQ(launch.local_world_size, c.local_world_size);
    EXPECT_EQ(launch.attempt, c.attempt);
  }
}

TEST(JobNameTest, TheFirstSourceThatExistsNamesTheJob) {
  Variables v = {
      {"TIDEMARK_JOB", "mine"},       {"SLURM_JOB_ID", "12"}, {"TORCHELASTIC_RUN_ID", "elastic"},
      {"MASTER_ADDR", "n0"},          {"MASTER_PORT", "1"},   {"WORLD_SIZE", "8"},
      {"TIDEMARK_RUN", "outer.inner"}};
  EXPECT_EQ(NameJob(v, "conf", "pod", "").name, "mine");
  v.erase("TIDEMARK_JOB");
  EXPECT_EQ(NameJob(v, "conf", "pod", "").name, "conf");
  EXPECT_EQ(NameJob(v, "", "pod", "").name, "pod");
  EXPECT_EQ(NameJob(v, "", "", "").name, "12");
  v.erase("SLURM_JOB_ID");
  EXPECT_EQ(NameJob(v, "", "", "/slurm/uid_0/job_77/step_0").name, "77");
  EXPECT_EQ(NameJob(v, "", "", "/system.slice/slurmstepd.scope/job_78/step_0/user").name, "78");
  EXPECT_EQ(NameJob(v, "", "", "/user.slice/job_79").name, "elastic");
  EXPECT_EQ(NameJob(v, "", "", "").source, "torchelastic");
  v["TORCHELASTIC_RUN_ID"] = "none";  // what torchrun says when nobody named the run
  const JobName rendezvous = NameJob(v, "", "", "");
  EXPECT_EQ(rendezvous.source, "rendezvous");
  EXPECT_EQ(rendezvous.name, NameJob(v, "", "", "").name);
  Variables other = v;
  other["MASTER_PORT"] = "2";
  EXPECT_NE(NameJob(other, "", "", "").name, rendezvous.name);
  v.erase("MASTER_ADDR");
  EXPECT_EQ(NameJob(v, "", "", "").name, "outer");
  EXPECT_EQ(NameJob({}, "", "", "").name, "");
}

TEST(JobNameTest, ANameIsOneBoundedPrintableLine) {
  const Variables v = {{"TIDEMARK_JOB", "a\nb\x1b[31m" + std::string(1000, 'x')}};
  const JobName job = NameJob(v, "", "", "");
  EXPECT_EQ(job.name.size(), 128u);
  EXPECT_EQ(job.name.substr(0, 8), "a_b_[31m");
}

const std::string kId(64, 'a');

TEST(ContainerTest, EveryRuntimesPathGivesTheId) {
  for (const std::string& path : {
           "/docker/" + kId,
           "/system.slice/docker-" + kId + ".scope",
           "/kubepods/burstable/pod1234/" + kId,
           "/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + kId + ".scope",
           "/kubepods.slice/kubepods-pod1.slice/crio-" + kId + ".scope/container",
           "/machine.slice/libpod-" + kId + ".scope",
           "/system.slice/containerd.service/kubepods-besteffort-pod1.slice:cri-containerd:" + kId,
           "/docker/" + kId + "/init",
       }) {
    EXPECT_EQ(ContainerIdOf(path), kId) << path;
  }
  for (const char* path :
       {"/", "", "/user.slice/user-0.slice/session-1.scope", "/slurm/uid_1000/job_1/step_0"}) {
    EXPECT_EQ(ContainerIdOf(path), "") << path;
  }
}

TEST(ContainerTest, PodsAreNamedByTheKubeletsLinks) {
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / ("tidemark-pods-" + std::to_string(::getpid()));
  std::filesystem::create_directories(directory);
  std::ofstream(directory / ("llama-worker-0_team-a_train-main-" + kId + ".log"));
  std::ofstream(directory / "nonsense.log");
  std::ofstream(directory / "a_b_c.log");
  const auto names = ReadPodNames(directory);
  std::filesystem::remove_all(directory);
  ASSERT_EQ(names.size(), 1u);
  const PodName& pod = names.at(kId);
  EXPECT_EQ(pod.pod, "llama-worker-0");
  EXPECT_EQ(pod.workload_namespace, "team-a");
  EXPECT_EQ(pod.container, "train-main");
  EXPECT_TRUE(ReadPodNames("/nonexistent").empty());
}

TEST(ContainerTest, PodsOfOneJobHaveOneOwner) {
  EXPECT_EQ(OwnerOfPod("llama-worker-3"), "llama");
  EXPECT_EQ(OwnerOfPod("llama-master-0"), "llama");
  EXPECT_EQ(OwnerOfPod("llama-x7k2p"), "llama");
  EXPECT_EQ(OwnerOfPod("llama-12-x7k2p"), "llama");
  EXPECT_EQ(OwnerOfPod("server-6d4b75cb6d-hr9xt"), "server");
  EXPECT_EQ(OwnerOfPod("ps-demo"), "ps-demo");
  EXPECT_EQ(OwnerOfPod(""), "");
}

const std::vector<std::string> kUuids = {"GPU-aaaa-1", "GPU-bbbb-2", "GPU-cccc-3", "GPU-cccc-4"};

TEST(DeviceMapTest, OrdinalsAndUuidsLeadToTheNodesIndex) {
  EXPECT_EQ(DeviceMap({{"CUDA_VISIBLE_DEVICES", "2,0"}}, kUuids, {}).ToNode(0), 2);
  EXPECT_EQ(DeviceMap({{"CUDA_VISIBLE_DEVICES", "2,0"}}, kUuids, {}).ToNode(1), 0);
  EXPECT_EQ(DeviceMap({{"CUDA_VISIBLE_DEVICES", "GPU-bbbb"}}, kUuids, {}).ToNode(0), 1);
  EXPECT_EQ(DeviceMap({{"CUDA_VISIBLE_DEVICES", "GPU-cccc-4,GPU-aaaa"}}, kUuids, {}).ToNode(1), 0);
  // Ambiguous, and everything behind it is not seen by CUDA either.
  EXPECT_EQ(DeviceMap({{"CUDA_VISIBLE_DEVICES", "GPU-cccc,1"}}, kUuids, {}).ToNode(0), 0);
  EXPECT_EQ(DeviceMap({}, kUuids, {}).ToNode(3), 3);
  EXPECT_EQ(DeviceMap({{"CUDA_VISIBLE_DEVICES", "3"}}, {}, {}).ToNode(0), 3);
  EXPECT_EQ(DeviceMap({{"CUDA_VISIBLE_DEVICES", "3"}}, kUuids, {}).ToNode(-1), -1);
  EXPECT_EQ(DeviceMap({{"CUDA_VISIBLE_DEVICES", "x,-1"}}, kUuids, {}).ToNode(1), 1);
}

TEST(DeviceMapTest, AContainersNumberingIsTranslatedTwice) {
  const Variables v = {{"NVIDIA_VISIBLE_DEVICES", "GPU-cccc-3,GPU-bbbb-2"},
                       {"CUDA_VISIBLE_DEVICES", "1"}};
  EXPECT_EQ(DeviceMap(v, kUuids, {}).ToNode(0), 1);
  EXPECT_EQ(DeviceMap({{"NVIDIA_VISIBLE_DEVICES", "all"}}, kUuids, {}).ToNode(2), 2);
}

TEST(DeviceMapTest, WhereBothSidesKnowOneDeviceNvmlDecides) {
  EXPECT_EQ(DeviceMap({}, kUuids, {2}).ToNode(0), 2);
  EXPECT_EQ(DeviceMap({{"CUDA_VISIBLE_DEVICES", "0,1"}}, kUuids, {3}).ToNode(0), 0);
}

}  // namespace
}  // namespace tidemark
