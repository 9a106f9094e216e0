// Activity buffers that CUPTI filled on an H200 (tests/fixtures/h200), decoded again and held
// against the totals that the recording script knew.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "cupti_agent/cupti/activity_records.h"

namespace tidemark::agent {
namespace {

struct Total {
  uint64_t allocations = 0;
  uint64_t allocated_bytes = 0;
  uint64_t frees = 0;
  uint64_t freed_bytes = 0;
  bool operator==(const Total&) const = default;
};

void PrintTo(const Total& t, std::ostream* out) {
  *out << t.allocations << " " << t.allocated_bytes << " " << t.frees << " " << t.freed_bytes;
}

// The script's words for kinds are CUPTI's numbers.
std::string ScriptName(wire::Kind kind) {
  switch (kind) {
    case wire::Kind::kPinned:
      return "2";
    case wire::Kind::kDevice:
      return "3";
    case wire::Kind::kManaged:
      return "5";
    case wire::Kind::kPool:
      return "pool";
    default:
      return "unexpected";
  }
}

TEST(RecordedBuffersTest, DecodeToTheScriptsTotalsToTheByte) {
  const std::string folder = TIDEMARK_FIXTURES "/h200/";
  std::ifstream file(folder + "cupti_buffers.bin", std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  ASSERT_GT(bytes.size(), 12u) << "cannot read " << folder;

  uint32_t version;
  std::memcpy(&version, bytes.data(), sizeof version);
  EXPECT_EQ(version, 130001u);
  std::map<std::string, Total> decoded;
  size_t at = sizeof version;
  while (at < bytes.size()) {
    uint64_t valid;
    ASSERT_LE(at + sizeof valid, bytes.size());
    std::memcpy(&valid, bytes.data() + at, sizeof valid);
    at += sizeof valid;
    const size_t end = at + valid;
    ASSERT_LE(end, bytes.size());
    while (at < end) {
      alignas(8) char record[256] = {};
      std::memcpy(record, bytes.data() + at, std::min(sizeof record, end - at));
      const auto* base = reinterpret_cast<const abi::CUpti_Activity*>(record);
      MemoryRecord memory;
      PoolRecord pool;
      if (DecodeMemory(base, version, &memory)) {
        Total& total = decoded[ScriptName(memory.kind)];
        ++(memory.release ? total.frees : total.allocations);
        (memory.release ? total.freed_bytes : total.allocated_bytes) += memory.bytes;
        at += abi::Memory2RecordBytes(version);
      } else {
        ASSERT_TRUE(DecodePool(base, version, &pool)) << "kind " << base->kind << " at " << at;
        at += abi::MemoryPoolRecordBytes(version);
      }
    }
    EXPECT_EQ(at, end) << "a record was longer or shorter than its layout";
  }

  std::map<std::string, Total> script;
  std::ifstream totals(folder + "cupti_totals.txt");
  std::string kind;
  Total t;
  while (totals >> kind >> t.allocations >> t.allocated_bytes >> t.frees >> t.freed_bytes) {
    script[kind] = t;
  }
  EXPECT_EQ(script.size(), 4u);
  EXPECT_EQ(decoded, script);
}

}  // namespace
}  // namespace tidemark::agent
