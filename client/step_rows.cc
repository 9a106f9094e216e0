#include "client/step_rows.h"

#include <algorithm>
#include <cstdlib>

#include "client/rank_view.h"

namespace tidemark::client {
namespace {

constexpr int64_t kSmallestMove = 16ll << 20;

std::optional<int64_t> SumOfSide(const v1::Step& step, Side side) {
  std::optional<int64_t> sum;
  for (const v1::StepGroup& group : step.groups()) {
    if (group.side() == SideName(side)) sum = sum.value_or(0) + group.end_bytes();
  }
  return sum;
}

StepBytes BytesOf(const v1::Step& step) {
  StepBytes bytes;
  bytes.device = SumOfSide(step, Side::kFramework);
  if (!bytes.device) bytes.device = SumOfSide(step, Side::kDriver);
  bytes.pinned = SumOfSide(step, Side::kPinned);
  if (step.anon_bytes() >= 0) bytes.anon = step.anon_bytes();
  if (step.shmem_bytes() >= 0) bytes.shmem = step.shmem_bytes();
  return bytes;
}

std::optional<int64_t> Difference(std::optional<int64_t> now, std::optional<int64_t> before) {
  if (!now || !before) return std::nullopt;
  return *now - *before;
}

// What the host gained: pinned memory lies in shmem, so the larger of the two stands for both.
int64_t HostGain(const StepBytes& delta) {
  const int64_t pinned = delta.pinned.value_or(0);
  const int64_t shmem = delta.shmem.value_or(0);
  return delta.anon.value_or(0) + (std::abs(pinned) > std::abs(shmem) ? pinned : shmem);
}

void MarkMove(StepRow& row) {
  const int64_t device = row.delta.device.value_or(0);
  const int64_t host = HostGain(row.delta);
  const int64_t smaller = std::min(std::abs(device), std::abs(host));
  const int64_t larger = std::max(std::abs(device), std::abs(host));
  const bool opposite = (device < 0) != (host < 0);
  if (!opposite || smaller < kSmallestMove || smaller < larger - larger / 10) return;
  row.move = device < 0 ? Move::kDeviceToHost : Move::kHostToDevice;
  row.moved_bytes = smaller;
}

}  // namespace

std::vector<StepRow> StepRowsOf(const v1::Process& process, size_t last) {
  const auto& steps = process.steps();
  const size_t size = static_cast<size_t>(steps.size());
  const size_t first = last == 0 || last >= size ? 0 : size - last;
  std::vector<StepRow> rows;
  for (size_t i = first; i < size; ++i) {
    StepRow row;
    row.step = steps[static_cast<int>(i)].step();
    row.bytes = BytesOf(steps[static_cast<int>(i)]);
    if (i > 0) {
      const StepBytes before = BytesOf(steps[static_cast<int>(i) - 1]);
      row.delta = {
          Difference(row.bytes.device, before.device), Difference(row.bytes.pinned, before.pinned),
          Difference(row.bytes.anon, before.anon), Difference(row.bytes.shmem, before.shmem)};
      MarkMove(row);
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace tidemark::client
