// What history is made of, as it goes to the database. Plain data.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "daemon/snapshot/node_snapshot.h"
#include "daemon/store/history_block.h"

namespace tidemark {

// Stored: never renumber.
enum class ChunkKind : uint8_t {
  kFine = 0,    // a row a second, kept for kKeepFine
  kCoarse = 1,  // a row for each ten seconds with minimum, mean and maximum, kept for kKeepCoarse
  kSteps = 2,   // a row a step: floor, end and peak; kept for kKeepCoarse
};

inline constexpr std::chrono::milliseconds kKeepFine = std::chrono::minutes(15);
inline constexpr std::chrono::milliseconds kKeepCoarse = std::chrono::hours(7 * 24);
inline constexpr uint64_t kCoarseMs = 10'000;

// The owner of what belongs to the node and not to a process: everybody may see it.
inline constexpr int64_t kNobody = -1;

struct HistoryProcess {
  ProcessKey key;  // pid 0 = the node itself
  int64_t uid = kNobody;
  int32_t rank = -1;
  std::string training_job;
  std::string reference;  // a serialised v1::ProcessRef
  uint64_t first_ms = 0;
  uint64_t ended_ms = 0;  // 0 = alive
};

struct HistoryMarkRow {
  std::string kind;
  std::string key;  // of the same mark when it is written again: a phase that goes on
  uint64_t start_ms = 0;
  uint64_t end_ms = 0;
  std::string message;  // a serialised v1::HistoryMark without its process
};

struct HistoryChunk {
  ChunkKind kind = ChunkKind::kFine;
  int64_t row = 0;  // in the database; 0 = not there yet
  bool dirty = false;
  SampleBlock block;
};

}  // namespace tidemark
