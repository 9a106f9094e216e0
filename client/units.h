// Numbers as people read them. Bytes are bytes; the exact figure stands in the JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tidemark::client {

// Three significant digits, and no decimals where there is nothing to tell: "0 B", "512 B",
// "256 MiB", "1.50 GiB", "-12.5 MiB".
std::string FormatBytes(int64_t bytes);

// Like FormatBytes, with a sign: "+8 MiB", "-1.50 GiB", "0 B".
std::string FormatDelta(int64_t bytes);

// "36 x 256 MiB" where every block has that size, else "36 blocks of 1 MiB to 256 MiB".
std::string FormatBlocks(int64_t count, uint64_t min_block_bytes, uint64_t max_block_bytes);

// "+8.0 MiB/step (7.9 to 8.1)": all three in the unit that suits `middle`.
std::string FormatSlope(double middle, double low, double high, const std::string& per);

// "1,234,567".
std::string FormatCount(uint64_t count);

// "42 s", "02:40" (minutes:seconds), "3:02:40", "2 d 03:02".
std::string FormatDuration(double seconds);

// "37 %"; "<1 %" rather than 0 for something that is there.
std::string FormatShare(double share);

// "0-3,6": sorted, duplicates dropped. Empty for none.
std::string FormatRanges(std::vector<int32_t> numbers);

}  // namespace tidemark::client
