#include "daemon/source/bpf/watched_process.h"

#include <array>
#include <string_view>

namespace tidemark {
namespace {

constexpr std::array<std::string_view, TM_LOSS_COUNT> kLossNames = {
    "ring_full", "no_pending", "nested_call", "abandoned_call", "unreadable"};
constexpr std::array<std::string_view, TM_STACK_LOSS_COUNT> kStackLossNames = {
    "stack_ring_full", "stack_table_full", "stack_unread", "stack_no_scratch"};

}  // namespace

BpfProcess WatchedProcess::View(const std::optional<tm_cuda_counts>& counts) const {
  BpfProcess view;
  view.pid = pid;
  view.start_time_ticks = start_time_ticks;
  view.watch = wanted;
  view.mode = mode;
  view.state = state;
  view.reason = reason;
  view.attached_at_ns = attached_at_ns;

  const AllocationLedger& ledger = calls.ledger();
  for (const auto& [key, total] : ledger.totals()) {
    view.totals.push_back({.memory_class = key.first,
                           .device = key.second,
                           .live_bytes = total.live_bytes,
                           .live_count = total.live_count,
                           .peak_bytes = total.peak_bytes,
                           .allocated_bytes = total.allocated_bytes,
                           .allocated_count = total.allocated_count,
                           .freed_bytes = total.freed_bytes,
                           .freed_count = total.freed_count});
  }
  for (const auto& [key, site] : ledger.sites()) {
    view.sites.push_back({.memory_class = key.first,
                          .stack = stacks.Find(key.second),
                          .live_bytes = site.live_bytes,
                          .live_count = site.live_count,
                          .allocated_bytes = site.allocated_bytes,
                          .allocated_count = site.allocated_count,
                          .min_block_bytes = site.allocated_count ? site.min_block_bytes : 0,
                          .max_block_bytes = site.max_block_bytes});
  }
  view.before_attach_frees = ledger.unknown_frees();
  if (ledger.table_full() > 0) view.losses.push_back({"table_full", ledger.table_full()});
  if (calls.unsure_context_ends() > 0) {
    view.losses.push_back({"unsure_context_end", calls.unsure_context_ends()});
  }
  if (!counts) return view;
  for (uint32_t fn = 0; fn < wire::kEntryPointCount; ++fn) {
    const tm_entry_point_count& count = counts->entry_points[fn];
    if (count.calls == 0) continue;
    view.entry_points.push_back({.entry_point = static_cast<wire::EntryPoint>(fn),
                                 .calls = count.calls,
                                 .requested_bytes = count.requested_bytes,
                                 .failed_calls = count.failed_calls});
  }
  for (size_t cause = 0; cause < kLossNames.size(); ++cause) {
    if (counts->losses[cause] > 0) {
      view.losses.push_back({kLossNames[cause], counts->losses[cause]});
    }
  }
  for (size_t cause = 0; cause < kStackLossNames.size(); ++cause) {
    if (counts->stack_losses[cause] > 0) {
      view.losses.push_back({kStackLossNames[cause], counts->stack_losses[cause]});
    }
  }
  return view;
}

}  // namespace tidemark
