#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace tidemark::agent::testing {

template <typename Row>
std::vector<Row> RegionCopy::Rows(wire::Section section) const {
  const wire::SectionEntry& entry = header_.sections[static_cast<uint32_t>(section) - 1];
  std::vector<Row> rows(std::min(entry.used, entry.capacity));
  const auto bytes = static_cast<ssize_t>(rows.size() * sizeof(Row));
  if (pread(fd_, rows.data(), static_cast<size_t>(bytes), static_cast<off_t>(entry.offset)) !=
      bytes) {
    rows.clear();
  }
  return rows;
}

template <typename Predicate>
bool Eventually(Predicate done, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return done();
}

}  // namespace tidemark::agent::testing
