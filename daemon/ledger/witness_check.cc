#include "daemon/ledger/witness_check.h"

#include <algorithm>

namespace tidemark {
namespace {

constexpr uint64_t kMinuteNs = 60'000'000'000;

// Of counts that a hostile process may have made up; wraps instead of overflowing.
int64_t Minus(uint64_t a, uint64_t b) { return static_cast<int64_t>(a - b); }

}  // namespace

void WitnessCheck::Number::Narrow(Interval seen) {
  auto meet = [](std::optional<Interval>* with, Interval other) {
    if (!*with) {
      *with = other;
      return true;
    }
    const Interval both = {std::max((*with)->low, other.low), std::min((*with)->high, other.high)};
    if (both.low > both.high) return false;
    *with = both;
    return true;
  };
  if (!meet(&now, seen)) now = seen;
  // A call that lasts longer than a tick is counted by one witness before the other: when it ends
  // they agree again.
  if (meet(&agreed, *now)) now = agreed;
}

int64_t WitnessCheck::Number::Difference() const {
  if (!agreed || !now) return from_before;
  if (now->low > agreed->high) return from_before + (now->low - agreed->high);
  if (now->high < agreed->low) return from_before + (now->high - agreed->low);
  return from_before;
}

void WitnessCheck::Update(uint64_t monotonic_ns, const WitnessCounts& agent,
                          const WitnessCounts& probes) {
  now_ns_ = monotonic_ns;
  for (size_t i = 0; last_ && i < rows_.size(); ++i) {
    const WitnessCount& a0 = last_->agent[i];
    const WitnessCount& a1 = agent[i];
    const WitnessCount& b = last_->probes[i];
    if (a1.calls < a0.calls || a1.requested_bytes < a0.requested_bytes) continue;  // not a count
    Row& row = rows_[i];
    const int64_t calls_before = row.calls.Difference();
    const int64_t bytes_before = row.bytes.Difference();
    row.calls.Narrow({Minus(a0.calls, b.calls), Minus(a1.calls, b.calls)});
    row.bytes.Narrow({Minus(a0.requested_bytes, b.requested_bytes),
                      Minus(a1.requested_bytes, b.requested_bytes)});
    row.calls_seen += std::max(a1.calls - a0.calls, probes[i].calls - b.calls);
    if (row.calls.Difference() != calls_before || row.bytes.Difference() != bytes_before) {
      row.past.push_back({monotonic_ns, calls_before, bytes_before});
    }
    while (!row.past.empty() && monotonic_ns - row.past.front().monotonic_ns > kMinuteNs) {
      row.past.pop_front();
    }
  }
  last_ = {agent, probes};
}

void WitnessCheck::Pause() {
  if (!last_) return;
  last_.reset();
  for (Row& row : rows_) {
    for (Number* number : {&row.calls, &row.bytes}) {
      number->from_before = number->Difference();
      number->agreed.reset();
      number->now.reset();
    }
  }
}

std::vector<WitnessDifferenceView> WitnessCheck::Differences() const {
  std::vector<WitnessDifferenceView> views;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    const int64_t calls = row.calls.Difference();
    const int64_t bytes = row.bytes.Difference();
    if (row.calls_seen == 0 && calls == 0 && bytes == 0) continue;
    const int64_t calls_then = row.past.empty() ? calls : row.past.front().calls;
    const int64_t bytes_then = row.past.empty() ? bytes : row.past.front().bytes;
    views.push_back({.entry_point = std::string(wire::kEntryPointNames[i]),
                     .compared_calls = row.calls_seen,
                     .calls = calls,
                     .bytes = bytes,
                     .calls_last_minute = calls - calls_then,
                     .bytes_last_minute = bytes - bytes_then});
  }
  return views;
}

}  // namespace tidemark
