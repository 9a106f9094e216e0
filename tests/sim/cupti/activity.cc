// The record half: buffers that the client lends, records in the layout of the version, delivery at
// a flush only. Everything here is global to the process, as in the real library: whoever registers
// callbacks last gets every record.
#include <pthread.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <thread>

#pragma GCC visibility push(default)
#include "tests/sim/cupti_api.h"
#pragma GCC visibility pop
#include "tests/sim/cupti/state.h"

#define SIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace tidemark::sim {
namespace {

// CUPTI_ACTIVITY_KIND_DRIVER's record.
struct ApiRecord {
  CUpti_ActivityKind kind;
  uint32_t cbid;
  uint64_t start;
  uint64_t end;
  uint32_t process_id;
  uint32_t thread_id;
  uint32_t correlation_id;
  uint32_t return_value;
};
static_assert(sizeof(ApiRecord) == 40);

struct Activity {
  std::mutex mutex;
  CUpti_BuffersCallbackRequestFunc requested = nullptr;
  CUpti_BuffersCallbackCompleteFunc completed = nullptr;
  bool memory = false;
  bool pool = false;
  uint8_t* buffer = nullptr;  // lent by the client
  size_t bytes = 0;
  size_t used = 0;
  size_t most_records = 0;  // 0: as many as fit
  size_t records = 0;
  size_t dropped = 0;
  uint32_t period_ms = 0;
  bool worker_started = false;
};

Activity& State() {
  static auto* const state = new Activity;
  return *state;
}

std::atomic<bool> api_records{false};

// Delivers the buffer in hand. The lock is held and released around the client's function, which
// may call back into CUPTI.
void Deliver(Activity& a, std::unique_lock<std::mutex>& lock) {
  if (a.buffer == nullptr) return;
  uint8_t* buffer = a.buffer;
  const size_t bytes = a.bytes;
  const size_t used = a.used;
  const auto completed = a.completed;
  a.buffer = nullptr;
  a.used = 0;
  a.records = 0;
  lock.unlock();
  if (completed != nullptr) completed(nullptr, 0, buffer, bytes, used);
  lock.lock();
}

void Append(const void* record, size_t bytes) {
  Activity& a = State();
  std::unique_lock lock(a.mutex);
  if (a.requested == nullptr) {
    ++a.dropped;
    return;
  }
  const bool full = a.buffer != nullptr && (a.used + bytes > a.bytes ||
                                            (a.most_records != 0 && a.records >= a.most_records));
  if (full) Deliver(a, lock);
  if (a.buffer == nullptr && a.requested != nullptr) {
    const auto requested = a.requested;
    uint8_t* buffer = nullptr;
    size_t size = 0;
    size_t most = 0;
    lock.unlock();
    requested(&buffer, &size, &most);
    lock.lock();
    if (buffer != nullptr && a.buffer == nullptr) {
      a.buffer = buffer;
      a.bytes = size;
      a.used = 0;
      a.records = 0;
      a.most_records = most;
    }
  }
  if (a.buffer == nullptr || a.used + bytes > a.bytes) {
    ++a.dropped;
    return;
  }
  memcpy(a.buffer + a.used, record, bytes);
  a.used += bytes;
  ++a.records;
}

void OnMemory(const MemoryEvent& event) {
  CUpti_ActivityMemory4 record = {};  // longer than the earlier layouts, which it begins with
  record.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
  record.memoryOperationType = event.operation;
  record.memoryKind = event.kind;
  record.correlationId = CurrentCorrelationId();
  record.address = event.address;
  record.bytes = event.bytes;
  record.timestamp = NowNs();
  record.processId = static_cast<uint32_t>(getpid());
  record.deviceId = event.device;
  record.contextId = event.context_uid;
  record.streamId = event.stream;
  record.isAsync = event.is_async ? 1 : 0;
  if (event.in_pool) {
    record.memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
    record.memoryPoolConfig.address = event.pool_address;
    record.memoryPoolConfig.releaseThreshold = event.pool_threshold;
    record.memoryPoolConfig.pool.size = event.pool_bytes;
    record.memoryPoolConfig.utilizedSize = event.pool_used;
  }
  Append(&record, Memory2RecordBytes(CuptiVersion()));
}

void OnPool(const PoolEvent& event) {
  CUpti_ActivityMemoryPool3 record = {};
  record.kind = CUPTI_ACTIVITY_KIND_MEMORY_POOL;
  record.memoryPoolOperationType = event.operation;
  record.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
  record.correlationId = CurrentCorrelationId();
  record.processId = static_cast<uint32_t>(getpid());
  record.deviceId = event.device;
  record.minBytesToKeep = event.min_bytes_to_keep;
  record.address = event.address;
  record.size = event.bytes;
  record.releaseThreshold = event.threshold;
  record.timestamp = NowNs();
  record.utilizedSize = event.used;
  Append(&record, MemoryPoolRecordBytes(CuptiVersion()));
}

void RunWorker() {
  for (;;) {
    uint32_t period = 0;
    {
      std::lock_guard lock(State().mutex);
      period = State().period_ms;
    }
    usleep((period == 0 ? 100 : period) * 1000);
    std::unique_lock lock(State().mutex);
    if (State().period_ms != 0 && State().used != 0) Deliver(State(), lock);
  }
}

size_t RecordBytes(CUpti_ActivityKind kind) {
  if (kind == CUPTI_ACTIVITY_KIND_MEMORY2) return Memory2RecordBytes(CuptiVersion());
  if (kind == CUPTI_ACTIVITY_KIND_MEMORY_POOL) return MemoryPoolRecordBytes(CuptiVersion());
  return kind == CUPTI_ACTIVITY_KIND_DRIVER ? sizeof(ApiRecord) : 0;
}

CUptiResult SetKind(CUpti_ActivityKind kind, bool on) {
  ToolsInterface* tools = Tools();
  if (tools == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
  Activity& a = State();
  std::lock_guard lock(a.mutex);
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      if (Memory2RecordBytes(CuptiVersion()) == 0) return CUPTI_ERROR_INVALID_KIND;
      a.memory = on;
      tools->on_memory = &OnMemory;
      tools->memory_enabled = on ? 1 : 0;
      return CUPTI_SUCCESS;
    case CUPTI_ACTIVITY_KIND_MEMORY_POOL:
      if (MemoryPoolRecordBytes(CuptiVersion()) == 0) return CUPTI_ERROR_INVALID_KIND;
      a.pool = on;
      tools->on_pool = &OnPool;
      tools->pool_enabled = on ? 1 : 0;
      return CUPTI_SUCCESS;
    case CUPTI_ACTIVITY_KIND_DRIVER:
      api_records = on;
      RefreshCallEnables();
      return CUPTI_SUCCESS;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_MEMORY:
      return CUPTI_SUCCESS;  // accepted; the simulation has nothing to record of these
    case CUPTI_ACTIVITY_KIND_INVALID:
      return CUPTI_ERROR_INVALID_KIND;
  }
  return CUPTI_SUCCESS;
}

}  // namespace

bool ApiRecordsEnabled() { return api_records.load(std::memory_order_relaxed); }

void RecordApiCall(const ApiCall& call, uint64_t end_ns) {
  const ApiRecord record = {CUPTI_ACTIVITY_KIND_DRIVER,
                            call.cbid,
                            call.start_ns,
                            end_ns,
                            static_cast<uint32_t>(getpid()),
                            static_cast<uint32_t>(gettid()),
                            call.correlation_id,
                            static_cast<uint32_t>(*call.result)};
  Append(&record, sizeof(record));
}

void FinalizeActivity() {
  SetKind(CUPTI_ACTIVITY_KIND_MEMORY2, false);
  SetKind(CUPTI_ACTIVITY_KIND_MEMORY_POOL, false);
  SetKind(CUPTI_ACTIVITY_KIND_DRIVER, false);
  std::unique_lock lock(State().mutex);
  Deliver(State(), lock);
  State().requested = nullptr;
  State().completed = nullptr;
}

}  // namespace tidemark::sim

using namespace tidemark::sim;  // NOLINT: below are only the exported names

SIM_EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) { return SetKind(kind, true); }
SIM_EXPORT CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  return SetKind(kind, false);
}

SIM_EXPORT CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                                      CUpti_BuffersCallbackCompleteFunc completed) {
  if (requested == nullptr || completed == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  std::lock_guard lock(State().mutex);
  // A buffer that the earlier client lent is now delivered to the later one: as measured, that one
  // says "unknown buffer", and the earlier client's records are gone.
  State().requested = requested;
  State().completed = completed;
  return CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiActivityRegisterTimestampCallback(uint64_t (*)()) {
  return CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiActivityEnableAllocationSource(uint8_t) { return CUPTI_SUCCESS; }

SIM_EXPORT CUptiResult cuptiActivityGetAttribute(int, size_t*, void*) {
  return CUPTI_ERROR_NOT_SUPPORTED;
}

SIM_EXPORT CUptiResult cuptiActivitySetAttribute(int, size_t*, void*) { return CUPTI_SUCCESS; }

SIM_EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes,
                                                  CUpti_Activity** record) {
  if (buffer == nullptr || record == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  uint8_t* next = buffer;
  if (*record != nullptr) {
    auto* at = reinterpret_cast<uint8_t*>(*record);
    if (at < buffer || at >= buffer + valid_bytes) return CUPTI_ERROR_INVALID_PARAMETER;
    const size_t bytes = RecordBytes((*record)->kind);
    if (bytes == 0) return CUPTI_ERROR_INVALID_KIND;
    next = at + bytes;
  }
  if (next >= buffer + valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  if (dropped == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  std::lock_guard lock(State().mutex);
  *dropped = State().dropped;
  State().dropped = 0;
  return CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiActivityFlushAll(uint32_t) {
  if (InForkedChild()) {
    for (;;) pause();  // the real one hangs here for good
  }
  std::unique_lock lock(State().mutex);
  Deliver(State(), lock);
  return CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiActivityFlushPeriod(uint32_t milliseconds) {
  std::lock_guard lock(State().mutex);
  State().period_ms = milliseconds;
  if (milliseconds != 0 && !State().worker_started) {
    State().worker_started = true;
    std::thread(RunWorker).detach();
  }
  return CUPTI_SUCCESS;
}
