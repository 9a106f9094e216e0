// The driver's calls as CUPTI would show them, made by hand: enter and exit, success and failure,
// in the orders that threads produce.
#include "cupti_agent/cupti/driver_tap.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "cupti_agent/ledger/ledger_test_util.h"

namespace tidemark::agent {
namespace {

using namespace abi;  // NOLINT: written in the driver's words
using testing::LedgerTest;
using wire::EntryPoint;
using wire::Kind;
using wire::Layer;
using wire::Loss;
using wire::Section;

CUcontext Context(int device) { return reinterpret_cast<CUcontext>(0x1000 + device * 16); }
int g_primary_active = 1;

CUptiResult FakeGetDeviceId(CUcontext context, uint32_t* device) {
  *device = (reinterpret_cast<uint64_t>(context) - 0x1000) / 16;
  return CUPTI_SUCCESS;
}
CUresult FakeAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  *base = address;
  *bytes = 4096;
  return CUDA_SUCCESS;
}
CUresult FakePrimaryState(CUdevice, unsigned*, int* active) {
  *active = g_primary_active;
  return CUDA_SUCCESS;
}

// What happens inside the driver between enter and exit; returns the call's result.
using Body = std::function<CUresult()>;

class DriverTapTest : public LedgerTest {
 protected:
  void SetUp() override {
    Open();
    cupti_.GetDeviceId = FakeGetDeviceId;
    driver_.MemGetAddressRange = FakeAddressRange;
    driver_.DevicePrimaryCtxGetState = FakePrimaryState;
    ASSERT_TRUE(tap_.Init(&cupti_, &driver_));
    g_primary_active = 1;
  }

  template <typename Params>
  void Call(CUpti_CallbackId cbid, Params& params, const Body& body, CUcontext context) {
    uint64_t correlation = 0xdeadbeef;  // CUPTI does not clear it
    CUresult result = CUDA_SUCCESS;
    CUpti_CallbackData data = {};
    data.functionParams = &params;
    data.context = context;
    data.correlationData = &correlation;
    data.callbackSite = CUPTI_API_ENTER;
    tap_.OnCallback(&ledger(), cbid, data);
    result = body();
    data.callbackSite = CUPTI_API_EXIT;
    data.functionReturnValue = &result;
    tap_.OnCallback(&ledger(), cbid, data);
  }
  template <typename Params>
  void Call(CUpti_CallbackId cbid, Params params, CUresult result = CUDA_SUCCESS, int device = 0) {
    Call(
        cbid, params, [&] { return result; }, Context(device));
  }

  void Alloc(CUdeviceptr address, size_t bytes, CUresult result = CUDA_SUCCESS, int device = 0) {
    Call(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, cuMemAlloc_v2_params{&address, bytes}, result,
         device);
  }
  void Free(CUdeviceptr address, CUresult result = CUDA_SUCCESS) {
    Call(CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, cuMemFree_v2_params{address}, result);
  }
  void HostAlloc(uint64_t address, size_t bytes) {
    void* p = reinterpret_cast<void*>(address);
    Call(CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc, cuMemHostAlloc_params{&p, bytes, 0});
  }
  void Create(uint64_t handle, size_t bytes,
              CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
              CUresult result = CUDA_SUCCESS) {
    CUmemAllocationProp prop = {};
    prop.location = location;
    CUmemGenericAllocationHandle out = handle;
    Call(CUPTI_DRIVER_TRACE_CBID_cuMemCreate, cuMemCreate_params{&out, bytes, &prop, 0}, result);
  }
  void Release(uint64_t handle, CUresult result = CUDA_SUCCESS) {
    Call(CUPTI_DRIVER_TRACE_CBID_cuMemRelease, cuMemRelease_params{handle}, result);
  }
  void Map(uint64_t address, size_t bytes, uint64_t handle) {
    Call(CUPTI_DRIVER_TRACE_CBID_cuMemMap, cuMemMap_params{address, bytes, 0, handle, 0});
  }
  void Unmap(uint64_t address, size_t bytes, CUresult result = CUDA_SUCCESS) {
    Call(CUPTI_DRIVER_TRACE_CBID_cuMemUnmap, cuMemUnmap_params{address, bytes}, result);
  }

  int64_t Live(Kind kind, int16_t device = 0) {
    const wire::TotalsRow* row = Totals(Layer::kDriver, kind, device);
    return row == nullptr ? -1 : row->live_bytes;
  }
  const wire::EntryPointRow& Calls(EntryPoint entry_point) {
    return Rows<wire::EntryPointRow>(Section::kEntryPoints)[static_cast<int>(entry_point)];
  }
  const wire::EventRow& LastEvent() {
    return Rows<wire::EventRow>(Section::kEvents)[Used(Section::kEvents) - 1];
  }

  CuptiLibrary cupti_ = {};
  CudaDriver driver_ = {};
  DriverTap tap_;
};

TEST_F(DriverTapTest, AllocationsAndFreesOfEveryKindAddUpToTheByte) {
  Alloc(0x10000, 1000);
  Alloc(0x20000, 50, CUDA_SUCCESS, 1);
  CUdeviceptr p = 0x30000;
  size_t pitch = 512;
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2,
       cuMemAllocPitch_v2_params{&p, &pitch, 100, 7, 4});
  CUdeviceptr managed = 0x40000;
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged, cuMemAllocManaged_params{&managed, 300, 1});
  HostAlloc(0x50000, 77);
  void* host = reinterpret_cast<void*>(0x60000);
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemAllocHost_v2, cuMemAllocHost_v2_params{&host, 11});
  void* registered = reinterpret_cast<void*>(0x70000);
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemHostRegister_v2,
       cuMemHostRegister_v2_params{registered, 4096, 0});
  CUdeviceptr async = 0x80000;
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync, cuMemAllocAsync_params{&async, 640, nullptr});
  CUdeviceptr ptsz = 0x90000;
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz, cuMemAllocAsync_params{&ptsz, 64, nullptr});
  EXPECT_EQ(Live(Kind::kDevice), 1000 + 512 * 7);
  EXPECT_EQ(Live(Kind::kDevice, 1), 50);
  EXPECT_EQ(Live(Kind::kManaged), 300);
  EXPECT_EQ(Live(Kind::kPinned, -1), 88);
  EXPECT_EQ(Live(Kind::kRegistered, -1), 4096);
  EXPECT_EQ(Live(Kind::kPool), 704);
  EXPECT_EQ(Calls(EntryPoint::kMemAllocPitch).requested_bytes, 700u);

  Free(0x10000);
  Free(0x30000);
  Free(0x40000);
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemFreeHost,
       cuMemFreeHost_params{reinterpret_cast<void*>(0x50000)});
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemFreeHost, cuMemFreeHost_params{host});
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemHostUnregister, cuMemHostUnregister_params{registered});
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync, cuMemFreeAsync_params{async, nullptr});
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync_ptsz, cuMemFreeAsync_params{ptsz, nullptr});
  for (Kind kind : {Kind::kDevice, Kind::kManaged, Kind::kPool}) EXPECT_EQ(Live(kind), 0);
  EXPECT_EQ(Live(Kind::kPinned, -1), 0);
  EXPECT_EQ(Live(Kind::kRegistered, -1), 0);
  EXPECT_EQ(Losses(Loss::kUnknownFree), 0u);
}

TEST_F(DriverTapTest, FailedAllocationIsAnEventWithBytesAndCodeAndBooksNothing) {
  Alloc(0, 1ull << 40, CUDA_ERROR_OUT_OF_MEMORY);
  const wire::TotalsRow* row = Totals(Layer::kDriver, Kind::kDevice, 0);
  EXPECT_EQ(row->live_bytes, 0);
  EXPECT_EQ(row->allocations, 0u);
  EXPECT_EQ(row->failed_calls, 1u);
  EXPECT_EQ(LastEvent().type, static_cast<uint16_t>(wire::EventType::kAllocationFailed));
  EXPECT_EQ(LastEvent().entry_point, static_cast<uint16_t>(EntryPoint::kMemAlloc));
  EXPECT_EQ(LastEvent().bytes, 1ull << 40);
  EXPECT_EQ(LastEvent().code, 2);
  EXPECT_EQ(Calls(EntryPoint::kMemAlloc).failed_calls, 1u);
  EXPECT_EQ(Calls(EntryPoint::kMemAlloc).requested_bytes, 1ull << 40);
}

TEST_F(DriverTapTest, ZeroBytesThatSucceedWithoutAnAddressBookNothing) {
  HostAlloc(0, 0);
  Free(0);
  EXPECT_EQ(Live(Kind::kPinned, -1), -1);
  EXPECT_EQ(Losses(Loss::kUnknownFree), 0u);
}

TEST_F(DriverTapTest, FailedFreeLeavesTheAllocationLive) {
  Alloc(0x10000, 1000);
  Free(0x10000, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(Live(Kind::kDevice), 1000);
  Free(0x10000);
  EXPECT_EQ(Live(Kind::kDevice), 0);
  EXPECT_EQ(Calls(EntryPoint::kMemFree).calls, 2u);
  EXPECT_EQ(Calls(EntryPoint::kMemFree).failed_calls, 1u);
}

TEST_F(DriverTapTest, FreeOfAnAddressFromBeforeInjectionIsCountedOnlyWhenItSucceeds) {
  Free(0x77000, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Losses(Loss::kUnknownFree), 0u);
  Free(0x77000);
  EXPECT_EQ(Losses(Loss::kUnknownFree), 1u);
  EXPECT_EQ(Totals(Layer::kDriver, Kind::kDevice, 0)->unknown_frees, 1u);
}

TEST_F(DriverTapTest, AddressGivenToAnotherThreadBeforeTheFreeReturnsStaysLive) {
  Alloc(0x10000, 1000);
  cuMemFree_v2_params params{0x10000};
  Call(
      CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, params,
      [&] {
        std::thread([&] { Alloc(0x10000, 400); }).join();
        return CUDA_SUCCESS;
      },
      Context(0));
  EXPECT_EQ(Live(Kind::kDevice), 400);
  EXPECT_EQ(Losses(Loss::kAddressCollision), 0u);
  EXPECT_EQ(Losses(Loss::kUnknownFree), 0u);
}

TEST_F(DriverTapTest, ExitOfACallThatBeganBeforeTheCallbacksWereOnIsIgnored) {
  Alloc(0x10000, 1000);
  for (uint64_t garbage : {0ull, 1ull, 7ull, 1024ull, 1025ull, ~0ull}) {
    cuMemFree_v2_params params{0x10000};
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    CUpti_CallbackData data = {};
    data.functionParams = &params;
    data.context = Context(0);
    data.correlationData = &garbage;
    data.callbackSite = CUPTI_API_EXIT;
    data.functionReturnValue = &result;
    tap_.OnCallback(&ledger(), CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, data);
  }
  EXPECT_EQ(Live(Kind::kDevice), 1000);
}

TEST_F(DriverTapTest, VmmMemoryIsLiveUntilItIsReleasedAndUnmappedInEitherOrder) {
  constexpr size_t kBytes = 2 << 20;
  Create(0x5, kBytes);
  Map(0x100000000, kBytes, 0x5);
  Release(0x5);
  EXPECT_EQ(Live(Kind::kVmm), static_cast<int64_t>(kBytes));
  Create(0x5, 2 * kBytes);  // the number is used again while the first mapping holds
  EXPECT_EQ(Live(Kind::kVmm), static_cast<int64_t>(3 * kBytes));
  Unmap(0x100000000, kBytes);
  EXPECT_EQ(Live(Kind::kVmm), static_cast<int64_t>(2 * kBytes));
  Map(0x200000000, 2 * kBytes, 0x5);
  Unmap(0x200000000, 2 * kBytes);
  EXPECT_EQ(Live(Kind::kVmm), static_cast<int64_t>(2 * kBytes));
  Release(0x5);
  EXPECT_EQ(Live(Kind::kVmm), 0);
  EXPECT_EQ(Losses(Loss::kAddressCollision), 0u);
  EXPECT_EQ(Losses(Loss::kUnknownFree), 0u);
}

TEST_F(DriverTapTest, OneUnmapEndsManyMappingsAcrossHolesAndAFailedOneEndsNone) {
  constexpr size_t kBytes = 2 << 20;
  for (uint64_t i = 0; i < 10; ++i) {
    Create(0x10 + i, kBytes);
    if (i != 4) Map(0x100000000 + i * kBytes, kBytes, 0x10 + i);
    Release(0x10 + i);
  }
  EXPECT_EQ(Live(Kind::kVmm), static_cast<int64_t>(9 * kBytes));
  Unmap(0x100000000, 10 * kBytes, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Live(Kind::kVmm), static_cast<int64_t>(9 * kBytes));
  Unmap(0x100000000, 8 * kBytes);
  EXPECT_EQ(Live(Kind::kVmm), static_cast<int64_t>(2 * kBytes));
  Unmap(0x100000000, 10 * kBytes);
  EXPECT_EQ(Live(Kind::kVmm), 0);
}

TEST_F(DriverTapTest, RetainedHandleNeedsItsOwnReleaseAndFailedReleasesCountForNothing) {
  constexpr size_t kBytes = 2 << 20;
  Create(0x5, kBytes);
  Map(0x100000000, kBytes, 0x5);
  CUmemGenericAllocationHandle again = 0x5;
  const auto retain = [&] {
    Call(CUPTI_DRIVER_TRACE_CBID_cuMemRetainAllocationHandle,
         cuMemRetainAllocationHandle_params{&again, reinterpret_cast<void*>(0x100000100)});
  };
  retain();
  Release(0x5);
  Release(0x5, CUDA_ERROR_INVALID_VALUE);
  Unmap(0x100000000, kBytes);
  EXPECT_EQ(Live(Kind::kVmm), static_cast<int64_t>(kBytes));
  Map(0x100000000, kBytes, 0x5);
  Release(0x5);
  retain();  // by the mapping alone
  Unmap(0x100000000, kBytes);
  EXPECT_EQ(Live(Kind::kVmm), static_cast<int64_t>(kBytes));
  Release(0x5);
  EXPECT_EQ(Live(Kind::kVmm), 0);
}

TEST_F(DriverTapTest, VmmOnANumaNodeIsHostMemoryAndImportedMemoryIsNobodysHere) {
  Create(0x5, 4096, {CU_MEM_LOCATION_TYPE_HOST_NUMA, 1});
  EXPECT_EQ(Live(Kind::kVmm, -1), 4096);
  CUmemGenericAllocationHandle imported = 0x6;
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemImportFromShareableHandle,
       cuMemImportFromShareableHandle_params{&imported, nullptr, CU_MEM_HANDLE_TYPE_FABRIC});
  Map(0x100000000, 4096, 0x6);
  Unmap(0x100000000, 4096);
  Release(0x6);
  EXPECT_EQ(Live(Kind::kVmm), -1);
  EXPECT_EQ(Losses(Loss::kUnknownFree), 0u);
}

TEST_F(DriverTapTest, ArraysAndMipmapsAreBookedByHandle) {
  CUDA_ARRAY_DESCRIPTOR flat = {100, 0, CU_AD_FORMAT_FLOAT, 2};
  CUarray array = reinterpret_cast<CUarray>(0x10000);
  Call(CUPTI_DRIVER_TRACE_CBID_cuArrayCreate_v2, cuArrayCreate_v2_params{&array, &flat});
  EXPECT_EQ(Live(Kind::kArray), 100 * 2 * 4);
  CUDA_ARRAY3D_DESCRIPTOR cube = {8, 4, 2, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
  CUarray array3 = reinterpret_cast<CUarray>(0x20000);
  Call(CUPTI_DRIVER_TRACE_CBID_cuArray3DCreate_v2, cuArray3DCreate_v2_params{&array3, &cube});
  EXPECT_EQ(Live(Kind::kArray), 800 + 64);
  CUmipmappedArray mipmap = reinterpret_cast<CUmipmappedArray>(0x30000);
  Call(CUPTI_DRIVER_TRACE_CBID_cuMipmappedArrayCreate,
       cuMipmappedArrayCreate_params{&mipmap, &cube, 3});
  EXPECT_EQ(Live(Kind::kArray), 864 + 64 + 8 + 2);  // 8x4x2, 4x2x1, 2x1x1
  Alloc(0x10000, 7);                                // an address that equals a handle
  Call(CUPTI_DRIVER_TRACE_CBID_cuArrayDestroy, cuArrayDestroy_params{array});
  Call(CUPTI_DRIVER_TRACE_CBID_cuMipmappedArrayDestroy, cuMipmappedArrayDestroy_params{mipmap});
  EXPECT_EQ(Live(Kind::kArray), 64);
  EXPECT_EQ(Live(Kind::kDevice), 7);
}

TEST_F(DriverTapTest, ImportedIpcMemoryIsNotOwnedAndCountsOnceHoweverOftenItIsOpened) {
  CUdeviceptr address = 0x10000;
  const auto open = [&] {
    cuIpcOpenMemHandle_v2_params params = {};
    params.pdptr = &address;
    Call(CUPTI_DRIVER_TRACE_CBID_cuIpcOpenMemHandle_v2, params);
  };
  const auto close = [&](CUresult result = CUDA_SUCCESS) {
    Call(CUPTI_DRIVER_TRACE_CBID_cuIpcCloseMemHandle, cuIpcCloseMemHandle_params{address}, result);
  };
  open();
  open();
  EXPECT_EQ(Live(Kind::kIpc), 4096);
  EXPECT_EQ(Group(wire::PeakSide::kDriverDevice, 0), nullptr);
  close();
  EXPECT_EQ(Live(Kind::kIpc), 4096);
  close(CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Live(Kind::kIpc), 4096);
  close();
  EXPECT_EQ(Live(Kind::kIpc), 0);
  open();
  EXPECT_EQ(Live(Kind::kIpc), 4096);
}

TEST_F(DriverTapTest, DestroyedContextTakesItsMemoryButNotPoolsAndVmm) {
  const CUcontext context = Context(0);
  Alloc(0x10000, 1000);
  HostAlloc(0x20000, 200);
  CUdeviceptr async = 0x30000;
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync, cuMemAllocAsync_params{&async, 30, nullptr});
  Create(0x5, 4096);
  Alloc(0x40000, 4, CUDA_SUCCESS, 1);
  Call(CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy_v2, cuCtxDestroy_v2_params{context},
       CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(Live(Kind::kDevice), 1000);
  Call(CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy_v2, cuCtxDestroy_v2_params{context});
  EXPECT_EQ(Live(Kind::kDevice), 0);
  EXPECT_EQ(Live(Kind::kPinned, -1), 0);
  EXPECT_EQ(Live(Kind::kPool), 30);
  EXPECT_EQ(Live(Kind::kVmm), 4096);
  EXPECT_EQ(Live(Kind::kDevice, 1), 4);
  EXPECT_EQ(LastEvent().type, static_cast<uint16_t>(wire::EventType::kContextGone));
  EXPECT_EQ(LastEvent().bytes, 1200u);
}

TEST_F(DriverTapTest, ContextsMayComeAndGoWithoutEnd) {
  for (int i = 0; i < 2000; ++i) {
    Alloc(0x10000, 10, CUDA_SUCCESS, i);
    Call(CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy_v2, cuCtxDestroy_v2_params{Context(i)});
    if (i >= 60) continue;  // ordinals beyond have no row of their own
    ASSERT_EQ(Live(Kind::kDevice, static_cast<int16_t>(i)), 0) << i;
  }
}

TEST_F(DriverTapTest, PrimaryContextEndsWithItsLastReleaseOrAResetAndLivesAgain) {
  CUcontext context = Context(0);
  const auto retain = [&] {
    Call(CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRetain,
         cuDevicePrimaryCtxRetain_params{&context, 0});
  };
  retain();
  Alloc(0x10000, 1000);
  Call(CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRelease_v2,
       cuDevicePrimaryCtxRelease_v2_params{0});
  EXPECT_EQ(Live(Kind::kDevice), 1000);  // others hold it still
  g_primary_active = 0;
  Call(CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRelease_v2,
       cuDevicePrimaryCtxRelease_v2_params{0});
  EXPECT_EQ(Live(Kind::kDevice), 0);

  g_primary_active = 1;
  retain();
  Alloc(0x10000, 500);
  cuDevicePrimaryCtxReset_v2_params reset{0};
  Call(
      CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset_v2, reset,
      [&] {
        Alloc(0x10000, 60);  // by another thread, in the context's next life
        return CUDA_SUCCESS;
      },
      context);
  EXPECT_EQ(Live(Kind::kDevice), 60);
  Free(0x10000);
  EXPECT_EQ(Live(Kind::kDevice), 0);
}

TEST_F(DriverTapTest, PoolAllocationIsOnThePoolsDeviceAndOutlivesThePool) {
  CUmemoryPool pool = reinterpret_cast<CUmemoryPool>(0x900);
  CUmemPoolProps props = {};
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 3};
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemPoolCreate, cuMemPoolCreate_params{&pool, &props});
  CUdeviceptr address = 0x10000;
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync,
       cuMemAllocFromPoolAsync_params{&address, 100, pool, nullptr});
  EXPECT_EQ(Live(Kind::kPool, 3), 100);
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemPoolDestroy, cuMemPoolDestroy_params{pool});
  EXPECT_EQ(Live(Kind::kPool, 3), 100);
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync, cuMemFreeAsync_params{address, nullptr});
  EXPECT_EQ(Live(Kind::kPool, 3), 0);
}

TEST_F(DriverTapTest, GraphMemoryAndRaisedLimitsAndTrimsAreSeen) {
  CUDA_MEM_ALLOC_NODE_PARAMS node = {};
  node.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  node.bytesize = 5000;
  node.dptr = 0x10000;
  Call(CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemAllocNode,
       cuGraphAddMemAllocNode_params{nullptr, nullptr, nullptr, 0, &node});
  EXPECT_EQ(Live(Kind::kGraph), 5000);
  Call(CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemFreeNode,
       cuGraphAddMemFreeNode_params{nullptr, nullptr, nullptr, 0, 0x10000});
  EXPECT_EQ(Live(Kind::kGraph), 0);
  Call(CUPTI_DRIVER_TRACE_CBID_cuCtxSetLimit, cuCtxSetLimit_params{CU_LIMIT_STACK_SIZE, 16384});
  EXPECT_EQ(LastEvent().type, static_cast<uint16_t>(wire::EventType::kLimitRaised));
  EXPECT_EQ(LastEvent().bytes, 16384u);
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemPoolTrimTo, cuMemPoolTrimTo_params{nullptr, 12});
  EXPECT_EQ(LastEvent().type, static_cast<uint16_t>(wire::EventType::kPoolTrim));
  EXPECT_EQ(LastEvent().bytes, 12u);
}

TEST_F(DriverTapTest, MissingDescriptorsOfFailedCallsAreSurvived) {
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemCreate, cuMemCreate_params{nullptr, 1, nullptr, 0},
       CUDA_ERROR_INVALID_VALUE);
  Call(CUPTI_DRIVER_TRACE_CBID_cuArrayCreate_v2, cuArrayCreate_v2_params{nullptr, nullptr},
       CUDA_ERROR_INVALID_VALUE);
  Call(CUPTI_DRIVER_TRACE_CBID_cuMipmappedArrayCreate,
       cuMipmappedArrayCreate_params{nullptr, nullptr, ~0u}, CUDA_ERROR_INVALID_VALUE);
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, cuMemAlloc_v2_params{nullptr, 10},
       CUDA_ERROR_INVALID_VALUE);
  Call(CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemAllocNode, cuGraphAddMemAllocNode_params{},
       CUDA_ERROR_INVALID_VALUE);
  Call(CUPTI_DRIVER_TRACE_CBID_cuMemPoolCreate, cuMemPoolCreate_params{nullptr, nullptr},
       CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Live(Kind::kDevice), 0);
}

}  // namespace
}  // namespace tidemark::agent
