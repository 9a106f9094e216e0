#include "daemon/source/bpf/watched_process.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <string_view>

namespace tidemark {
namespace {

constexpr std::array<std::string_view, TM_LOSS_COUNT> kLossNames = {
    "ring_full", "no_pending", "nested_call", "abandoned_call", "unreadable"};
constexpr std::array<std::string_view, TM_STACK_LOSS_COUNT> kStackLossNames = {
    "stack_ring_full", "stack_table_full", "stack_unread", "stack_no_scratch"};

void AddStackLosses(const __u64 (&losses)[TM_STACK_LOSS_COUNT], BpfProcess* view) {
  for (size_t cause = 0; cause < kStackLossNames.size(); ++cause) {
    if (losses[cause] == 0) continue;
    auto same = std::ranges::find(view->losses, kStackLossNames[cause], &BpfLoss::cause);
    if (same != view->losses.end()) {
      same->count += losses[cause];
    } else {
      view->losses.push_back({kStackLossNames[cause], losses[cause]});
    }
  }
}

}  // namespace

uint64_t ResidentBytes::Of(MemoryClass memory_class) const {
  if (memory_class == MemoryClass::kAnon) return anon;
  if (memory_class == MemoryClass::kFile) return file;
  return memory_class == MemoryClass::kShmem ? shmem : 0;
}

ResidentBytes ReadResidentBytes(const ProcRoot& root, pid_t pid) {
  ResidentBytes resident;
  std::ifstream status(root.Proc(pid) / "status");
  std::string name;
  uint64_t kib = 0;
  while (status >> name) {
    if (name == "RssAnon:" && status >> kib) resident.anon = kib * 1024;
    if (name == "RssFile:" && status >> kib) resident.file = kib * 1024;
    if (name == "RssShmem:" && status >> kib) resident.shmem = kib * 1024;
    status.ignore(1024, '\n');
  }
  return resident;
}

void WatchedProcess::ViewHost(BpfProcess* view) const {
  const HostLedger& ledger = host->ledger();
  for (const auto& [memory_class, total] : ledger.totals()) {
    view->totals.push_back({.memory_class = memory_class,
                            .device = -1,
                            .live_bytes = total.live_bytes,
                            .live_count = total.live_count,
                            .peak_bytes = total.peak_bytes,
                            .allocated_bytes = total.allocated_bytes,
                            .allocated_count = total.allocated_count,
                            .freed_bytes = total.freed_bytes,
                            .freed_count = total.freed_count});
  }
  for (const auto& [key, site] : ledger.sites()) {
    // Sampled faults weigh the same whether 4 KiB or 2 MiB came in: only their shares are used.
    const uint64_t estimate = ledger.ResidentEstimate(key.first);
    const uint64_t now = resident_now.Of(key.first), begin = resident_at_begin.Of(key.first);
    const double growth = now > begin ? static_cast<double>(now - begin) : 0;
    const double resident =
        estimate > 0 ? static_cast<double>(site.resident_bytes) / estimate * growth : 0;
    view->sites.push_back({.memory_class = key.first,
                           .stack = stacks.Find(key.second),
                           .live_bytes = site.live_bytes,
                           .live_count = site.live_count,
                           .allocated_bytes = site.allocated_bytes,
                           .allocated_count = site.allocated_count,
                           .min_block_bytes = site.allocated_count ? site.min_block_bytes : 0,
                           .max_block_bytes = site.max_block_bytes,
                           .resident_bytes = static_cast<uint64_t>(resident)});
  }
  BpfTotal pinned{.memory_class = MemoryClass::kPinnedOther};
  for (const auto& [descriptor, pin] : host->io_uring_pins()) {
    pinned.live_bytes += pin.bytes;
    pinned.live_count += 1;
    view->sites.push_back({.memory_class = MemoryClass::kPinnedOther,
                           .stack = stacks.Find(pin.stack_id),
                           .live_bytes = pin.bytes,
                           .live_count = 1});
  }
  if (pinned.live_count > 0) view->totals.push_back(pinned);
  if (ledger.locked_bytes() > 0) {
    view->totals.push_back(
        {.memory_class = MemoryClass::kLocked, .live_bytes = ledger.locked_bytes()});
  }
  if (host->lazily_freed_bytes() > 0) {
    view->totals.push_back(
        {.memory_class = MemoryClass::kLazyFree, .allocated_bytes = host->lazily_freed_bytes()});
  }
}

BpfProcess WatchedProcess::View(const std::optional<tm_cuda_counts>& counts,
                                const std::optional<tm_host_watch>& host_counts) const {
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
  if (host) ViewHost(&view);
  if (host_counts) {
    if (host_counts->lost_reports > 0) {
      view.losses.push_back({"host_ring_full", host_counts->lost_reports});
    }
    AddStackLosses(host_counts->stack_losses, &view);
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
  AddStackLosses(counts->stack_losses, &view);
  return view;
}

}  // namespace tidemark
