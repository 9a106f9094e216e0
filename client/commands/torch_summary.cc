// tidemark where --torch: torch.cuda.memory_summary() without asking the job. Rows that only the
// allocator's inside knows are listed as such rather than guessed.
#include <array>

#include "client/commands/render.h"
#include "client/rank_view.h"
#include "client/table.h"
#include "client/units.h"

namespace tidemark::client {
namespace {

struct UnseenRow {
  const char* row;
  const char* why;
};
constexpr std::array<UnseenRow, 7> kUnseen = {{
    {"Active memory, Active allocs", "blocks freed but waiting for a stream are not reported"},
    {"Requested memory", "the allocator reports rounded sizes"},
    {"Non-releasable memory, allocs", "the split of a segment is not reported"},
    {"from large pool, from small pool", "the pool of a block is not reported"},
    {"GPU reserved segments", "segments are not told from other driver allocations"},
    {"Oversize allocations, segments", "the threshold is not reported"},
    {"cudaMalloc retries", "a retry that works leaves no trace"},
}};

// Sum over the totals of one class, as torch itself reported it, on one device.
const v1::ClassTotal* FindTotal(const v1::Process& process, const std::string& memory_class,
                                int device) {
  for (const v1::ClassTotal& total : process.totals()) {
    if (total.memory_class() == memory_class && total.device() == device &&
        total.witness() == "torch") {
      return &total;
    }
  }
  return nullptr;
}

uint64_t OutOfMemoryCount(const v1::Process& process, int device) {
  uint64_t count = 0;
  for (const v1::Event& event : process.events()) {
    count += event.type() == "out_of_memory" && event.device() == device ? 1 : 0;
  }
  return count;
}

std::string Bytes(uint64_t bytes) { return FormatBytes(static_cast<int64_t>(bytes)); }

void AddRows(const v1::Process& process, const v1::ClassTotal& live, Table& table) {
  table.Add({"Allocated memory", FormatBytes(live.live_bytes()), FormatBytes(live.peak_bytes()),
             Bytes(live.allocated_bytes()), Bytes(live.freed_bytes())});
  if (const v1::ClassTotal* cache = FindTotal(process, "fw_cache", live.device())) {
    table.Add({"GPU reserved memory", FormatBytes(live.live_bytes() + cache->live_bytes()), "?",
               "?", "?"});
  }
  table.Add({"Allocations", FormatCount(live.allocations() - live.frees()), "?",
             FormatCount(live.allocations()), FormatCount(live.frees())});
}

}  // namespace

std::string TorchSummaryText(const v1::Snapshot& snapshot, const Ink& ink) {
  std::string text;
  for (const v1::Process* process : ByRank(snapshot)) {
    bool any = false;
    for (const v1::ClassTotal& live : process->totals()) {
      if (live.memory_class() != "fw_live" || live.witness() != "torch") continue;
      any = true;
      text += ink.Bold(ProcessName(*process)) + ", device " + std::to_string(live.device()) +
              ", CUDA OOMs: " + FormatCount(OutOfMemoryCount(*process, live.device())) + "\n";
      Table table({{"Metric"},
                   {"Cur Usage", Align::kRight},
                   {"Peak Usage", Align::kRight},
                   {"Tot Alloc", Align::kRight},
                   {"Tot Freed", Align::kRight}});
      AddRows(*process, live, table);
      text += table.Text(2);
    }
    if (!any) text += ink.Bold(ProcessName(*process)) + ": no framework allocator was seen\n";
  }
  text += "cannot be seen from outside:\n";
  Table unseen({{""}, {""}});
  for (const UnseenRow& row : kUnseen) unseen.Add({row.row, row.why});
  return text + unseen.Text(2);
}

Json TorchSummaryJson(const v1::Snapshot& snapshot) {
  Json processes = Json::array();
  for (const v1::Process* process : ByRank(snapshot)) {
    for (const v1::ClassTotal& live : process->totals()) {
      if (live.memory_class() != "fw_live" || live.witness() != "torch") continue;
      const v1::ClassTotal* cache = FindTotal(*process, "fw_cache", live.device());
      processes.push_back(
          {{"rank", process->identity().rank()},
           {"pid", process->pid()},
           {"device", live.device()},
           {"allocated_bytes",
            {{"current", live.live_bytes()},
             {"peak", live.peak_bytes()},
             {"allocated", live.allocated_bytes()},
             {"freed", live.freed_bytes()}}},
           {"reserved_bytes",
            {{"current", cache ? Json(live.live_bytes() + cache->live_bytes()) : Json(nullptr)}}},
           {"allocations",
            {{"current", live.allocations() - live.frees()},
             {"allocated", live.allocations()},
             {"freed", live.frees()}}},
           {"num_ooms", OutOfMemoryCount(*process, live.device())}});
    }
  }
  Json unseen = Json::array();
  for (const UnseenRow& row : kUnseen) unseen.push_back({{"rows", row.row}, {"why", row.why}});
  return {{"node", snapshot.node()},
          {"processes", std::move(processes)},
          {"cannot_be_seen", std::move(unseen)}};
}

}  // namespace tidemark::client
