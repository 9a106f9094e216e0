// The simulated CUPTI behaves as the real one was measured to, gaps included.
#include <cstring>
#include <vector>

#include "tests/sim/cupti_api.h"
#include "tests/sim/test_state.h"

namespace tidemark::sim {
namespace {

struct SeenCall {
  CUpti_CallbackId cbid;
  CUpti_ApiCallbackSite site;
  std::string name;
  CUcontext context;
  uint32_t correlation_id;
  uint64_t bytes;    // of cuMemAlloc_v2
  uint64_t address;  // of cuMemAlloc_v2, at exit
  int result;        // at exit
};
std::vector<SeenCall> seen;

void OnCall(void* user_data, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void* raw) {
  EXPECT_EQ(user_data, &seen);
  EXPECT_EQ(domain, CUPTI_CB_DOMAIN_DRIVER_API);
  const auto& data = *static_cast<const CUpti_CallbackData*>(raw);
  SeenCall call = {
      cbid, data.callbackSite, data.functionName, data.context, data.correlationId, 0, 0, -1};
  if (cbid == CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2) {
    const auto& params = *static_cast<const cuMemAlloc_v2_params*>(data.functionParams);
    call.bytes = params.bytesize;
    if (data.callbackSite == CUPTI_API_EXIT) call.address = *params.dptr;
  }
  if (data.callbackSite == CUPTI_API_EXIT) {
    call.result = *static_cast<int*>(data.functionReturnValue);
    EXPECT_EQ(*data.correlationData, data.correlationId) << "kept from enter to exit";
  } else {
    EXPECT_EQ(data.functionReturnValue, nullptr);
    *data.correlationData = data.correlationId;
  }
  seen.push_back(call);
}

std::vector<CUpti_ActivityMemory4> memory;
std::vector<CUpti_ActivityMemoryPool3> pools;
bool lend_null = false;

void Request(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *bytes = 1 << 16;
  *buffer = lend_null ? nullptr : static_cast<uint8_t*>(aligned_alloc(8, *bytes));
  *max_records = 0;
}

void Complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_MEMORY2) {
      memory.push_back(*reinterpret_cast<CUpti_ActivityMemory4*>(record));
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMORY_POOL) {
      pools.push_back(*reinterpret_cast<CUpti_ActivityMemoryPool3*>(record));
    }
  }
  free(buffer);
}

class Cupti : public WithContext {
 protected:
  void SetUp() override {
    WithContext::SetUp();
    seen.clear();
    memory.clear();
    pools.clear();
    ASSERT_EQ(cuptiSubscribe(&subscriber_, &OnCall, &seen), CUPTI_SUCCESS);
  }
  void TearDown() override {
    cuptiFinalize();
    WithContext::TearDown();
  }
  void Enable(CUpti_CallbackId cbid) {
    ASSERT_EQ(cuptiEnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, cbid), CUPTI_SUCCESS);
  }
  void Record() {
    ASSERT_EQ(cuptiActivityRegisterCallbacks(&Request, &Complete), CUPTI_SUCCESS);
    ASSERT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMORY2), CUPTI_SUCCESS);
    ASSERT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMORY_POOL), CUPTI_SUCCESS);
  }

  CUpti_SubscriberHandle subscriber_ = nullptr;
};

TEST_F(Cupti, TheVersionIsThatOfCuda13) {
  uint32_t version = 0;
  ASSERT_EQ(cuptiGetVersion(&version), CUPTI_SUCCESS);
  EXPECT_EQ(version, 130001u);
}

TEST_F(Cupti, ASecondSubscriberIsRefusedWithError39) {
  CUpti_SubscriberHandle second = nullptr;
  EXPECT_EQ(cuptiSubscribe(&second, &OnCall, nullptr),
            CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  ASSERT_EQ(cuptiUnsubscribe(subscriber_), CUPTI_SUCCESS);
  EXPECT_EQ(cuptiSubscribe(&second, &OnCall, &seen), CUPTI_SUCCESS);
}

TEST_F(Cupti, CallbacksComeAtEnterAndExitOfEnabledCallsOnly) {
  Enable(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, 12345), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].cbid, 243u);
  EXPECT_EQ(seen[0].site, CUPTI_API_ENTER);
  EXPECT_EQ(seen[0].name, "cuMemAlloc_v2");
  EXPECT_EQ(seen[0].bytes, 12345u);
  EXPECT_EQ(seen[0].context, context_);
  EXPECT_EQ(seen[1].site, CUPTI_API_EXIT);
  EXPECT_EQ(seen[1].result, CUDA_SUCCESS);
  EXPECT_EQ(seen[1].address, address);
  EXPECT_EQ(seen[1].correlation_id, seen[0].correlation_id);
}

TEST_F(Cupti, AFailedCallShowsItsResult) {
  Enable(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, 1ULL << 50), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1].result, CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(Cupti, HostAllocIsReportedUnderItsOldId) {
  Enable(CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc);
  Enable(CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc_v2);
  void* pinned = nullptr;
  ASSERT_EQ(cuMemHostAlloc(&pinned, 4096, 0), CUDA_SUCCESS);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].cbid, 39u);
}

TEST_F(Cupti, AfterUnsubscribeNothingIsCalled) {
  Enable(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2);
  ASSERT_EQ(cuptiUnsubscribe(subscriber_), CUPTI_SUCCESS);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, 4096), CUDA_SUCCESS);
  EXPECT_TRUE(seen.empty());
}

TEST_F(Cupti, RecordsArriveOnlyAtAFlush) {
  Record();
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, 3 * kMiB), CUDA_SUCCESS);
  EXPECT_TRUE(memory.empty());
  ASSERT_EQ(cuptiActivityFlushAll(kActivityFlagFlushForced), CUPTI_SUCCESS);
  ASSERT_EQ(memory.size(), 1u);
  EXPECT_EQ(memory[0].memoryOperationType, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION);
  EXPECT_EQ(memory[0].memoryKind, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
  EXPECT_EQ(memory[0].address, address);
  EXPECT_EQ(memory[0].bytes, 3 * kMiB);
  EXPECT_EQ(memory[0].isAsync, 0u);
  EXPECT_EQ(memory[0].PC, 0u);
  EXPECT_EQ(memory[0].source, nullptr);
}

TEST_F(Cupti, RecordsCoverTheKindsThatTheRealOnesCover) {
  Record();
  CUdeviceptr address = 0;
  size_t pitch = 0;
  void* pinned = nullptr;
  std::vector<char> memory_of_ours(8192);
  CUarray array = nullptr;
  CUmipmappedArray mipmap = nullptr;
  const CUDA_ARRAY_DESCRIPTOR flat = {100, 100, CU_AD_FORMAT_HALF, 4};
  const CUDA_ARRAY3D_DESCRIPTOR levels = {256, 256, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  ASSERT_EQ(cuMemAllocPitch_v2(&address, &pitch, 1000, 1000, 4), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocManaged(&address, 7 * kMiB, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuMemHostAlloc(&pinned, 5000, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemHostRegister_v2(memory_of_ours.data(), 8192, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuArrayCreate_v2(&array, &flat), CUDA_SUCCESS);
  ASSERT_EQ(cuMipmappedArrayCreate(&mipmap, &levels, 2), CUDA_SUCCESS);
  ASSERT_EQ(cuptiActivityFlushAll(1), CUPTI_SUCCESS);
  ASSERT_EQ(memory.size(), 7u);
  EXPECT_EQ(memory[0].bytes, 1024000u) << "pitch times height";
  EXPECT_EQ(memory[1].memoryKind, CUPTI_ACTIVITY_MEMORY_KIND_MANAGED);
  EXPECT_EQ(memory[2].memoryKind, CUPTI_ACTIVITY_MEMORY_KIND_PINNED);
  EXPECT_EQ(memory[2].bytes, 5000u);
  EXPECT_EQ(memory[3].memoryKind, CUPTI_ACTIVITY_MEMORY_KIND_PINNED) << "registered: the same kind";
  EXPECT_EQ(memory[4].memoryKind, CUPTI_ACTIVITY_MEMORY_KIND_ARRAY);
  EXPECT_EQ(memory[4].address, reinterpret_cast<uint64_t>(array));
  EXPECT_EQ(memory[4].bytes, 80000u);
  EXPECT_EQ(memory[5].bytes, 262144u) << "one record for each level of a mipmap";
  EXPECT_EQ(memory[6].bytes, 65536u);
}

TEST_F(Cupti, StreamOrderedRecordsNameTheirPool) {
  Record();
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAllocAsync(&address, 5 * kMiB, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(cuptiActivityFlushAll(1), CUPTI_SUCCESS);
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_EQ(memory[0].isAsync, 1u);
  EXPECT_EQ(memory[0].memoryPoolConfig.memoryPoolType, CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL);
  EXPECT_EQ(memory[0].memoryPoolConfig.address, address);
  EXPECT_EQ(memory[0].memoryPoolConfig.pool.size, 32 * kMiB);
  EXPECT_EQ(memory[0].memoryPoolConfig.utilizedSize, 5 * kMiB);
  ASSERT_GE(pools.size(), 1u);
  EXPECT_EQ(pools.back().memoryPoolOperationType,
            CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED);
  EXPECT_EQ(pools.back().size, 0u);
}

TEST_F(Cupti, RecordsMissMappedMemoryFailuresAndWhatAResetFrees) {
  Record();
  CUdeviceptr address = 0;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuMemCreate(&handle, 2 * kMiB, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc_v2(&address, 1ULL << 50), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(cuMemAlloc_v2(&address, 13 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  ASSERT_EQ(cuptiActivityFlushAll(1), CUPTI_SUCCESS);
  ASSERT_EQ(memory.size(), 1u) << "only the 13 MiB, and not their end";
  EXPECT_EQ(memory[0].bytes, 13 * kMiB);
}

TEST_F(Cupti, GraphMemoryHasNoAddressAndThePoolsSize) {
  Record();
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  params.bytesize = 11 * kMiB;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddMemFreeNode(&node, graph, nullptr, 0, params.dptr), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuptiActivityFlushAll(1), CUPTI_SUCCESS);
  ASSERT_EQ(memory.size(), 1u);
  EXPECT_EQ(memory[0].address, 0u);
  EXPECT_EQ(memory[0].bytes, 32 * kMiB);
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  ASSERT_EQ(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
}

TEST_F(Cupti, CorrelationIdsRepeatUnlessCallsAreTraced) {
  Record();
  CUdeviceptr address = 0;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(cuMemAlloc_v2(&address, 4096), CUDA_SUCCESS);
  ASSERT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_DRIVER), CUPTI_SUCCESS);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(cuMemAlloc_v2(&address, 4096), CUDA_SUCCESS);
  ASSERT_EQ(cuptiActivityFlushAll(1), CUPTI_SUCCESS);
  ASSERT_EQ(memory.size(), 4u);
  EXPECT_EQ(memory[0].correlationId, memory[1].correlationId);
  EXPECT_NE(memory[2].correlationId, memory[3].correlationId);
}

TEST_F(Cupti, WithoutABufferRecordsAreDroppedAndCounted) {
  lend_null = true;
  Record();
  CUdeviceptr address = 0;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cuMemAlloc_v2(&address, 4096), CUDA_SUCCESS);
  lend_null = false;
  size_t dropped = 0;
  ASSERT_EQ(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), CUPTI_SUCCESS);
  EXPECT_EQ(dropped, 3u);
  ASSERT_EQ(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), CUPTI_SUCCESS);
  EXPECT_EQ(dropped, 0u);
}

TEST_F(Cupti, AFullBufferIsDeliveredAndTheNextOneAskedFor) {
  Record();
  CUdeviceptr address = 0;
  const size_t fits = (1 << 16) / sizeof(CUpti_ActivityMemory4);
  for (size_t i = 0; i <= fits; ++i) ASSERT_EQ(cuMemAlloc_v2(&address, 512), CUDA_SUCCESS);
  EXPECT_EQ(memory.size(), fits);
  ASSERT_EQ(cuptiActivityFlushAll(1), CUPTI_SUCCESS);
  EXPECT_EQ(memory.size(), fits + 1);
}

TEST_F(Cupti, AFlushPeriodDeliversWithoutAFlush) {
  Record();
  ASSERT_EQ(cuptiActivityFlushPeriod(10), CUPTI_SUCCESS);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, 4096), CUDA_SUCCESS);
  for (int i = 0; i < 500 && memory.empty(); ++i) usleep(10000);
  EXPECT_EQ(memory.size(), 1u);
  ASSERT_EQ(cuptiActivityFlushPeriod(0), CUPTI_SUCCESS);
}

// What an older toolkit's CUPTI would write.
size_t OldRecordBytes() {
  static size_t valid = 0;
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  cuptiActivityRegisterCallbacks(
      &Request, [](CUcontext, uint32_t, uint8_t*, size_t, size_t bytes) { valid = bytes; });
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMORY2);
  cuMemAlloc_v2(&address, 4096);
  cuptiActivityFlushAll(1);
  return valid;
}

TEST(CuptiVersions, RecordLayoutsFollowTheVersion) {
  setenv("TIDEMARK_SIM_CUPTI_VERSION", "14", 1);
  EXPECT_EXIT(_exit(static_cast<int>(OldRecordBytes())),
              testing::ExitedWithCode(sizeof(CUpti_ActivityMemory2)), "");
  setenv("TIDEMARK_SIM_CUPTI_VERSION", "19", 1);
  EXPECT_EXIT(_exit(static_cast<int>(OldRecordBytes())),
              testing::ExitedWithCode(sizeof(CUpti_ActivityMemory3)), "");
  setenv("TIDEMARK_SIM_CUPTI_VERSION", "28", 1);
  EXPECT_EXIT(_exit(static_cast<int>(OldRecordBytes())),
              testing::ExitedWithCode(sizeof(CUpti_ActivityMemory4)), "");
  unsetenv("TIDEMARK_SIM_CUPTI_VERSION");
}

}  // namespace
}  // namespace tidemark::sim
