// A block of samples: rows in time (and, where asked for, steps), one column a series. What history
// keeps in a database row, so that a quiet series costs a few bytes an hour and not a row a second.
//
//   varint inflated bytes | deflated { flags, rows, times, steps, columns {
//     class, device, site, first row, values, payload bytes | mean | mean - min | max - mean } }
//
// A column is written as differences, and a run of zeros as its length. Bytes that are decoded may
// come from a damaged disk: every count is bounded and checked.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark {

struct SeriesKey {
  std::string memory_class;
  int32_t device = -1;   // -1 = host
  uint64_t site_id = 0;  // 0 = the whole class

  auto operator<=>(const SeriesKey&) const = default;
};

// Bytes over the stretch of time that a row stands for.
struct Sample {
  int64_t min = 0;
  int64_t mean = 0;
  int64_t max = 0;

  static constexpr Sample Of(int64_t bytes) { return {bytes, bytes, bytes}; }
  // The series was not there in this row.
  static constexpr Sample None() { return Of(std::numeric_limits<int64_t>::min()); }
  bool operator==(const Sample&) const = default;
};

class SampleBlock {
 public:
  static constexpr size_t kMaxRows = 4096;
  static constexpr size_t kMaxColumns = 1024;
  static constexpr size_t kMaxInflatedBytes = 8 << 20;

  struct Column {
    SeriesKey key;
    size_t first_row = 0;
    std::vector<Sample> values;  // may end before the last row: the rest is None
  };

  // The row that follows is of this time and step (0 = not of a step).
  void BeginRow(uint64_t unix_ms, uint64_t step = 0);
  // Moves the latest row's time.
  void SetTime(uint64_t unix_ms) { times_.back() = unix_ms; }
  // The latest row's value of a series. Series beyond kMaxColumns are ignored.
  void Set(const SeriesKey& key, const Sample& sample);

  bool empty() const { return times_.empty(); }
  size_t rows() const { return times_.size(); }
  const std::vector<uint64_t>& times() const { return times_; }  // ms since the epoch
  const std::vector<uint64_t>& steps() const { return steps_; }
  const std::vector<Column>& columns() const { return columns_; }

  std::string Encode() const;
  // Only the columns that are `wanted`. Nothing when the bytes are no block.
  static std::optional<SampleBlock> Decode(std::string_view bytes,
                                           const std::function<bool(const SeriesKey&)>& wanted);

 private:
  Column* ColumnOf(const SeriesKey& key);

  std::vector<uint64_t> times_;
  std::vector<uint64_t> steps_;
  std::vector<Column> columns_;
  size_t cursor_ = 0;  // series come in the same order row after row: looked for here first
};

}  // namespace tidemark
