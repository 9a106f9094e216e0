#include "daemon/source/bpf/cuda_calls.h"

#include <gtest/gtest.h>

namespace tidemark {
namespace {

using wire::EntryPoint;

class CudaCallsTest : public testing::Test {
 protected:
  static constexpr uint64_t kContext0 = 0xc0, kContext1 = 0xc1;

  tm_cuda_call Call(uint32_t kind, uint32_t fn, std::initializer_list<uint64_t> args) {
    tm_cuda_call call = {};
    call.head.kind = kind;
    call.head.tid = 1;
    call.head.time_ns = ++time_;
    call.fn = fn;
    size_t i = 0;
    for (uint64_t arg : args) call.args[i++] = arg;
    return call;
  }
  void Enter(EntryPoint fn, std::initializer_list<uint64_t> args) {
    calls_.Apply(Call(TM_REPORT_ENTER, static_cast<uint32_t>(fn), args));
  }
  void Fail(EntryPoint fn) {
    tm_cuda_call call = Call(TM_REPORT_RETURN, static_cast<uint32_t>(fn), {});
    call.result = 1;
    calls_.Apply(call);
  }
  void Return(uint32_t fn, std::initializer_list<uint64_t> args, uint64_t out = 0,
              uint64_t bytes = 0, uint64_t location = 0, uint64_t out2 = 0) {
    tm_cuda_call call = Call(TM_REPORT_RETURN, fn, args);
    call.out[0] = out;
    call.out[1] = out2;
    call.bytes = bytes;
    call.location = location;
    calls_.Apply(call);
  }
  void Return(EntryPoint fn, std::initializer_list<uint64_t> args, uint64_t out = 0,
              uint64_t bytes = 0, uint64_t location = 0, uint64_t out2 = 0) {
    Return(static_cast<uint32_t>(fn), args, out, bytes, location, out2);
  }
  void UsePrimary(int device, uint64_t context) {
    Return(kFnPrimaryCtxRetain, {0, static_cast<uint64_t>(device)}, context);
    Return(kFnCtxSetCurrent, {context});
  }
  uint64_t Live(MemoryClass memory_class, int device) {
    auto found = calls_.ledger().totals().find({memory_class, device});
    return found == calls_.ledger().totals().end() ? 0 : found->second.live_bytes;
  }

  CudaCalls calls_{1000};
  uint64_t time_ = 100;
};

TEST_F(CudaCallsTest, AnAllocationIsOnTheDeviceOfTheThreadsContext) {
  Return(EntryPoint::kMemAlloc, {}, 0xa0, 5);
  UsePrimary(0, kContext0);
  Return(EntryPoint::kMemAlloc, {}, 0xa1, 10);
  UsePrimary(3, kContext1);
  Return(EntryPoint::kMemAlloc, {}, 0xa2, 20);
  EXPECT_EQ(Live(MemoryClass::kDevice, -1), 5u);
  EXPECT_EQ(Live(MemoryClass::kDevice, 0), 10u);
  EXPECT_EQ(Live(MemoryClass::kDevice, 3), 20u);
}

TEST_F(CudaCallsTest, PushAndPopMoveTheThreadsContext) {
  UsePrimary(0, kContext0);
  Return(kFnCtxCreate2, {0, 0, 2}, kContext1);
  Return(EntryPoint::kMemAlloc, {}, 0xa1, 10);
  Return(kFnCtxPopCurrent, {0});
  Return(EntryPoint::kMemAlloc, {}, 0xa2, 20);
  Return(kFnCtxPushCurrent, {kContext1});
  Return(EntryPoint::kMemAlloc, {}, 0xa3, 40);
  EXPECT_EQ(Live(MemoryClass::kDevice, 2), 50u);
  EXPECT_EQ(Live(MemoryClass::kDevice, 0), 20u);
}

TEST_F(CudaCallsTest, PitchedMemoryIsPitchTimesHeight) {
  Return(EntryPoint::kMemAllocPitch, {0, 0, 100, 30}, 0xa0, 3000, 0, /*pitch=*/512);
  EXPECT_EQ(Live(MemoryClass::kDevice, -1), 512u * 30);
}

TEST_F(CudaCallsTest, AFreeCountsAtEntryAndAFailedOneIsTakenBack) {
  Return(EntryPoint::kMemAlloc, {}, 0xa0, 10);
  Enter(EntryPoint::kMemFree, {0xa0});
  EXPECT_EQ(Live(MemoryClass::kDevice, -1), 0u);
  Fail(EntryPoint::kMemFree);
  EXPECT_EQ(Live(MemoryClass::kDevice, -1), 10u);
}

TEST_F(CudaCallsTest, FreeingNothingIsNoUnknownFree) {
  Enter(EntryPoint::kMemFree, {0});
  EXPECT_EQ(calls_.ledger().unknown_frees(), 0u);
}

TEST_F(CudaCallsTest, PoolMemoryIsOnThePoolsDeviceAndOutlivesThePool) {
  Return(EntryPoint::kMemPoolCreate, {}, 0xb0, 0, uint64_t{5} << 32 | 1);
  Return(EntryPoint::kMemAllocFromPoolAsync, {0, 0, 0xb0}, 0xa0, 10);
  Return(EntryPoint::kMemPoolDestroy, {0xb0});
  EXPECT_EQ(Live(MemoryClass::kPool, 5), 10u);
  Return(EntryPoint::kMemAllocAsync, {}, /*of no bytes*/ 0, 0);
  Enter(EntryPoint::kMemFreeAsync, {0xa0});
  EXPECT_EQ(Live(MemoryClass::kPool, 5), 0u);
}

TEST_F(CudaCallsTest, VmmMemoryLivesWhileAHandleOrAMappingHoldsIt) {
  Return(EntryPoint::kMemCreate, {}, 0x11, 0x200000, uint64_t{1} << 32 | 1);
  Return(EntryPoint::kMemMap, {0x7000000, 0x200000, 0, 0x11});
  Enter(EntryPoint::kMemRelease, {0x11});
  EXPECT_EQ(Live(MemoryClass::kVmm, 1), 0x200000u);
  Enter(EntryPoint::kMemUnmap, {0x7000000, 0x200000});
  EXPECT_EQ(Live(MemoryClass::kVmm, 1), 0u);
  Fail(EntryPoint::kMemUnmap);
  EXPECT_EQ(Live(MemoryClass::kVmm, 1), 0x200000u);
  Enter(EntryPoint::kMemUnmap, {0x7000000, 0x200000});
  EXPECT_EQ(Live(MemoryClass::kVmm, 1), 0u);
}

TEST_F(CudaCallsTest, HostVmmMemoryHasNoDevice) {
  Return(EntryPoint::kMemCreate, {}, 0x11, 4096, uint64_t{1} << 32 | 3);
  EXPECT_EQ(Live(MemoryClass::kVmm, -1), 4096u);
}

TEST_F(CudaCallsTest, IpcMemoryOpenedTwiceIsOneUntilClosedTwice) {
  Return(EntryPoint::kIpcOpenMemHandle, {}, 0xa0);
  Return(EntryPoint::kIpcOpenMemHandle, {}, 0xa0);
  auto count = [&] { return calls_.ledger().totals().at({MemoryClass::kIpc, -1}).live_count; };
  EXPECT_EQ(count(), 1u);
  Enter(EntryPoint::kIpcCloseMemHandle, {0xa0});
  EXPECT_EQ(count(), 1u);
  Enter(EntryPoint::kIpcCloseMemHandle, {0xa0});
  EXPECT_EQ(count(), 0u);
  Fail(EntryPoint::kIpcCloseMemHandle);
  EXPECT_EQ(count(), 1u);
}

TEST_F(CudaCallsTest, AResetEndsWhatTheContextOwnedAndLeavesPoolsVmmAndOtherDevices) {
  UsePrimary(0, kContext0);
  Return(EntryPoint::kMemAlloc, {}, 0xa0, 1);
  Return(EntryPoint::kMemHostAlloc, {}, 0xa1, 2);
  Return(EntryPoint::kMemHostRegister, {0xa2}, 0, 4);
  Return(EntryPoint::kArrayCreate, {}, 0xa3, 8);
  Return(EntryPoint::kMemAllocAsync, {}, 0xa4, 16);
  Return(EntryPoint::kMemCreate, {}, 0xa5, 32, 1);
  UsePrimary(1, kContext1);
  Return(EntryPoint::kMemAlloc, {}, 0xa6, 64);
  Return(EntryPoint::kDevicePrimaryCtxReset, {0});
  EXPECT_EQ(Live(MemoryClass::kDevice, 0), 0u);
  EXPECT_EQ(Live(MemoryClass::kPinned, -1), 0u);
  EXPECT_EQ(Live(MemoryClass::kRegistered, -1), 0u);
  EXPECT_EQ(Live(MemoryClass::kArray, 0), 0u);
  EXPECT_EQ(Live(MemoryClass::kPool, 0), 16u);
  EXPECT_EQ(Live(MemoryClass::kVmm, 0), 32u);
  EXPECT_EQ(Live(MemoryClass::kDevice, 1), 64u);
}

TEST_F(CudaCallsTest, OnlyTheLastReleaseOfAPrimaryContextEndsIt) {
  calls_.SetSeenFromStart();
  UsePrimary(0, kContext0);
  UsePrimary(0, kContext0);
  Return(EntryPoint::kMemAlloc, {}, 0xa0, 1);
  Return(EntryPoint::kDevicePrimaryCtxRelease, {0});
  EXPECT_EQ(Live(MemoryClass::kDevice, 0), 1u);
  Return(EntryPoint::kDevicePrimaryCtxRelease, {0});
  EXPECT_EQ(Live(MemoryClass::kDevice, 0), 0u);
}

TEST_F(CudaCallsTest, AttachedLateAReleaseMayNotBeTheLastAndEndsNothing) {
  UsePrimary(0, kContext0);
  Return(EntryPoint::kMemAlloc, {}, 0xa0, 1);
  Return(EntryPoint::kDevicePrimaryCtxRelease, {0});
  EXPECT_EQ(Live(MemoryClass::kDevice, 0), 1u);
}

TEST_F(CudaCallsTest, AttachedLateAResetEndsAllOfTheOneContextAndSaysWhenItCannotTell) {
  Return(EntryPoint::kMemAlloc, {}, 0xa0, 1);
  Return(EntryPoint::kDevicePrimaryCtxReset, {0});
  EXPECT_EQ(Live(MemoryClass::kDevice, -1), 0u);
  EXPECT_EQ(calls_.unsure_context_ends(), 0u);
  Return(EntryPoint::kMemAlloc, {}, 0xa0, 1);
  Return(kFnCtxSetCurrent, {kContext1});
  Return(EntryPoint::kMemAlloc, {}, 0xa1, 2);
  Return(EntryPoint::kDevicePrimaryCtxReset, {0});
  EXPECT_EQ(Live(MemoryClass::kDevice, -1), 3u);
  EXPECT_EQ(calls_.unsure_context_ends(), 1u);
}

TEST_F(CudaCallsTest, GraphMemoryEndsWithItsFreeNode) {
  Return(EntryPoint::kGraphAddMemAllocNode, {}, 0xa0, 4096, 1);
  EXPECT_EQ(Live(MemoryClass::kGraph, 0), 4096u);
  Enter(EntryPoint::kGraphAddMemFreeNode, {0, 0, 0, 0, 0xa0});
  EXPECT_EQ(Live(MemoryClass::kGraph, 0), 0u);
}

TEST_F(CudaCallsTest, NumbersOutsideTheTableAreIgnored) {
  for (uint32_t fn : {uint32_t{kCudaFnCount}, 63u, 1000u, UINT32_MAX}) Return(fn, {}, 1, 1);
  EXPECT_TRUE(calls_.ledger().totals().empty());
}

TEST_F(CudaCallsTest, ReportsFromBeforeAnExecAreDroppedWheneverTheyArrive) {
  tm_cuda_call late = Call(TM_REPORT_RETURN, 0, {});
  late.out[0] = 0xa0;
  late.bytes = 7;
  calls_.Exec(++time_);
  calls_.Apply(late);
  EXPECT_EQ(Live(MemoryClass::kDevice, -1), 0u);
}

}  // namespace
}  // namespace tidemark
