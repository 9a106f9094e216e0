#include "daemon/store/history_block.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace tidemark {
namespace {

constexpr uint8_t kHasSteps = 1;
constexpr uint8_t kHasRange = 2;
constexpr size_t kMaxNameBytes = 64;

void PutVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

uint64_t ZigZag(uint64_t value) {
  return (value << 1) ^ static_cast<uint64_t>(static_cast<int64_t>(value) >> 63);
}
uint64_t UnZigZag(uint64_t value) { return (value >> 1) ^ (~(value & 1) + 1); }

// Numbers one after the other; a zero is followed by how many more zeros follow it.
class RunWriter {
 public:
  explicit RunWriter(std::string* out) : out_(out) {}
  ~RunWriter() { EndRun(); }

  void Put(uint64_t value) {
    if (value == 0) {
      ++zeros_;
      return;
    }
    EndRun();
    PutVarint(ZigZag(value), out_);
  }

 private:
  void EndRun() {
    if (zeros_ == 0) return;
    out_->push_back(0);
    PutVarint(zeros_ - 1, out_);
    zeros_ = 0;
  }

  std::string* out_;
  uint64_t zeros_ = 0;
};

class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) return false;
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      *value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool Bounded(uint64_t most, uint64_t* value) { return Varint(value) && *value <= most; }
  bool Take(size_t bytes, std::string_view* out) {
    if (bytes > bytes_.size()) return false;
    *out = bytes_.substr(0, bytes);
    bytes_.remove_prefix(bytes);
    return true;
  }
  bool empty() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

class RunReader {
 public:
  explicit RunReader(Cursor* in) : in_(in) {}

  bool Next(uint64_t* value) {
    if (zeros_ > 0) {
      --zeros_;
      *value = 0;
      return true;
    }
    uint64_t coded = 0;
    if (!in_->Varint(&coded)) return false;
    *value = UnZigZag(coded);
    return coded != 0 || in_->Bounded(SampleBlock::kMaxRows, &zeros_);
  }
  bool done() const { return zeros_ == 0; }

 private:
  Cursor* in_;
  uint64_t zeros_ = 0;
};

// Differences wrap, so that every 64-bit number can follow every other.
template <typename Values, typename Get>
void PutDifferences(const Values& values, Get get, std::string* out) {
  RunWriter runs(out);
  uint64_t last = 0;
  for (const auto& value : values) {
    const auto now = static_cast<uint64_t>(get(value));
    runs.Put(now - last);
    last = now;
  }
}

bool TakeDifferences(Cursor* in, size_t count, std::vector<uint64_t>* out) {
  RunReader runs(in);
  uint64_t last = 0;
  out->resize(count);
  for (uint64_t& value : *out) {
    uint64_t difference = 0;
    if (!runs.Next(&difference)) return false;
    value = last += difference;
  }
  return runs.done();
}

void PutColumn(const SampleBlock::Column& column, bool range, std::string* out) {
  const auto& values = column.values;
  PutDifferences(
      values, [](const Sample& s) { return s.mean; }, out);
  if (!range) return;
  const auto difference = [](int64_t a, int64_t b) {
    return static_cast<uint64_t>(a) - static_cast<uint64_t>(b);
  };
  RunWriter below(out);
  for (const Sample& s : values) below.Put(difference(s.mean, s.min));
  RunWriter above(out);
  for (const Sample& s : values) above.Put(difference(s.max, s.mean));
}

bool TakeColumn(Cursor in, bool range, size_t count, std::vector<Sample>* values) {
  values->resize(count);
  RunReader means(&in);
  uint64_t last = 0;
  uint64_t number = 0;
  for (Sample& s : *values) {
    if (!means.Next(&number)) return false;
    last += number;
    s = Sample::Of(static_cast<int64_t>(last));
  }
  if (!means.done()) return false;
  if (range) {
    RunReader below(&in);
    for (Sample& s : *values) {
      if (!below.Next(&number)) return false;
      s.min = static_cast<int64_t>(static_cast<uint64_t>(s.mean) - number);
    }
    if (!below.done()) return false;
    RunReader above(&in);
    for (Sample& s : *values) {
      if (!above.Next(&number)) return false;
      s.max = static_cast<int64_t>(static_cast<uint64_t>(s.mean) + number);
    }
    if (!above.done()) return false;
  }
  return in.empty();
}

// zlib's usual 256 KiB of state would be fetched from the kernel and given back for every block, at
// several times the price of the compression; blocks are small, and so may its window be.
constexpr int kWindowBits = 12;
constexpr int kMemLevel = 6;

std::string Deflate(std::string plain) {
  std::string out;
  PutVarint(plain.size(), &out);
  const size_t head = out.size();
  z_stream stream = {};
  if (::deflateInit2(&stream, 1, Z_DEFLATED, kWindowBits, kMemLevel, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();  // nothing else can fail with these arguments
  }
  out.resize(head + ::deflateBound(&stream, plain.size()));
  stream.next_in = reinterpret_cast<Bytef*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data() + head);
  stream.avail_out = static_cast<uInt>(out.size() - head);
  ::deflate(&stream, Z_FINISH);  // whole at once: the bound is enough for it
  out.resize(head + stream.total_out);
  ::deflateEnd(&stream);
  return out;
}

bool Inflate(std::string_view bytes, std::string* plain) {
  Cursor in(bytes);
  uint64_t size = 0;
  if (!in.Bounded(SampleBlock::kMaxInflatedBytes, &size)) return false;
  size_t head = 1;
  for (uint64_t rest = size; rest >= 0x80; rest >>= 7) ++head;
  if (head > bytes.size()) return false;
  plain->resize(size);
  uLongf got = size;
  return uncompress(reinterpret_cast<Bytef*>(plain->data()), &got,
                    reinterpret_cast<const Bytef*>(bytes.data() + head),
                    bytes.size() - head) == Z_OK &&
         got == size;
}

}  // namespace

void SampleBlock::BeginRow(uint64_t unix_ms, uint64_t step) {
  times_.push_back(unix_ms);
  steps_.push_back(step);
  cursor_ = 0;
}

SampleBlock::Column* SampleBlock::ColumnOf(const SeriesKey& key) {
  if (cursor_ >= columns_.size() || columns_[cursor_].key != key) {
    const auto found = std::ranges::find(columns_, key, &Column::key);
    cursor_ = static_cast<size_t>(found - columns_.begin());
  }
  if (cursor_ == columns_.size()) {
    if (columns_.size() >= kMaxColumns) return nullptr;
    columns_.push_back({key, rows() - 1, {}});
  }
  return &columns_[cursor_++];
}

void SampleBlock::Set(const SeriesKey& key, const Sample& sample) {
  Column* column = ColumnOf(key);
  if (column == nullptr) return;
  column->values.resize(rows() - column->first_row, Sample::None());
  column->values.back() = sample;
}

std::string SampleBlock::Encode() const {
  const bool steps = std::ranges::any_of(steps_, [](uint64_t step) { return step != 0; });
  bool range = false;
  for (const Column& column : columns_) {
    range = range || std::ranges::any_of(column.values, [](const Sample& s) {
              return s.min != s.mean || s.max != s.mean;
            });
  }
  std::string plain;
  plain.push_back(static_cast<char>((steps ? kHasSteps : 0) | (range ? kHasRange : 0)));
  PutVarint(rows(), &plain);
  PutDifferences(times_, std::identity(), &plain);
  if (steps) PutDifferences(steps_, std::identity(), &plain);
  PutVarint(columns_.size(), &plain);
  std::string payload;
  for (const Column& column : columns_) {
    PutVarint(column.key.memory_class.size(), &plain);
    plain += column.key.memory_class;
    PutVarint(ZigZag(static_cast<uint64_t>(int64_t{column.key.device})), &plain);
    PutVarint(column.key.site_id, &plain);
    PutVarint(column.first_row, &plain);
    PutVarint(column.values.size(), &plain);
    payload.clear();
    PutColumn(column, range, &payload);
    PutVarint(payload.size(), &plain);
    plain += payload;
  }
  return Deflate(std::move(plain));
}

std::optional<SampleBlock> SampleBlock::Decode(
    std::string_view bytes, const std::function<bool(const SeriesKey&)>& wanted) {
  std::string plain;
  if (!Inflate(bytes, &plain)) return std::nullopt;
  Cursor in(plain);
  SampleBlock block;
  uint64_t flags = 0;
  uint64_t rows = 0;
  uint64_t columns = 0;
  if (!in.Bounded(kHasSteps | kHasRange, &flags) || !in.Bounded(kMaxRows, &rows) ||
      !TakeDifferences(&in, rows, &block.times_)) {
    return std::nullopt;
  }
  block.steps_.resize(rows);
  if ((flags & kHasSteps) != 0 && !TakeDifferences(&in, rows, &block.steps_)) return std::nullopt;
  if (!in.Bounded(kMaxColumns, &columns)) return std::nullopt;
  for (uint64_t i = 0; i < columns; ++i) {
    Column column;
    std::string_view name;
    std::string_view payload;
    uint64_t name_bytes = 0;
    uint64_t device = 0;
    uint64_t first_row = 0;
    uint64_t count = 0;
    uint64_t payload_bytes = 0;
    if (!in.Bounded(kMaxNameBytes, &name_bytes) || !in.Take(name_bytes, &name) ||
        !in.Varint(&device) || !in.Varint(&column.key.site_id) || !in.Bounded(rows, &first_row) ||
        !in.Bounded(rows - first_row, &count) || !in.Varint(&payload_bytes) ||
        !in.Take(payload_bytes, &payload)) {
      return std::nullopt;
    }
    column.key.memory_class = name;
    column.key.device = static_cast<int32_t>(UnZigZag(device));
    column.first_row = first_row;
    if (!wanted(column.key)) continue;
    if (!TakeColumn(Cursor(payload), (flags & kHasRange) != 0, count, &column.values)) {
      return std::nullopt;
    }
    block.columns_.push_back(std::move(column));
  }
  if (!in.empty()) return std::nullopt;
  return block;
}

}  // namespace tidemark
