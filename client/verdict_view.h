// Verdicts as a person reads them: equal ones of many ranks are one, the worst come first.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "client/terminal.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

// In order of importance.
enum class Weight {
  kLeak,       // confirmed, and the cause is one of leaking
  kSuspect,    // has the shape of a leak
  kNotice,     // worth a look, not a leak
  kRetracted,  // was flagged and taken back
  kExplained,  // healthy, with a reason worth reading
  kSilent,     // steady or warming up, nothing to say
};
Weight WeightOf(const v1::Verdict& verdict);

struct VerdictGroup {
  Weight weight = Weight::kSilent;
  const v1::Verdict* verdict = nullptr;  // the one with the steepest slope
  std::vector<std::pair<const v1::Process*, const v1::Verdict*>> members;

  std::vector<const v1::Process*> Processes() const;
};

// Without the silent ones. Members share cause, class and site.
std::vector<VerdictGroup> GroupVerdicts(const std::vector<const v1::Process*>& processes);

bool AnyConfirmedLeak(const std::vector<const v1::Process*>& processes);

// "LEAK: tensors kept, on all 4 ranks (fw_live)". `all_ranks` is how many the job has.
std::string Headline(const VerdictGroup& group, size_t all_ranks, const Ink& ink);

// "+8.0 MiB/step (7.9 to 8.1)", by the hour where there are no steps; empty without a slope.
std::string SlopeText(const v1::Verdict& verdict);
// "out of memory in about 412 steps (02:40)"; empty when none is in sight.
std::string EtaText(const v1::Verdict& verdict);

// The lines under the headline, each ending in a newline: slope, site, who holds it, evidence and
// what to do, then a table of the ranks with their GPU and host bytes where there are several.
std::string VerdictDetails(const VerdictGroup& group, const Ink& ink);

}  // namespace tidemark::client
