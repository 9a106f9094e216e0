// The simulated PyTorch: sizes and totals of its allocator, and that what a memory tool hooks is
// called through an import slot. This program defines the report function itself: an import slot
// that is resolved by name finds ours first, as it would find a hook.
#include <sys/syscall.h>

#include <vector>

#include "tests/sim/test_state.h"
#include "tests/sim/torch/c10.h"
#include "tests/sim/torch/simtorch.h"
#include "tests/sim/torch/torch_cpu.h"

namespace {

struct Report {
  void* ptr;
  int64_t bytes;
  size_t allocated;
  size_t reserved;
  c10::Device device;
};
std::vector<Report> reports;
std::vector<Report> out_of_memory;
std::vector<std::pair<void*, size_t>> cpu_new;
std::vector<void*> cpu_delete;

}  // namespace

namespace c10 {

void reportMemoryUsageToProfiler(void* ptr, int64_t bytes, size_t allocated, size_t reserved,
                                 Device device) {
  reports.push_back({ptr, bytes, allocated, reserved, device});
}
void reportOutOfMemoryToProfiler(int64_t bytes, size_t allocated, size_t reserved, Device device) {
  out_of_memory.push_back({nullptr, bytes, allocated, reserved, device});
}
void ProfiledCPUMemoryReporter::New(void* ptr, size_t nbytes) { cpu_new.emplace_back(ptr, nbytes); }
void ProfiledCPUMemoryReporter::Delete(void* ptr) { cpu_delete.push_back(ptr); }

}  // namespace c10

namespace tidemark::sim {
namespace {

class Torch : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(simtorch_set_device(0), 0) << simtorch_last_error();
    simtorch_empty_cache();
    ASSERT_EQ(simtorch_memory_allocated(0), 0u);
    ASSERT_EQ(simtorch_memory_reserved(0), 0u);
    reports.clear();
    out_of_memory.clear();
    cpu_new.clear();
    cpu_delete.clear();
  }
};

TEST_F(Torch, BlocksAreRoundedTo512AndSegmentsTo2And20MiBAndBeyond) {
  void* tiny = simtorch_empty(1, 0);
  EXPECT_EQ(simtorch_memory_allocated(0), 512u);
  EXPECT_EQ(simtorch_memory_reserved(0), 2 * kMiB);
  void* medium = simtorch_empty(3 * kMiB + 1, 0);
  EXPECT_EQ(simtorch_memory_allocated(0), 512 + 3 * kMiB + 512);
  EXPECT_EQ(simtorch_memory_reserved(0), 22 * kMiB);
  void* large = simtorch_empty(11 * kMiB, 0);
  EXPECT_EQ(simtorch_memory_reserved(0), 22 * kMiB) << "what is left of the 20 MiB serves it";
  void* larger = simtorch_empty(13 * kMiB, 0);
  EXPECT_EQ(simtorch_memory_reserved(0), 36 * kMiB) << "rounded up to 2 MiB";
  for (void* tensor : {tiny, medium, large, larger}) simtorch_delete(tensor, 0);
  EXPECT_EQ(simtorch_memory_allocated(0), 0u);
  EXPECT_EQ(simtorch_memory_reserved(0), 36 * kMiB) << "kept until the cache is emptied";
  simtorch_empty_cache();
  EXPECT_EQ(simtorch_memory_reserved(0), 0u);
}

TEST_F(Torch, EveryBlockIsReportedWithTheAllocatorsTotals) {
  void* a = simtorch_empty(1000, 0);
  void* b = simtorch_empty(5 * kMiB, 0);
  simtorch_delete(a, 0);
  simtorch_delete(b, 0);
  ASSERT_EQ(reports.size(), 4u);
  EXPECT_EQ(reports[0].ptr, a);
  EXPECT_EQ(reports[0].bytes, 1024);
  EXPECT_EQ(reports[0].allocated, 1024u);
  EXPECT_EQ(reports[0].reserved, 2 * kMiB);
  EXPECT_EQ(reports[0].device.type_, c10::DeviceType::CUDA);
  EXPECT_EQ(reports[0].device.index_, 0);
  EXPECT_EQ(reports[1].allocated, 1024 + 5 * kMiB);
  EXPECT_EQ(reports[2].ptr, a);
  EXPECT_EQ(reports[2].bytes, -1024);
  EXPECT_EQ(reports[3].bytes, -static_cast<int64_t>(5 * kMiB));
  EXPECT_EQ(reports[3].allocated, 0u);
}

TEST_F(Torch, AFreedBlockIsHandedOutAgain) {
  void* first = simtorch_empty(4096, 0);
  simtorch_delete(first, 0);
  void* again = simtorch_empty(4096, 0);
  EXPECT_EQ(first, again);
  simtorch_delete(again, 0);
}

TEST_F(Torch, OutOfMemoryIsReportedAfterTheCacheWasTried) {
  void* cached = simtorch_empty(64 * kMiB, 0);
  simtorch_delete(cached, 0);
  reports.clear();
  EXPECT_EQ(simtorch_empty(1ULL << 45, 0), nullptr);
  EXPECT_NE(std::string(simtorch_last_error()).find("CUDA out of memory"), std::string::npos);
  ASSERT_EQ(out_of_memory.size(), 1u);
  EXPECT_EQ(out_of_memory[0].bytes, 1LL << 45);
  EXPECT_EQ(simtorch_memory_reserved(0), 0u);
  EXPECT_TRUE(reports.empty());
}

TEST_F(Torch, CpuTensorsPassTheReporterButNotTheProfiler) {
  void* tensor = simtorch_empty(1000, -1);
  simtorch_delete(tensor, -1);
  ASSERT_EQ(cpu_new.size(), 1u);
  EXPECT_EQ(cpu_new[0].first, tensor);
  EXPECT_EQ(cpu_new[0].second, 1000u);
  EXPECT_EQ(cpu_delete, std::vector<void*>{tensor});
  EXPECT_TRUE(reports.empty());
}

TEST_F(Torch, PinnedTensorsAreRoundedToAPowerOfTwoAndCached) {
  void* first = simtorch_pin_memory(5000);
  simtorch_unpin_memory(first);
  EXPECT_EQ(simtorch_pin_memory(8192), first);
  simtorch_unpin_memory(first);
}

TEST_F(Torch, BackwardRunsOnTheEnginesThreadAndFreesActivations) {
  void* activations[] = {simtorch_empty(kMiB, 0), simtorch_empty(kMiB, 0)};
  const size_t grad_bytes[] = {512, 512};
  ASSERT_EQ(simtorch_backward(activations, grad_bytes, 2, 0, 0, 0), 0);
  EXPECT_EQ(simtorch_memory_allocated(0), 0u);
  static pid_t engine = 0;
  ASSERT_EQ(simtorch_backward_with([](void*) { engine = gettid(); }, nullptr), 0);
  EXPECT_NE(engine, 0);
  EXPECT_NE(engine, gettid());
}

TEST_F(Torch, WhatABackwardNodeThrowsReachesTheCaller) {
  const size_t bytes = 512;
  EXPECT_EQ(simtorch_backward(nullptr, &bytes, 1, 0, /*nested=*/0, /*fail=*/1), -1);
  EXPECT_EQ(std::string(simtorch_last_error()), "backward: a node failed as it was told to");
  EXPECT_EQ(simtorch_backward(nullptr, &bytes, 1, 0, /*nested=*/1, /*fail=*/1), -1);
  EXPECT_EQ(simtorch_backward(nullptr, &bytes, 1, 0, 0, 0), 0) << "and the engine goes on";
}

// Through the functions' raw ABI, as a tool that has no PyTorch headers must call them.
std::vector<std::string> scopes;

void** StartScope(void** result, const void* function) {
  static const auto name = reinterpret_cast<const char* (*)(const void*)>(
      dlsym(RTLD_DEFAULT, "_ZNK2at14RecordFunction4nameEv"));
  scopes.emplace_back(name(function));
  *result = nullptr;
  return result;
}

TEST_F(Torch, AGlobalCallbackSeesUserScopes) {
  struct RawCallback {
    void** (*start)(void**, const void*);
    void (*end)(const void*, void*);
    double probability;
    bool scopes[10];
    bool needs[3];
  };
  static_assert(sizeof(RawCallback) == 40);
  const auto add = reinterpret_cast<uint64_t (*)(RawCallback)>(
      dlsym(RTLD_DEFAULT, "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE"));
  ASSERT_NE(add, nullptr);
  RawCallback callback = {};
  callback.start = &StartScope;
  callback.probability = 1;
  callback.scopes[7] = true;
  const uint64_t handle = add(callback);
  static bool ran = false;
  simtorch_user_scope(
      "Optimizer.step#AdamW.step", [](void*) { ran = true; }, nullptr);
  EXPECT_TRUE(ran);
  EXPECT_EQ(scopes, std::vector<std::string>{"Optimizer.step#AdamW.step"});
  at::removeCallback(handle);
  simtorch_user_scope("Optimizer.step#AdamW.step", nullptr, nullptr);
  EXPECT_EQ(scopes.size(), 1u);
}

TEST_F(Torch, TheProfilerSeesEveryDriverCall) {
  simtorch_profiler_start();
  for (int i = 0; i < 3; ++i) simtorch_cuda_free(simtorch_cuda_malloc(3 * kMiB));
  int64_t api = 0;
  int64_t memory = 0;
  simtorch_profiler_stop(&api, &memory);
  EXPECT_EQ(api, 6);
  EXPECT_EQ(memory, 6);
}

int ExpandableSegmentsUseMappedMemory() {
  setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", 1);
  if (simtorch_set_device(0) != 0) return 1;
  void* a = simtorch_empty(3 * kMiB, 0);
  if (simtorch_memory_reserved(0) != 20 * kMiB) return 2;
  void* b = simtorch_empty(30 * kMiB, 0);  // the tail grows: one segment
  if (simtorch_memory_reserved(0) != 40 * kMiB) return 3;
  if (static_cast<char*>(b) != static_cast<char*>(a) + 3 * kMiB) return 4;
  simtorch_delete(b, 0);
  simtorch_empty_cache();
  if (simtorch_memory_reserved(0) != 20 * kMiB) return 5;
  simtorch_delete(a, 0);
  simtorch_empty_cache();
  return simtorch_memory_reserved(0) == 0 ? 0 : 6;
}

TEST(TorchStart, ExpandableSegmentsGrowAtTheirEnd) {
  EXPECT_EXIT(_exit(ExpandableSegmentsUseMappedMemory()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tidemark::sim
