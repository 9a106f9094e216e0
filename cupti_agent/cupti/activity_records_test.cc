// Records built in memory with the layouts of every CUPTI since 11.0.
#include "cupti_agent/cupti/activity_records.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "cupti_agent/ledger/ledger_test_util.h"

namespace tidemark::agent {
namespace {

using namespace abi;  // NOLINT: written in CUPTI's words
using testing::LedgerTest;
using wire::Kind;
using wire::Layer;
using wire::Loss;

constexpr uint32_t kVersions[] = {13, 17, 24, 130001};
uint32_t g_version;

// Walks a buffer as cuptiActivityGetNextRecord does.
CUptiResult NextRecord(uint8_t* buffer, size_t valid_bytes, CUpti_Activity** record) {
  const size_t memory = Memory2RecordBytes(g_version);
  const size_t pool = MemoryPoolRecordBytes(g_version);
  uint8_t* next = buffer;
  if (*record != nullptr) {
    next = reinterpret_cast<uint8_t*>(*record) +
           ((*record)->kind == CUPTI_ACTIVITY_KIND_MEMORY_POOL ? pool : memory);
  }
  if (next + sizeof(CUpti_Activity) > buffer + valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

CUpti_ActivityMemory4 Memory(CUpti_ActivityMemoryOperationType operation,
                             CUpti_ActivityMemoryKind kind, uint64_t address, uint64_t bytes) {
  CUpti_ActivityMemory4 record = {};
  record.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
  record.memoryOperationType = operation;
  record.memoryKind = kind;
  record.address = address;
  record.bytes = bytes;
  record.deviceId = 2;
  record.contextId = 3;
  record.streamId = 4;
  record.timestamp = 99;
  return record;
}
constexpr auto kAllocation = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
constexpr auto kRelease = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;

template <typename Record>
const CUpti_Activity* Base(const Record& record) {
  return reinterpret_cast<const CUpti_Activity*>(&record);
}

TEST(DecodeMemoryTest, EveryFieldOfEveryVersionIsRead) {
  for (uint32_t version : kVersions) {
    CUpti_ActivityMemory4 raw = Memory(kRelease, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 0x7f00, 1234);
    raw.isAsync = 1;
    raw.memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
    raw.memoryPoolConfig.address = 0x9000;
    raw.memoryPoolConfig.pool.size = 32 << 20;
    MemoryRecord record;
    ASSERT_TRUE(DecodeMemory(Base(raw), version, &record)) << version;
    EXPECT_TRUE(record.release);
    EXPECT_EQ(record.kind, Kind::kPool);
    EXPECT_EQ(record.device, 2);
    EXPECT_EQ(record.address, 0x7f00u);
    EXPECT_EQ(record.bytes, 1234u);
    EXPECT_EQ(record.context, 3u);
    EXPECT_EQ(record.stream, 4u);
    EXPECT_EQ(record.time_ns, 99u);
    EXPECT_EQ(record.pool, 0x9000u);
    EXPECT_EQ(record.pool_bytes, 32u << 20);
  }
}

TEST(DecodeMemoryTest, KindsAreThoseOfTheCallbacks) {
  const struct {
    CUpti_ActivityMemoryKind kind;
    uint64_t address;
    Kind expected;
    int16_t device;
  } cases[] = {
      {CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 0x10, Kind::kDevice, 2},
      {CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 0, Kind::kGraph, 2},
      {CUPTI_ACTIVITY_MEMORY_KIND_PINNED, 0x10, Kind::kPinned, -1},
      {CUPTI_ACTIVITY_MEMORY_KIND_ARRAY, 0x10, Kind::kArray, 2},
      {CUPTI_ACTIVITY_MEMORY_KIND_MANAGED, 0x10, Kind::kManaged, 2},
  };
  for (const auto& c : cases) {
    const CUpti_ActivityMemory4 raw = Memory(kAllocation, c.kind, c.address, 8);
    MemoryRecord record;
    ASSERT_TRUE(DecodeMemory(Base(raw), 130001, &record));
    EXPECT_EQ(record.kind, c.expected);
    EXPECT_EQ(record.device, c.device);
    EXPECT_FALSE(record.release);
  }
}

TEST(DecodeMemoryTest, WhatIsNotUnderstoodIsRefused) {
  MemoryRecord record;
  PoolRecord pool;
  CUpti_ActivityMemory4 raw = Memory(kAllocation, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 1, 1);
  EXPECT_FALSE(DecodeMemory(Base(raw), 12, &record));  // CUPTI 10 writes no such record
  EXPECT_FALSE(DecodePool(Base(raw), 130001, &pool));
  raw.memoryKind = static_cast<CUpti_ActivityMemoryKind>(77);
  EXPECT_FALSE(DecodeMemory(Base(raw), 130001, &record));
  raw = Memory(static_cast<CUpti_ActivityMemoryOperationType>(9), CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
               1, 1);
  EXPECT_FALSE(DecodeMemory(Base(raw), 130001, &record));
  raw.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  EXPECT_FALSE(DecodeMemory(Base(raw), 130001, &record));
}

TEST(DecodePoolTest, UsedBytesAreReadOnlyWhereTheVersionWritesThem) {
  CUpti_ActivityMemoryPool3 raw = {};
  raw.kind = CUPTI_ACTIVITY_KIND_MEMORY_POOL;
  raw.memoryPoolOperationType = CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED;
  raw.deviceId = 1;
  raw.address = 0x900;
  raw.size = 64 << 20;
  raw.utilizedSize = 5;
  raw.timestamp = 7;
  PoolRecord record;
  EXPECT_FALSE(DecodePool(Base(raw), 13, &record));
  for (uint32_t version : {15u, 17u, 130001u}) {
    ASSERT_TRUE(DecodePool(Base(raw), version, &record));
    EXPECT_EQ(record.device, 1);
    EXPECT_EQ(record.pool, 0x900u);
    EXPECT_EQ(record.bytes, 64u << 20);
    EXPECT_EQ(record.used_bytes, version == 15 ? 0u : 5u);
    EXPECT_EQ(record.time_ns, 7u);
  }
}

class RecordBuffersTest : public LedgerTest {
 protected:
  void Init(uint32_t version) {
    Open();
    g_version = version;
    ASSERT_TRUE(buffers_.Init(NextRecord, version));
  }
  template <typename Record>
  void Append(uint8_t* buffer, size_t* at, const Record& record, size_t bytes) {
    memcpy(buffer + *at, &record, bytes);
    *at += bytes;
  }
  RecordBuffers buffers_;
};

TEST_F(RecordBuffersTest, BufferOfRecordsAddsUpToTheByteInEveryVersion) {
  for (uint32_t version : kVersions) {
    buffers_.~RecordBuffers();
    new (&buffers_) RecordBuffers;
    Init(version);
    uint8_t* buffer;
    size_t bytes;
    buffers_.Request(&buffer, &bytes);
    const size_t each = Memory2RecordBytes(version);
    size_t at = 0;
    for (uint64_t i = 0; i < 100; ++i) {
      Append(buffer, &at,
             Memory(kAllocation, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 0x1000 + i, 10 + i), each);
      if (i % 2 == 0) {
        Append(buffer, &at, Memory(kRelease, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 0x1000 + i, 10 + i),
               each);
      }
    }
    Append(buffer, &at, Memory(kAllocation, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC, 1, 77), each);
    Append(buffer, &at, Memory(kAllocation, static_cast<CUpti_ActivityMemoryKind>(66), 1, 1), each);
    buffers_.Complete(&ledger(), buffer, at);
    const wire::TotalsRow* row = Totals(Layer::kRecords, Kind::kDevice, 2);
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->allocated_bytes, 1000u + 4950u);
    EXPECT_EQ(row->freed_bytes, 500u + 2450u);
    EXPECT_EQ(row->allocations, 100u);
    EXPECT_EQ(row->frees, 50u);
    EXPECT_EQ(Losses(Loss::kRecordsUndecodable), 1u);
    EXPECT_EQ(buffers_.records(), 152u);
  }
}

TEST_F(RecordBuffersTest, WithAllBuffersOutRecordsAreDroppedAndCountedNeverNull) {
  Init(130001);
  std::set<uint8_t*> out;
  uint8_t* buffer;
  size_t bytes;
  for (uint32_t i = 0; i < RecordBuffers::kBuffers; ++i) {
    buffers_.Request(&buffer, &bytes);
    EXPECT_EQ(bytes, RecordBuffers::kBufferBytes);
    EXPECT_TRUE(out.insert(buffer).second);
  }
  uint8_t* discard;
  buffers_.Request(&discard, &bytes);
  ASSERT_NE(discard, nullptr);
  EXPECT_EQ(out.count(discard), 0u);
  buffers_.Complete(&ledger(), discard, 10 * Memory2RecordBytes(130001));
  EXPECT_EQ(Losses(Loss::kRecordsDropped), 10u);
  EXPECT_EQ(Totals(Layer::kRecords, Kind::kDevice, 2), nullptr);
  buffers_.Complete(&ledger(), *out.begin(), 0);
  buffers_.Request(&buffer, &bytes);
  EXPECT_EQ(buffer, *out.begin());
}

TEST_F(RecordBuffersTest, ForeignBufferAndAbsurdLengthAreSurvived) {
  Init(130001);
  uint8_t foreign[64] = {};
  buffers_.Complete(&ledger(), foreign, sizeof(foreign));
  uint8_t* buffer;
  size_t bytes;
  buffers_.Request(&buffer, &bytes);
  buffers_.Complete(&ledger(), buffer, SIZE_MAX);
  EXPECT_EQ(Totals(Layer::kRecords, Kind::kDevice, 2), nullptr);
}

TEST_F(RecordBuffersTest, TrimsOfABufferAreOneEvent) {
  Init(130001);
  uint8_t* buffer;
  size_t bytes;
  buffers_.Request(&buffer, &bytes);
  size_t at = 0;
  CUpti_ActivityMemoryPool3 pool = {};
  pool.kind = CUPTI_ACTIVITY_KIND_MEMORY_POOL;
  pool.memoryPoolOperationType = CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED;
  for (uint64_t i = 0; i < 5; ++i) {
    pool.size = i;
    Append(buffer, &at, pool, sizeof(pool));
  }
  buffers_.Complete(&ledger(), buffer, at);
  EXPECT_EQ(Used(wire::Section::kEvents), 1u);
  EXPECT_EQ(Rows<wire::EventRow>(wire::Section::kEvents)[0].code, 5);
  EXPECT_EQ(Rows<wire::EventRow>(wire::Section::kEvents)[0].bytes, 4u);
}

}  // namespace
}  // namespace tidemark::agent
