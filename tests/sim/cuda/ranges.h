// Address space by ranges: who owns which part of a window, and which part is backed by memory.
// Addresses are handed out again at once after a free, as the real driver does: a ledger that books
// frees late must trip over that here too.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace tidemark::sim {

constexpr uint64_t RoundUp(uint64_t bytes, uint64_t step) {
  return (bytes + step - 1) / step * step;
}

// Best fit over one window, lowest address among equals; neighbours merge on free.
class Ranges {
 public:
  Ranges(uint64_t base, uint64_t bytes) { AddFree(base, bytes); }

  // The address of `bytes` bytes, or 0 when no hole is that long. The caller rounds.
  uint64_t Take(uint64_t bytes) {
    auto fit = by_length_.lower_bound({bytes, 0});
    if (fit == by_length_.end()) return 0;
    const auto [length, address] = *fit;
    by_length_.erase(fit);
    by_address_.erase(address);
    if (length > bytes) AddFree(address + bytes, length - bytes);
    return address;
  }

  void Give(uint64_t address, uint64_t bytes) {
    auto next = by_address_.lower_bound(address);
    if (next != by_address_.end() && address + bytes == next->first) {
      bytes += next->second;
      by_length_.erase({next->second, next->first});
      next = by_address_.erase(next);
    }
    if (next != by_address_.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == address) {
        address = before->first;
        bytes += before->second;
        by_length_.erase({before->second, before->first});
        by_address_.erase(before);
      }
    }
    AddFree(address, bytes);
  }

 private:
  void AddFree(uint64_t address, uint64_t bytes) {
    by_address_[address] = bytes;
    by_length_.insert({bytes, address});
  }

  std::map<uint64_t, uint64_t> by_address_;
  std::set<std::pair<uint64_t, uint64_t>> by_length_;
};

// Ranges whose window is backed in chunks: a chunk costs memory from its first byte in use until it
// is trimmed (pools) or its last byte is freed (small allocations).
class ChunkedRanges {
 public:
  ChunkedRanges(uint64_t base, uint64_t window, uint64_t chunk_bytes, uint64_t alignment)
      : ranges_(base, window), base_(base), chunk_bytes_(chunk_bytes), alignment_(alignment) {}

  // An address for `bytes`, or 0. `grow(bytes)` is asked for the memory of chunks not backed yet
  // and may refuse.
  template <typename Grow>
  uint64_t Take(uint64_t bytes, Grow grow) {
    const uint64_t length = RoundUp(bytes, alignment_);
    const uint64_t address = ranges_.Take(length);
    if (address == 0) return 0;
    uint64_t missing = 0;
    ForEachChunk(address, length, [&](uint64_t chunk) {
      if (users_.find(chunk) == users_.end()) missing += chunk_bytes_;
    });
    if (missing != 0 && !grow(missing)) {
      ranges_.Give(address, length);
      return 0;
    }
    backed_ += missing;
    ForEachChunk(address, length, [&](uint64_t chunk) { ++users_[chunk]; });
    return address;
  }

  void Give(uint64_t address, uint64_t bytes) {
    const uint64_t length = RoundUp(bytes, alignment_);
    ForEachChunk(address, length, [&](uint64_t chunk) { --users_[chunk]; });
    ranges_.Give(address, length);
  }

  // Drops unused chunks while more than `keep` bytes are backed; returns the bytes dropped.
  uint64_t Trim(uint64_t keep) {
    uint64_t dropped = 0;
    for (auto it = users_.begin(); it != users_.end() && backed_ > keep;) {
      if (it->second != 0) {
        ++it;
        continue;
      }
      it = users_.erase(it);
      backed_ -= chunk_bytes_;
      dropped += chunk_bytes_;
    }
    return dropped;
  }

  uint64_t backed() const { return backed_; }
  uint64_t base() const { return base_; }

 private:
  template <typename F>
  void ForEachChunk(uint64_t address, uint64_t length, F f) {
    const uint64_t first = (address - base_) / chunk_bytes_;
    const uint64_t last = (address + length - 1 - base_) / chunk_bytes_;
    for (uint64_t chunk = first; chunk <= last; ++chunk) f(chunk);
  }

  Ranges ranges_;
  uint64_t base_;
  uint64_t chunk_bytes_;
  uint64_t alignment_;
  uint64_t backed_ = 0;
  std::unordered_map<uint64_t, uint32_t> users_;  // chunk -> allocations that touch it
};

}  // namespace tidemark::sim
