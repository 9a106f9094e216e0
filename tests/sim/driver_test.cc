// The simulated driver behaves as the real one was measured to (README.md of this directory).
#include <sys/mman.h>
#include <sys/wait.h>

#include <vector>

#include "tests/sim/test_state.h"

namespace tidemark::sim {
namespace {

using Driver = WithContext;

CUmemPoolProps DevicePool() {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return properties;
}

CUmemAllocationProp DeviceMemory() {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return properties;
}

TEST_F(Driver, AContextCosts518MiBAndASecondOneAsMuchAgain) {
  EXPECT_EQ(with_context_ - before_, 518 * kMiB);
  CUcontext second = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 518 * kMiB);
  ASSERT_EQ(cuCtxDestroy_v2(second), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 0u);
}

TEST_F(Driver, LargeAllocationsAreRoundedUpToTwoMiB) {
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, 3 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 4 * kMiB);
  ASSERT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 0u);
}

TEST_F(Driver, SmallAllocationsShareTwoMiB) {
  std::vector<CUdeviceptr> small(64);
  for (CUdeviceptr& address : small) ASSERT_EQ(cuMemAlloc_v2(&address, 4096), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 2 * kMiB);
  for (const CUdeviceptr address : small) ASSERT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 0u);
}

TEST_F(Driver, AFreedAddressIsHandedOutAgainAtOnce) {
  CUdeviceptr first = 0;
  CUdeviceptr again = 0;
  ASSERT_EQ(cuMemAlloc_v2(&first, 3 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFree_v2(first), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc_v2(&again, 3 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(first, again);
}

TEST_F(Driver, PitchIsAMultipleOf512) {
  CUdeviceptr address = 0;
  size_t pitch = 0;
  ASSERT_EQ(cuMemAllocPitch_v2(&address, &pitch, 1000, 1000, 4), CUDA_SUCCESS);
  EXPECT_EQ(pitch, 1024u);
}

TEST_F(Driver, ManagedAndPinnedMemoryAddNothingToTheDevice) {
  CUdeviceptr managed = 0;
  void* pinned = nullptr;
  ASSERT_EQ(cuMemAllocManaged(&managed, 256 * kMiB, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuMemHostAlloc(&pinned, 64 * kMiB, 0), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 0u);
  *static_cast<char*>(pinned) = 1;  // both are real memory of this process
  *reinterpret_cast<char*>(managed) = 1;
}

TEST_F(Driver, APoolGrowsIn32MiBStepsAndShrinksAtASynchronisation) {
  CUdeviceptr five = 0;
  CUdeviceptr forty = 0;
  ASSERT_EQ(cuMemAllocAsync(&five, 5 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 32 * kMiB);
  ASSERT_EQ(cuMemAllocAsync(&forty, 40 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 64 * kMiB);
  EXPECT_EQ(forty, five + 5 * kMiB);
  ASSERT_EQ(cuMemFreeAsync(five, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(forty, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 64 * kMiB);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 0u);
}

TEST_F(Driver, AHundredMiBFromAFreshPoolCosts128) {
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAllocAsync(&address, 100 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 128 * kMiB);
  ASSERT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);  // allowed, and gives it back at once
  EXPECT_EQ(Grown(), 0u);
}

TEST_F(Driver, DestroyingAPoolLeavesItsLiveBlocksAlone) {
  const CUmemPoolProps properties = DevicePool();
  CUmemoryPool pool = nullptr;
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocFromPoolAsync(&address, 8 * kMiB, pool, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 32 * kMiB);
  EXPECT_EQ(cuMemAllocFromPoolAsync(&address, 1, pool, nullptr), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 0u);
}

TEST_F(Driver, AResetFreesTheContextsMemoryButNotStreamOrderedNorMapped) {
  CUdeviceptr plain = 0;
  CUdeviceptr ordered = 0;
  CUmemGenericAllocationHandle handle = 0;
  void* pinned = nullptr;
  const CUmemAllocationProp properties = DeviceMemory();
  ASSERT_EQ(cuMemAlloc_v2(&plain, 100 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&ordered, 100 * kMiB, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemCreate(&handle, 64 * kMiB, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemHostAlloc(&pinned, kMiB, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(Used(0) - before_, 128 * kMiB + 64 * kMiB);
  EXPECT_EQ(cuMemAlloc_v2(&plain, kMiB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);

  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree_v2(plain), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFreeAsync(ordered, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Used(0) - before_, 518 * kMiB);
  cuDevicePrimaryCtxRelease_v2(0);  // a reset does not count as a release
}

TEST_F(Driver, ThePrimaryContextEndsWithItsLastRelease) {
  CUcontext again = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
  EXPECT_EQ(again, context_);
  ASSERT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(Used(0) - before_, 518 * kMiB);
  ASSERT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(Used(0) - before_, 0u);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);  // for TearDown
}

TEST_F(Driver, MappedMemoryGoesWithTheLaterOfHandleAndMapping) {
  const CUmemAllocationProp properties = DeviceMemory();
  CUmemGenericAllocationHandle handle = 0;
  CUmemGenericAllocationHandle again = 0;
  CUdeviceptr at = 0;
  EXPECT_EQ(cuMemCreate(&handle, 2 * kMiB + 1, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemCreate(&handle, 18 * kMiB, &properties, 0), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 18 * kMiB);
  ASSERT_EQ(cuMemAddressReserve(&at, 64 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 18 * kMiB) << "reserving addresses is not memory";
  EXPECT_EQ(cuMemMap(at, 2 * kMiB, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_EQ(cuMemMap(at, 18 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(at, 18 * kMiB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(at)), CUDA_SUCCESS);
  EXPECT_EQ(again, handle);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(at, 2 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Grown(), 18 * kMiB);
  ASSERT_EQ(cuMemUnmap(at, 18 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 0u);
  EXPECT_EQ(cuMemUnmap(at, 18 * kMiB), CUDA_SUCCESS) << "nothing mapped there: no error";
  EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemAddressFree(at, 64 * kMiB), CUDA_SUCCESS);
}

TEST_F(Driver, AHostLocationCostsTheDeviceNothing) {
  CUmemAllocationProp properties = DeviceMemory();
  properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuMemCreate(&handle, 4 * kMiB, &properties, 0), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 0u);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(Driver, RaisingTheStackLimitCosts3960MiBThatNoCallShows) {
  ASSERT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 16384), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 3960 * kMiB);
  ASSERT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 0u);
}

TEST_F(Driver, GraphMemoryIsTakenAtLaunchAndKeptUntilTrimmed) {
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  params.poolProps = DevicePool();
  params.bytesize = 11 * kMiB;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddMemFreeNode(&node, graph, nullptr, 0, params.dptr), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphAddMemFreeNode(&node, graph, nullptr, 0, params.dptr), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 0u);
  ASSERT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 32 * kMiB);
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 32 * kMiB);
  ASSERT_EQ(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
  EXPECT_EQ(Grown(), 0u);
  ASSERT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(Driver, RefusalsHaveTheRealErrors) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAlloc_v2(&address, 1ULL << 50), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemFree_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(4096), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemAlloc_v2(&address, 3 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(address + 4096), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocAsync(&address, 0, nullptr), CUDA_SUCCESS);

  void* pinned = nullptr;
  EXPECT_EQ(cuMemHostAlloc(&pinned, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostAlloc(&pinned, 1ULL << 50, 0), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(cuMemAllocHost_v2(&pinned, 5000), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostUnregister(pinned), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree_v2(reinterpret_cast<CUdeviceptr>(pinned)), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);

  std::vector<char> memory(1 << 16);
  ASSERT_EQ(cuMemHostRegister_v2(memory.data(), 1 << 15, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostRegister_v2(memory.data() + (1 << 14), 1 << 15, 0),
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(cuMemHostUnregister(memory.data() + 4096), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemHostUnregister(memory.data()), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostUnregister(memory.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);

  CUmemoryPool pool = nullptr;
  ASSERT_EQ(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);

  CUipcMemHandle handle = {};
  ASSERT_EQ(cuMemAlloc_v2(&address, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
  EXPECT_EQ(cuIpcOpenMemHandle_v2(&address, handle, 1), CUDA_ERROR_INVALID_CONTEXT)
      << "a process cannot open its own handle";
}

TEST_F(Driver, WithoutACurrentContextNothingIsAllocated) {
  CUdeviceptr address = 0;
  ASSERT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc_v2(&address, kMiB), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Driver, CapacityIsSharedAndReported) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  ASSERT_EQ(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
  EXPECT_EQ(total_bytes, DeviceBytes());
  EXPECT_EQ(free_bytes, DeviceBytes() - Used(0));
  CUdeviceptr most = 0;
  CUdeviceptr more = 0;
  ASSERT_EQ(cuMemAlloc_v2(&most, free_bytes / (2 * kMiB) * (2 * kMiB)), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc_v2(&more, 4 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(Driver, EveryEntryPointByGetProcAddressIsTheExport) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  const char* const names[][2] = {
      {"cuMemAlloc", "cuMemAlloc_v2"},
      {"cuMemAllocPitch", "cuMemAllocPitch_v2"},
      {"cuMemFree", "cuMemFree_v2"},
      {"cuMemAllocManaged", "cuMemAllocManaged"},
      {"cuMemAllocHost", "cuMemAllocHost_v2"},
      {"cuMemHostAlloc", "cuMemHostAlloc"},
      {"cuMemFreeHost", "cuMemFreeHost"},
      {"cuMemHostRegister", "cuMemHostRegister_v2"},
      {"cuMemHostUnregister", "cuMemHostUnregister"},
      {"cuMemAllocAsync", "cuMemAllocAsync"},
      {"cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync"},
      {"cuMemFreeAsync", "cuMemFreeAsync"},
      {"cuMemPoolCreate", "cuMemPoolCreate"},
      {"cuMemPoolDestroy", "cuMemPoolDestroy"},
      {"cuMemPoolTrimTo", "cuMemPoolTrimTo"},
      {"cuMemCreate", "cuMemCreate"},
      {"cuMemRelease", "cuMemRelease"},
      {"cuMemMap", "cuMemMap"},
      {"cuMemUnmap", "cuMemUnmap"},
      {"cuArrayCreate", "cuArrayCreate_v2"},
      {"cuArray3DCreate", "cuArray3DCreate_v2"},
      {"cuArrayDestroy", "cuArrayDestroy"},
      {"cuMipmappedArrayCreate", "cuMipmappedArrayCreate"},
      {"cuMipmappedArrayDestroy", "cuMipmappedArrayDestroy"},
      {"cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2"},
      {"cuIpcCloseMemHandle", "cuIpcCloseMemHandle"},
      {"cuGraphAddMemAllocNode", "cuGraphAddMemAllocNode"},
      {"cuGraphAddMemFreeNode", "cuGraphAddMemFreeNode"},
      {"cuDeviceGraphMemTrim", "cuDeviceGraphMemTrim"},
      {"cuCtxDestroy", "cuCtxDestroy_v2"},
      {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2"},
      {"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2"},
      {"cuCtxSetLimit", "cuCtxSetLimit"},
  };
  for (const auto& [base, exported] : names) {
    void* function = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    ASSERT_EQ(cuGetProcAddress_v2(base, &function, 13000, 0, &status), CUDA_SUCCESS) << base;
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
    EXPECT_EQ(function, dlsym(library, exported)) << base;
  }
  for (const char* base : {"cuMemAllocAsync", "cuMemFreeAsync", "cuMemAllocFromPoolAsync"}) {
    void* function = nullptr;
    ASSERT_EQ(
        cuGetProcAddress_v2(base, &function, 13000, kGetProcAddressPerThreadDefaultStream, nullptr),
        CUDA_SUCCESS);
    EXPECT_EQ(function, dlsym(library, (std::string(base) + "_ptsz").c_str())) << base;
  }
  void* function = nullptr;
  EXPECT_EQ(cuGetProcAddress_v2("cuNoSuchCall", &function, 13000, 0, nullptr),
            CUDA_ERROR_NOT_FOUND);
}

TEST_F(Driver, AChildOfForkIsRefused) {
  CUdeviceptr address = 0;
  const pid_t child = fork();
  if (child == 0) _exit(cuMemAlloc_v2(&address, kMiB));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(Grown(), 0u);
}

TEST(DriverStart, CallsBeforeInitAreRefused) {
  EXPECT_EXIT(
      {
        CUdeviceptr address = 0;
        _exit(cuMemAlloc_v2(&address, kMiB));
      },
      testing::ExitedWithCode(CUDA_ERROR_NOT_INITIALIZED), "");
}

// Each of these runs in a process of its own, which reads the variable afresh.
CUresult FirstAllocation() {
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  if (const CUresult result = cuInit(0); result != CUDA_SUCCESS) return result;
  if (const CUresult r = cuDevicePrimaryCtxRetain(&context, 0); r != CUDA_SUCCESS) return r;
  cuCtxSetCurrent(context);
  return cuMemAlloc_v2(&address, 3 * kMiB);
}

TEST(DriverStart, ASmallDeviceHasNoRoomForAContext) {
  setenv("TIDEMARK_SIM_DEVICE_BYTES", "256MiB", 1);
  EXPECT_EXIT(_exit(FirstAllocation()), testing::ExitedWithCode(CUDA_ERROR_OUT_OF_MEMORY), "");
  unsetenv("TIDEMARK_SIM_DEVICE_BYTES");
}

TEST(DriverStart, AFaultOnDemandFailsTheNamedCallOnly) {
  setenv("TIDEMARK_SIM_FAIL", "cuMemFree_v2:1:700,cuMemAlloc_v2:1:999", 1);
  EXPECT_EXIT(_exit(FirstAllocation() == CUDA_ERROR_UNKNOWN ? 0 : 1), testing::ExitedWithCode(0),
              "");
  setenv("TIDEMARK_SIM_FAIL", "cuMemAlloc_v2:2", 1);
  EXPECT_EXIT(_exit(FirstAllocation()), testing::ExitedWithCode(CUDA_SUCCESS), "");
  unsetenv("TIDEMARK_SIM_FAIL");
}

TEST(DriverStart, AMissingInjectionFileChangesNothing) {
  setenv("CUDA_INJECTION64_PATH", "/nonexistent/libtidemark.so", 1);
  EXPECT_EXIT(_exit(FirstAllocation()), testing::ExitedWithCode(CUDA_SUCCESS), "^$");
  unsetenv("CUDA_INJECTION64_PATH");
}

TEST(DriverStart, ALibraryWithoutTheEntryChangesNothing) {
  setenv("CUDA_INJECTION64_PATH", "libm.so.6", 1);
  EXPECT_EXIT(_exit(FirstAllocation()), testing::ExitedWithCode(CUDA_SUCCESS), "^$");
  unsetenv("CUDA_INJECTION64_PATH");
}

TEST(DriverStart, TheInjectedEntryRunsOnceInsideCuInitAndMayCallTheDriver) {
  setenv("CUDA_INJECTION64_PATH", SIM_INJECTED_LIBRARY, 1);
  EXPECT_EXIT(_exit(cuInit(0) + cuInit(0)), testing::ExitedWithCode(CUDA_SUCCESS),
              "^InitializeInjection: cuInit gives 0\n$");
  unsetenv("CUDA_INJECTION64_PATH");
}

TEST(DriverStart, AnEntryThatReturnsZeroChangesNothing) {
  setenv("CUDA_INJECTION64_PATH", SIM_INJECTED_LIBRARY, 1);
  setenv("SIM_INJECTED_RESULT", "0", 1);
  EXPECT_EXIT(_exit(FirstAllocation()), testing::ExitedWithCode(CUDA_SUCCESS), "");
  unsetenv("CUDA_INJECTION64_PATH");
  unsetenv("SIM_INJECTED_RESULT");
}

}  // namespace
}  // namespace tidemark::sim
