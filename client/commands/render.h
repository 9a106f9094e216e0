// What each reading command prints for a snapshot, as pure functions: tests call them with
// snapshots made by hand, `run` reuses them.
#pragma once

#include <cstdint>
#include <string>

#include "client/json.h"
#include "client/site_view.h"
#include "client/terminal.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

std::string PsText(const v1::Snapshot& snapshot, const Ink& ink);

// The waterfall of every process and device, then its host memory.
std::string WhereText(const v1::Snapshot& snapshot, const Ink& ink);
Json WhereJson(const v1::Snapshot& snapshot);
// What each tool would say about the same process, and why it says so.
std::string ReconcileText(const v1::Snapshot& snapshot, const Ink& ink);
Json ReconcileJson(const v1::Snapshot& snapshot);
// How the agent's count of the driver's calls and the probes' compare, a line an entry point that
// differs; empty where only one of them counts.
std::string WitnessText(const v1::Process& process);
bool WitnessesDisagree(const v1::Process& process);
// The rows of torch.cuda.memory_summary() that can be seen from outside.
std::string TorchSummaryText(const v1::Snapshot& snapshot, const Ink& ink);
Json TorchSummaryJson(const v1::Snapshot& snapshot);

struct SitesView {
  At at = At::kNow;
  std::string under;         // only sites with a frame that contains this
  std::string memory_class;  // only this class; empty = all
  uint64_t site_id = 0;      // only this one; 0 = all
  size_t limit = 20;         // rows; 0 = all
  bool frames = false;       // whole stacks
};
std::string SitesText(const v1::Snapshot& snapshot, const SitesView& view, const Ink& ink);
Json SitesJson(const v1::Snapshot& snapshot, const SitesView& view);

std::string StepsText(const v1::Snapshot& snapshot, size_t last, const Ink& ink);
Json StepsJson(const v1::Snapshot& snapshot, size_t last);

std::string LeaksText(const v1::Snapshot& snapshot, const Ink& ink);
Json LeaksJson(const v1::Snapshot& snapshot);

std::string JobText(const v1::Snapshot& snapshot, const Ink& ink);
Json JobJson(const v1::Snapshot& snapshot);

std::string SkewText(const v1::Snapshot& snapshot, const Ink& ink);
Json SkewJson(const v1::Snapshot& snapshot);

std::string PostmortemsText(const v1::ListPostmortemsResponse& list);
std::string PostmortemText(const v1::Postmortem& message, const Ink& ink);

std::string DoctorText(const v1::Snapshot& snapshot, const Ink& ink);

}  // namespace tidemark::client
