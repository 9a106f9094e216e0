// What `tidemark run -o FILE` and `tidemark record` keep: a magic line and one v1::Recording. Files
// come from anywhere, so reading trusts nothing; a damaged, cut or newer file is an error with a
// reason, and a small file that unpacks to a huge one is refused.
//
//   "TIDEMARK-RECORDING\n" | version, 4 bytes little endian | length, 8 bytes | CRC-32, 4 bytes |
//   the message
//
// Length and checksum are of what follows in the file. Since version 2 that is packed with zlib.
#pragma once

#include <string>

#include "base/result.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

inline constexpr uint32_t kRecordingVersion = 2;

// What a file may unpack to.
inline constexpr uint64_t kMostRecordingBytes = 512ull << 20;

// Written beside `path` and renamed, so that a reader never sees half of one.
Result<void> WriteRecording(const v1::Recording& recording, const std::string& path);

Result<v1::Recording> ReadRecording(const std::string& path);

}  // namespace tidemark::client
