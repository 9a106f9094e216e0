// Makes a change of a row visible as a whole: `seq` is odd while fields are being written. The
// reader (another process) copies twice and compares; see wire/region.h. x86-64 keeps stores in
// order, so only the compiler has to be held.
#pragma once

#include <atomic>
#include <cstdint>

namespace tidemark::agent {

template <typename Row>
class RowWriter {
 public:
  explicit RowWriter(Row& row) : row_(row) { Store(row_.seq + 1); }
  ~RowWriter() { Store(row_.seq + 1); }
  RowWriter(const RowWriter&) = delete;
  RowWriter& operator=(const RowWriter&) = delete;

 private:
  void Store(uint32_t seq) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    __atomic_store_n(&row_.seq, seq, __ATOMIC_RELAXED);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  Row& row_;
};

// For single fields outside seq rows (the header's).
template <typename T>
void Publish(T& field, T value) {
  __atomic_store_n(&field, value, __ATOMIC_RELEASE);
}

}  // namespace tidemark::agent
