#include "daemon/detect/choose_cause.h"

#include <algorithm>

namespace tidemark::detect {
namespace {

// A companion that moved this much of the growth explains it.
constexpr double kExplains = 0.6;

std::string Grew(const Companion& companion) {
  return std::string(ToString(companion.id.memory_class)) + " grew by " +
         FormatBytes(static_cast<double>(companion.growth_bytes)) + " in the same time";
}

// The classes whose bytes are counted again in `outer`: where one of them grows, `outer` follows.
std::vector<MemoryClass> CountedWithin(MemoryClass outer) {
  switch (outer) {
    case MemoryClass::kDevice:
    case MemoryClass::kVmm:
    case MemoryClass::kPool:
      return {MemoryClass::kFwLive, MemoryClass::kFwCache};
    case MemoryClass::kAnon:
      return {MemoryClass::kFwHost, MemoryClass::kRegistered};
    case MemoryClass::kShmem:
    case MemoryClass::kLocked:
      return {MemoryClass::kPinned, MemoryClass::kRegistered, MemoryClass::kPinnedOther};
    case MemoryClass::kSwap:
      return {MemoryClass::kAnon};
    case MemoryClass::kManaged:
    case MemoryClass::kArray:
    case MemoryClass::kGraph:
    case MemoryClass::kIpc:
    case MemoryClass::kContext:
    case MemoryClass::kUnattributed:
    case MemoryClass::kFwLive:
    case MemoryClass::kFwCache:
    case MemoryClass::kPinned:
    case MemoryClass::kRegistered:
    case MemoryClass::kPinnedOther:
    case MemoryClass::kFile:
    case MemoryClass::kLazyFree:
    case MemoryClass::kFwHost:
    case MemoryClass::kObserver:
      return {};
  }
  return {};
}

Cause OfPattern(const SeriesFinding& finding, Cause steady) {
  return finding.pattern == GrowthPattern::kStairs ? Cause::kEventSteppedRetention : steady;
}

Cause OutsideFramework(const CauseInput& input, std::vector<std::string>& evidence) {
  struct Candidate {
    uint64_t events;
    Cause cause;
    const char* what;
  };
  const auto since = [](uint64_t now, uint64_t then) { return now > then ? now - then : 0; };
  const ProcessFacts& now = input.facts_now;
  const ProcessFacts& then = input.facts_then;
  const Candidate candidates[] = {
      {since(now.communicator_events, then.communicator_events), Cause::kCommunicator,
       "communicators were created"},
      {since(now.module_events, then.module_events), Cause::kModules, "code modules were loaded"},
      {since(now.graph_events, then.graph_events), Cause::kGraphs, "graphs were captured"},
  };
  const auto most =
      std::max_element(std::begin(candidates), std::end(candidates),
                       [](const Candidate& a, const Candidate& b) { return a.events < b.events; });
  // Fewer than three may be coincidence: one-time set-up.
  if (most->events < 3) return Cause::kOutsideFramework;
  evidence.push_back(std::to_string(most->events) + " " + most->what + " while it grew");
  return most->cause;
}

Cause OfAnonymousMemory(const CauseInput& input, std::vector<std::string>& evidence) {
  const auto moved = [](const std::optional<int64_t>& now, const std::optional<int64_t>& then) {
    return now && then ? std::optional<int64_t>(*now - *then) : std::nullopt;
  };
  const double growth = static_cast<double>(std::max<int64_t>(1, input.growth_bytes));
  const auto dirty =
      moved(input.facts_now.private_dirty_bytes, input.facts_then.private_dirty_bytes);
  const auto rss = moved(input.facts_now.rss_bytes, input.facts_then.rss_bytes);
  if (dirty && rss && static_cast<double>(*dirty) > kExplains * growth &&
      static_cast<double>(*rss) < (1 - kExplains) * growth) {
    evidence.push_back("private dirty pages rose by " + FormatBytes(static_cast<double>(*dirty)) +
                       " while the resident set did not: shared pages are being copied");
    return Cause::kCopyOnWrite;
  }
  const auto heap = moved(input.facts_now.heap_live_bytes, input.facts_then.heap_live_bytes);
  if (heap && static_cast<double>(*heap) < (1 - kExplains) * growth) {
    evidence.push_back("the heap's live bytes moved by " + FormatBytes(static_cast<double>(*heap)) +
                       " only");
    return Cause::kRawMmap;
  }
  if (heap) evidence.push_back("the heap's live bytes grew with it");
  return OfPattern(*input.finding, Cause::kAnonLeak);
}

Cause OfClass(const CauseInput& input, CauseChoice& choice) {
  const SeriesFinding& finding = *input.finding;
  switch (input.id.memory_class) {
    case MemoryClass::kFwLive:
    case MemoryClass::kFwHost:
      return OfPattern(finding, Cause::kTensorsKept);
    case MemoryClass::kFwCache:
      choice.releasable_bytes = std::max<int64_t>(0, finding.floor_bytes);
      return Cause::kFragmentation;
    case MemoryClass::kDevice:
    case MemoryClass::kPool:
    case MemoryClass::kVmm:
    case MemoryClass::kManaged:
    case MemoryClass::kArray:
      return OfPattern(finding, Cause::kRawCuda);
    case MemoryClass::kGraph:
      return Cause::kGraphs;
    case MemoryClass::kIpc:
      return Cause::kIpcImport;
    case MemoryClass::kContext:
    case MemoryClass::kUnattributed:
      return OutsideFramework(input, choice.evidence);
    case MemoryClass::kPinned:
    case MemoryClass::kRegistered:
    case MemoryClass::kPinnedOther:
    case MemoryClass::kLocked:
      return Cause::kPinnedGrowth;
    case MemoryClass::kAnon:
    case MemoryClass::kSwap:
      return OfAnonymousMemory(input, choice.evidence);
    case MemoryClass::kFile:
      choice.releasable_bytes = std::max<int64_t>(0, input.growth_bytes);
      return Cause::kPageCache;
    case MemoryClass::kShmem:
      return Cause::kSharedMemoryLeftovers;
    case MemoryClass::kLazyFree:
      choice.releasable_bytes = std::max<int64_t>(0, finding.floor_bytes);
      return Cause::kLazyFree;
    case MemoryClass::kObserver:
      return Cause::kObserverGrowth;
  }
  return Cause::kUnclassifiedGrowth;
}

// Why a growth that ended was none of a leak's.
Cause OfEndedGrowth(const CauseInput& input) {
  switch (input.finding->end) {
    case GrowthEnd::kNone:
      return Cause::kNone;
    case GrowthEnd::kGivenBack:
      return Cause::kSawTooth;
    case GrowthEnd::kLevelledOff:
      return input.id.memory_class == MemoryClass::kAnon && input.facts_now.forked_workers_share
                 ? Cause::kCopyOnWrite
                 : Cause::kFiniteRamp;
    case GrowthEnd::kSlowedDown:
      return Cause::kWarmUp;
    case GrowthEnd::kOverdue:
      return Cause::kFiniteRamp;
  }
  return Cause::kNone;
}

}  // namespace

CauseChoice ChooseCause(const CauseInput& input) {
  CauseChoice choice;
  if (input.finding->state == VerdictState::kRetracted) {
    choice.cause = OfEndedGrowth(input);
    return choice;
  }
  if (input.finding->state != VerdictState::kSuspect &&
      input.finding->state != VerdictState::kConfirmed) {
    return choice;
  }
  choice.cause = OfClass(input, choice);
  for (MemoryClass inner : CountedWithin(input.id.memory_class)) {
    for (const Companion& companion : input.companions) {
      if (companion.id.memory_class != inner || companion.id.device != input.id.device) continue;
      if (static_cast<double>(companion.growth_bytes) <
          kExplains * static_cast<double>(input.growth_bytes)) {
        continue;
      }
      choice.follows = true;
      choice.leader = companion.id;
      choice.evidence.insert(choice.evidence.begin(), Grew(companion) + ", and counts in this");
      CauseInput leader = input;
      leader.id = companion.id;
      CauseChoice of_leader;
      choice.cause = OfClass(leader, of_leader);
      return choice;
    }
  }
  return choice;
}

}  // namespace tidemark::detect
