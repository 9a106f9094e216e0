// The past that a recording carries beside its snapshot, and how commands choose from it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "client/command_line.h"
#include "client/connection.h"
#include "daemon/serve/export.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

// Adds what the daemon's history holds of the recording's processes since then: classes, sites,
// steps and marks. Fails as the daemon does: one without history is no reason to have no recording.
Result<void> AddPast(Connection& connection, uint64_t start_unix_ns, v1::Recording* recording);

// A recording as exports take it, of the processes that `source` chooses; `recording` must outlive
// it and its snapshot is cut down to them. What a recording without history knows of the past are
// its steps, phases and verdicts.
exports::Input InputOf(v1::Recording& recording, const SourceOptions& source);

// "90s", "15m", "2h", "7d" in nanoseconds.
Result<uint64_t> ParseSpan(const std::string& text);

}  // namespace tidemark::client
