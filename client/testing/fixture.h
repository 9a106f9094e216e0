// Snapshots made by hand, for tests: small, round numbers that a reader can check in the head.
#pragma once

#include <cstdint>
#include <string>

#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client::testing {

inline constexpr int64_t kMiB = 1 << 20;
inline constexpr int64_t kGiB = 1 << 30;

inline constexpr uint64_t kLeakingSite = 0xc0ffee;
inline constexpr uint64_t kWeightsSite = 0xbeef;
inline constexpr uint64_t kMaskSite = 0x3a5c;

// A living rank of job "job-1" on GPU `rank`, observed, without any memory yet.
v1::Process* AddRank(v1::Snapshot& snapshot, int rank, int world_size);

// A fw_live site of Python frames, blamed at `file`:`line` `function`, with a torch frame below.
v1::Site* AddSite(v1::Process& process, uint64_t id, const std::string& file, uint32_t line,
                  const std::string& function, int64_t count, int64_t block_bytes);

// Adds a total that torch or the driver counted; keeps the matching peak in step.
v1::ClassTotal* AddTotal(v1::Process& process, const std::string& memory_class,
                         const std::string& witness, int64_t live_bytes, int64_t peak_bytes);

// One node, no process.
v1::Snapshot EmptySnapshot();

// The thread's first case: every rank keeps 8 MiB a step, 120 steps, on 1 GiB of weights.
v1::Snapshot LeakingSnapshot(int ranks = 4);
// The same without the leak.
v1::Snapshot SteadySnapshot(int ranks = 4);
// The thread's second case: 36 masks of 256 MiB on every rank, parameters of 8 GiB sharded over the
// ranks, no step made.
v1::Snapshot MasksSnapshot(int ranks);

v1::Recording RecordingOf(const v1::Snapshot& snapshot, int exit_code = 0);

}  // namespace tidemark::client::testing
