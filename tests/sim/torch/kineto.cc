// A profiler that uses CUPTI as Kineto does: subscribes once and never unsubscribes, registers its
// activity callbacks at every round, and goes on without GPU data when CUPTI is taken.
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "tests/sim/cupti_api.h"
#include "tests/sim/torch/torch_cpu.h"

namespace libkineto {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

std::mutex mutex;
std::set<uint8_t*> buffers;
ProfileResult result;
CUpti_SubscriberHandle subscriber = nullptr;

void BufferRequested(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, kBufferBytes));
  *bytes = kBufferBytes;
  *max_records = 0;
  std::lock_guard lock(mutex);
  buffers.insert(*buffer);
}

void BufferCompleted(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  {
    std::lock_guard lock(mutex);
    if (buffers.erase(buffer) == 0) {
      ++result.unknown_buffers;
      fprintf(stderr, "bufferCompleted called with unknown buffer\n");
      return;
    }
  }
  CUpti_Activity* record = nullptr;
  uint64_t api = 0;
  uint64_t memory = 0;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_DRIVER) ++api;
    if (record->kind == CUPTI_ACTIVITY_KIND_MEMORY2) ++memory;
  }
  free(buffer);
  std::lock_guard lock(mutex);
  result.api_records += api;
  result.memory_records += memory;
}

void IgnoreCallback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

}  // namespace

void startTrace() {
  result = {};
  if (subscriber == nullptr &&
      cuptiSubscribe(&subscriber, &IgnoreCallback, nullptr) != CUPTI_SUCCESS) {
    subscriber = nullptr;
    fprintf(stderr, "CUPTI initialization failed - CUDA profiler activities will be missing\n");
    return;
  }
  result.cupti = true;
  cuptiActivityRegisterCallbacks(&BufferRequested, &BufferCompleted);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_DRIVER);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMORY2);
}

ProfileResult stopTrace() {
  if (result.cupti) {
    cuptiActivityFlushAll(kActivityFlagFlushForced);
    cuptiActivityDisable(CUPTI_ACTIVITY_KIND_DRIVER);
    cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMORY2);
    const char* teardown = getenv("TEARDOWN_CUPTI");
    if (teardown != nullptr && *teardown == '1') {
      cuptiFinalize();
      subscriber = nullptr;
    }
  }
  std::lock_guard lock(mutex);
  return result;
}

}  // namespace libkineto
