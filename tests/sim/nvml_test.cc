// The simulated NVML: what it says of several processes, and how it fails. This program never
// starts the simulated driver itself; its children do.
#include <signal.h>
#include <sys/wait.h>

#include <vector>

#include "cupti_agent/abi/nvml_abi.h"
#include "tests/sim/test_state.h"

namespace tidemark::sim {
namespace {

using abi::kNvmlMemoryV2;
using abi::kNvmlNoInstance;
using abi::NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
using abi::NVML_ERROR_GPU_IS_LOST;
using abi::NVML_ERROR_INSUFFICIENT_SIZE;
using abi::NVML_ERROR_INVALID_ARGUMENT;
using abi::NVML_ERROR_NOT_SUPPORTED;
using abi::NVML_ERROR_UNINITIALIZED;
using abi::NVML_SUCCESS;
using abi::nvmlDevice_t;
using abi::nvmlMemory_t;
using abi::nvmlMemory_v2_t;
using abi::nvmlProcessInfo_t;

class Nvml : public testing::Test {
 protected:
  template <typename F>
  F Get(const char* name) {
    auto function = reinterpret_cast<F>(dlsym(library_, name));
    EXPECT_NE(function, nullptr) << name;
    return function;
  }

  void SetUp() override {
    library_ = dlopen(SIM_NVML_LIBRARY, RTLD_NOW);
    ASSERT_NE(library_, nullptr) << dlerror();
    ASSERT_EQ(Get<abi::NvmlInitFn>("nvmlInit_v2")(), NVML_SUCCESS);
    ASSERT_EQ(Get<abi::NvmlDeviceGetHandleByIndexFn>("nvmlDeviceGetHandleByIndex_v2")(0, &device_),
              NVML_SUCCESS);
    processes_ =
        Get<abi::NvmlDeviceGetComputeRunningProcessesFn>("nvmlDeviceGetComputeRunningProcesses_v3");
  }
  void TearDown() override {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    unsetenv("TIDEMARK_SIM_NVML");
    unsetenv("TIDEMARK_SIM_MIG");
  }

  // A process with a context on device 0 and `bytes` more; returns once it has them.
  pid_t Hold(uint64_t bytes) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      CUcontext context = nullptr;
      CUdeviceptr address = 0;
      cuInit(0);
      cuDevicePrimaryCtxRetain(&context, 0);
      cuCtxSetCurrent(context);
      if (bytes != 0) cuMemAlloc_v2(&address, bytes);
      if (write(ready[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    children_.push_back(child);
    return child;
  }

  std::vector<nvmlProcessInfo_t> Processes() {
    std::vector<nvmlProcessInfo_t> infos(16);
    unsigned count = 16;
    EXPECT_EQ(processes_(device_, &count, infos.data()), NVML_SUCCESS);
    infos.resize(count);
    return infos;
  }

  void* library_ = nullptr;
  nvmlDevice_t device_ = nullptr;
  abi::NvmlDeviceGetComputeRunningProcessesFn processes_ = nullptr;
  std::vector<pid_t> children_;
};

TEST_F(Nvml, EachProcessHasItsOwnFigureAndTheDeviceTheirSum) {
  const auto first = static_cast<unsigned>(Hold(0));
  const auto second = static_cast<unsigned>(Hold(3 * kMiB));
  const auto infos = Processes();
  ASSERT_EQ(infos.size(), 2u);
  EXPECT_EQ(infos[0].pid, first);
  EXPECT_EQ(infos[0].usedGpuMemory, 518 * kMiB);
  EXPECT_EQ(infos[0].gpuInstanceId, kNvmlNoInstance);
  EXPECT_EQ(infos[1].pid, second);
  EXPECT_EQ(infos[1].usedGpuMemory, 522 * kMiB);

  nvmlMemory_v2_t memory = {};
  const auto info = Get<abi::NvmlDeviceGetMemoryInfoV2Fn>("nvmlDeviceGetMemoryInfo_v2");
  EXPECT_EQ(info(device_, &memory), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  memory.version = kNvmlMemoryV2;
  ASSERT_EQ(info(device_, &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.used, 1040 * kMiB);
  EXPECT_EQ(memory.used + memory.free + memory.reserved, memory.total);
  nvmlMemory_t old = {};
  ASSERT_EQ(Get<abi::NvmlDeviceGetMemoryInfoFn>("nvmlDeviceGetMemoryInfo")(device_, &old),
            NVML_SUCCESS);
  EXPECT_EQ(old.used, memory.used + memory.reserved) << "the first version counts it as used";
}

TEST_F(Nvml, AKilledProcessIsGoneAndItsMemoryFree) {
  const pid_t child = Hold(64 * kMiB);
  ASSERT_EQ(Processes().size(), 1u);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  children_.clear();
  EXPECT_TRUE(Processes().empty());
  nvmlMemory_v2_t memory = {};
  memory.version = kNvmlMemoryV2;
  ASSERT_EQ(Get<abi::NvmlDeviceGetMemoryInfoV2Fn>("nvmlDeviceGetMemoryInfo_v2")(device_, &memory),
            NVML_SUCCESS);
  EXPECT_EQ(memory.used, 0u);
}

TEST_F(Nvml, TooSmallAnArrayIsToldHowMuchIsNeeded) {
  Hold(0);
  Hold(0);
  unsigned count = 1;
  nvmlProcessInfo_t info = {};
  EXPECT_EQ(processes_(device_, &count, &info), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(count, 2u);
}

TEST_F(Nvml, CanBeBlindToPidsUnsupportedOrLost) {
  Hold(0);
  setenv("TIDEMARK_SIM_NVML", "blind", 1);
  EXPECT_TRUE(Processes().empty());
  unsigned count = 0;
  setenv("TIDEMARK_SIM_NVML", "unsupported", 1);
  EXPECT_EQ(processes_(device_, &count, nullptr), NVML_ERROR_NOT_SUPPORTED);
  setenv("TIDEMARK_SIM_NVML", "lost", 1);
  EXPECT_EQ(processes_(device_, &count, nullptr), NVML_ERROR_GPU_IS_LOST);
}

TEST_F(Nvml, ADeviceCanBeSplitIntoInstances) {
  setenv("TIDEMARK_SIM_MIG", "2", 1);
  Hold(0);
  nvmlDevice_t instance = nullptr;
  const auto handle =
      Get<abi::NvmlDeviceGetMigDeviceHandleByIndexFn>("nvmlDeviceGetMigDeviceHandleByIndex");
  ASSERT_EQ(handle(device_, 1, &instance), NVML_SUCCESS);
  unsigned id = 0;
  ASSERT_EQ(Get<abi::NvmlDeviceGetGpuInstanceIdFn>("nvmlDeviceGetGpuInstanceId")(instance, &id),
            NVML_SUCCESS);
  EXPECT_EQ(id, 2u);
  const auto infos = Processes();
  ASSERT_EQ(infos.size(), 1u);
  EXPECT_EQ(infos[0].gpuInstanceId, 1u);
}

TEST_F(Nvml, RefusesWhatIsNotThere) {
  nvmlDevice_t none = nullptr;
  EXPECT_EQ(Get<abi::NvmlDeviceGetHandleByIndexFn>("nvmlDeviceGetHandleByIndex_v2")(99, &none),
            NVML_ERROR_INVALID_ARGUMENT);
  ASSERT_EQ(Get<abi::NvmlShutdownFn>("nvmlShutdown")(), NVML_SUCCESS);
  unsigned count = 0;
  EXPECT_EQ(processes_(device_, &count, nullptr), NVML_ERROR_UNINITIALIZED);
}

}  // namespace
}  // namespace tidemark::sim
