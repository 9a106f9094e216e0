#include "client/collect.h"

#include <algorithm>
#include <thread>

#include "client/rank_view.h"
#include "client/run_plan.h"

namespace tidemark::client {
namespace {

bool AllEnded(const v1::Snapshot& snapshot) {
  return std::all_of(snapshot.processes().begin(), snapshot.processes().end(),
                     [](const v1::Process& process) { return IsDead(process); });
}

}  // namespace

void KeepOnly(v1::Snapshot& snapshot, const std::string& run) {
  auto& processes = *snapshot.mutable_processes();
  processes.erase(std::remove_if(processes.begin(), processes.end(),
                                 [&](const v1::Process& process) {
                                   return !BelongsTo(process.identity().run(), run);
                                 }),
                  processes.end());
}

Result<v1::Snapshot> CollectRun(Connection& connection, const std::string& run,
                                uint64_t ended_monotonic_ns, std::chrono::milliseconds patience) {
  v1::GetSnapshotRequest brief;
  brief.set_omit_sites(true);
  brief.set_omit_steps(true);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    Result<v1::Snapshot> seen = connection.GetSnapshot(brief, std::chrono::seconds(2));
    const bool late = std::chrono::steady_clock::now() > deadline;
    if (!seen && late) return seen.error();
    if (seen) {
      KeepOnly(*seen, run);
      const bool current = seen->monotonic_ns() > ended_monotonic_ns;
      if ((current && AllEnded(*seen)) || late) break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  Result<v1::Snapshot> snapshot = connection.GetSnapshot({});
  if (snapshot) KeepOnly(*snapshot, run);
  return snapshot;
}

}  // namespace tidemark::client
