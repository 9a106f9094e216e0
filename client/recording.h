// What `tidemark run -o FILE` keeps: a magic line and one v1::Recording. Files come from anywhere,
// so reading trusts nothing; a damaged, cut or newer file is an error with a reason.
//
//   "TIDEMARK-RECORDING\n" | version, 4 bytes little endian | length, 8 bytes | CRC-32, 4 bytes |
//   the message
#pragma once

#include <string>

#include "base/result.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

inline constexpr uint32_t kRecordingVersion = 1;

// Written beside `path` and renamed, so that a reader never sees half of one.
Result<void> WriteRecording(const v1::Recording& recording, const std::string& path);

Result<v1::Recording> ReadRecording(const std::string& path);

}  // namespace tidemark::client
