// One row per rank and step: bytes on each side and how they changed since the step before.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

// Bytes at the end of a step; absent = not reported.
struct StepBytes {
  std::optional<int64_t> device;  // the framework's live bytes, else the driver's, over devices
  std::optional<int64_t> pinned;
  std::optional<int64_t> anon;
  std::optional<int64_t> shmem;
};

enum class Move { kNone, kDeviceToHost, kHostToDevice };

struct StepRow {
  uint64_t step = 0;
  StepBytes bytes;
  StepBytes delta;  // absent in the first row
  Move move = Move::kNone;
  int64_t moved_bytes = 0;
};

// The last `last` steps (0 = all that are kept), oldest first. Bytes count as moved between device
// and host where one side fell by at least 16 MiB and the other rose by the same within a tenth: an
// offload, or its return.
std::vector<StepRow> StepRowsOf(const v1::Process& process, size_t last);

}  // namespace tidemark::client
