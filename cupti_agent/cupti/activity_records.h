// CUPTI's activity records MEMORY2 and MEMORY_POOL, decoded by the layout that the version in front
// of us writes, and the static buffers they arrive in.
//
// Records are a second count of what callbacks see: they have no VMM memory, no failures, and not
// what a reset frees (tests/sim/README.md), and they arrive only when buffers are flushed. They are
// booked under Layer::kRecords, so that a reader can compare.
//
// Threads: CUPTI calls Request and Complete from any thread, also from its own. A buffer belongs to
// CUPTI from Request to Complete, and is never taken back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cupti_agent/abi/cupti_abi.h"
#include "cupti_agent/ledger/ledger.h"

namespace tidemark::agent {

struct MemoryRecord {
  bool release = false;
  wire::Kind kind = wire::Kind::kDevice;
  int16_t device = -1;   // -1 = host memory
  uint64_t address = 0;  // handle for arrays, 0 for graph memory
  uint64_t bytes = 0;
  uint32_t context = 0;
  uint32_t stream = 0;
  uint64_t time_ns = 0;
  uint64_t pool = 0;        // base address; 0 = none
  uint64_t pool_bytes = 0;  // of a local pool
};

struct PoolRecord {
  abi::CUpti_ActivityMemoryPoolOperationType operation = {};
  int16_t device = -1;
  uint64_t pool = 0;
  uint64_t bytes = 0;       // of the pool after the operation
  uint64_t used_bytes = 0;  // 0 where the version does not write it
  uint64_t time_ns = 0;
};

// Bytes of a module's static variables (CUPTI reports those of every module that is loaded, as
// MEMORY2 records of kinds 6 and 7); 0 = the record is something else.
uint64_t ModuleStaticBytes(const abi::CUpti_Activity* record, uint32_t cupti_version);

// False when the record is not of that kind, or of a shape this agent does not know.
bool DecodeMemory(const abi::CUpti_Activity* record, uint32_t cupti_version, MemoryRecord* out);
bool DecodePool(const abi::CUpti_Activity* record, uint32_t cupti_version, PoolRecord* out);

class RecordBuffers {
 public:
  static constexpr uint32_t kBuffers = 16;
  static constexpr size_t kBufferBytes = 64 << 10;

  bool Init(abi::CuptiActivityGetNextRecordFn next_record, uint32_t cupti_version);

  // Never null: when all buffers are out, CUPTI gets a discard buffer whose records are counted as
  // dropped (a null buffer crashes CUPTI before 12.9).
  void Request(uint8_t** buffer, size_t* bytes);
  // `ledger` may be null: then the buffer is only taken back.
  void Complete(Ledger* ledger, uint8_t* buffer, size_t valid_bytes);

  uint64_t records() const { return records_.load(std::memory_order_relaxed); }
  uint64_t ResidentBytes() const;

 private:
  void Book(Ledger* ledger, uint8_t* buffer, size_t valid_bytes);

  abi::CuptiActivityGetNextRecordFn next_record_ = nullptr;
  uint32_t cupti_version_ = 0;
  uint8_t* memory_ = nullptr;  // kBuffers buffers and the discard buffer
  std::atomic<bool> out_[kBuffers] = {};
  std::atomic<uint64_t> records_{0};
};

}  // namespace tidemark::agent
