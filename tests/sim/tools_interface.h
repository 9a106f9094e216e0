// How the simulated CUPTI hangs on to the simulated driver. The real libraries do this through
// private tables; here the driver exports one structure (tidemark_sim_tools) that CUPTI fills in.
#pragma once

#include <atomic>
#include <cstdint>

#include "cupti_agent/abi/cupti_abi.h"

namespace tidemark::sim {

inline constexpr uint32_t kMaxCbid = 1024;

// One side of a driver call. Lives on the caller's stack from enter to exit.
struct ApiCall {
  abi::CUpti_CallbackId cbid;
  const char* name;
  const void* params;
  abi::CUresult* result;
  abi::CUcontext context;
  uint32_t context_uid;
  uint32_t correlation_id;    // CUPTI's
  uint64_t correlation_data;  // the subscriber's
  uint64_t start_ns;
};

// Something that a MEMORY2 record tells.
struct MemoryEvent {
  abi::CUpti_ActivityMemoryOperationType operation;
  abi::CUpti_ActivityMemoryKind kind;
  uint64_t address;
  uint64_t bytes;
  uint32_t device;
  uint32_t context_uid;
  uint32_t stream;
  bool is_async;
  bool in_pool;
  uint64_t pool_address;
  uint64_t pool_bytes;
  uint64_t pool_used;
  uint64_t pool_threshold;
};

// Something that a MEMORY_POOL record tells.
struct PoolEvent {
  abi::CUpti_ActivityMemoryPoolOperationType operation;
  uint32_t device;
  uint64_t address;
  uint64_t bytes;
  uint64_t used;
  uint64_t threshold;
  uint64_t min_bytes_to_keep;
};

struct ToolsInterface {
  // Read at every call by the driver, written by CUPTI.
  std::atomic<uint8_t> call_enabled[kMaxCbid];  // a callback or an API record is wanted
  std::atomic<uint8_t> memory_enabled;
  std::atomic<uint8_t> pool_enabled;

  std::atomic<void (*)(ApiCall*, bool exit)> on_call;
  std::atomic<void (*)(const MemoryEvent&)> on_memory;
  std::atomic<void (*)(const PoolEvent&)> on_pool;
  std::atomic<void (*)(abi::CUpti_CallbackIdResource, abi::CUcontext)> on_resource;

  // Read by CUPTI, set by the driver.
  uint32_t (*context_uid)(abi::CUcontext);
  int (*context_device)(abi::CUcontext);  // -1 when it is not a context
};

}  // namespace tidemark::sim

extern "C" __attribute__((visibility("default"))) tidemark::sim::ToolsInterface tidemark_sim_tools;
