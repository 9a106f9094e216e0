#include "daemon/serve/moment_view.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "daemon/store/history_sampler.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::serve {
namespace {

enum class Name : uint8_t { kNow, kLoad, kPeak, kLastStep, kTime };

std::optional<Name> NameOf(const v1::Moment& moment) {
  const std::string& name = moment.name();
  if (name.empty() || name == "now") return Name::kNow;
  if (name == "load") return Name::kLoad;
  if (name == "peak") return Name::kPeak;
  if (name == "last_step") return Name::kLastStep;
  if (name == "time") return Name::kTime;
  return std::nullopt;
}

bool Selected(const v1::DiffSide& side, const ProcessSnapshot& process) {
  const auto among = [](const auto& list, int32_t value) {
    return list.empty() || std::ranges::find(list, value) != list.end();
  };
  const Identity& identity = process.identity;
  return among(side.pids(), process.key.pid) && among(side.ranks(), identity.rank) &&
         (side.training_job().empty() || side.training_job() == identity.training_job) &&
         (side.run().empty() || side.run() == identity.run);
}

SeriesKey KeyOf(const SiteView& site) {
  return {std::string(ToString(site.memory_class)), site.device, site.info->id};
}

BytesAndCount HeldAt(const SiteView& site, Name name) {
  switch (name) {
    case Name::kNow:
    case Name::kTime:
      return site.live;
    case Name::kLoad:
      return site.at[static_cast<size_t>(wire::Moment::kLoad)];
    case Name::kPeak:
      return site.at[static_cast<size_t>(wire::Moment::kPeak)];
    case Name::kLastStep:
      return site.at[static_cast<size_t>(wire::Moment::kStepEnd)];
  }
  return {};
}

constexpr char kDriverDevice[] = "driver_device";

std::string ClassOf(wire::PeakSide side) {
  switch (side) {
    case wire::PeakSide::kFramework:
      return std::string(ToString(MemoryClass::kFwLive));
    case wire::PeakSide::kDriverDevice:
      return kDriverDevice;
    case wire::PeakSide::kPinned:
      return std::string(ToString(MemoryClass::kPinned));
    case wire::PeakSide::kHostFramework:
      return std::string(ToString(MemoryClass::kFwHost));
  }
  return kDriverDevice;
}

// The lines of a waterfall that are the driver's, together.
void AddDriverDevice(std::map<SeriesKey, int64_t>* classes) {
  std::map<SeriesKey, int64_t> sums;
  for (const MemoryClass part :
       {MemoryClass::kDevice, MemoryClass::kPool, MemoryClass::kVmm, MemoryClass::kArray,
        MemoryClass::kGraph, MemoryClass::kFwLive, MemoryClass::kFwCache}) {
    for (const auto& [key, bytes] : *classes) {
      if (key.device >= 0 && key.memory_class == ToString(part)) {
        sums[{kDriverDevice, key.device, 0}] += bytes;
      }
    }
  }
  classes->merge(sums);
}

// What is known of a moment besides the sides of which peaks are kept.
std::set<std::string> KnownAt(Name name) {
  if (name == Name::kNow || name == Name::kTime) return {};
  std::set<std::string> known;
  for (const wire::PeakSide side : {wire::PeakSide::kFramework, wire::PeakSide::kDriverDevice,
                                    wire::PeakSide::kPinned, wire::PeakSide::kHostFramework}) {
    known.insert(ClassOf(side));
  }
  if (name != Name::kPeak) known.insert(std::string(ToString(MemoryClass::kAnon)));
  return known;
}

std::map<SeriesKey, int64_t> ClassesAt(const ProcessSnapshot& process, Name name) {
  std::map<SeriesKey, int64_t> classes;
  const SeriesKey anon{std::string(ToString(MemoryClass::kAnon)), -1, 0};
  switch (name) {
    case Name::kNow:
    case Name::kTime:
      for (const auto& [key, bytes] : BytesByClass(process)) classes[key] = bytes;
      AddDriverDevice(&classes);
      break;
    case Name::kLoad:
      for (const PhaseView& phase : process.phases) {
        if (phase.name != "load") continue;
        for (const PhaseGroupView& group : phase.groups) {
          // Of the device's memory a phase knows the driver's as a whole.
          const std::string memory_class = group.memory_class == MemoryClass::kDevice
                                               ? kDriverDevice
                                               : std::string(ToString(group.memory_class));
          classes[{memory_class, group.device, 0}] = group.end_bytes;
        }
      }
      break;
    case Name::kPeak:
      for (const PeakView& peak : process.peaks) {
        classes[{ClassOf(peak.side), peak.device, 0}] = peak.peak_bytes;
      }
      break;
    case Name::kLastStep:
      if (process.steps->empty()) break;
      for (const StepGroupView& group : process.steps->back()->groups) {
        classes[{ClassOf(group.side), group.device, 0}] = group.end_bytes;
      }
      if (process.steps->back()->anon_bytes >= 0) {
        classes[anon] = process.steps->back()->anon_bytes;
      }
      break;
  }
  return classes;
}

}  // namespace

const SiteView* FindSite(const ProcessSnapshot& process, const SeriesKey& key) {
  const auto found = std::ranges::find_if(*process.sites, [&](const auto& site) {
    return site->info->id == key.site_id && site->device == key.device &&
           ToString(site->memory_class) == key.memory_class;
  });
  return found == process.sites->end() ? nullptr : found->get();
}

QueryStatus ViewMoment(const NodeSnapshot& snapshot, const v1::DiffSide& side,
                       const HistoryReader* history, const QueryContext& context, MomentView* out) {
  const std::optional<Name> name = NameOf(side.moment());
  if (!name) {
    return {QueryCode::kInvalid, "a moment is now, load, peak, last_step or time"};
  }
  if (*name == Name::kTime && history == nullptr) {
    return {QueryCode::kUnavailable, "this daemon keeps no history: state.history is 0"};
  }
  out->unix_ns = *name == Name::kTime ? side.moment().unix_ns() : snapshot.unix_ns;
  out->known_classes = KnownAt(*name);
  bool selected = false;
  QueryStatus missing;
  for (const ProcessSnapshot& process : snapshot.processes) {
    if (!context.visible(process.identity.uid) || !Selected(side, process)) continue;
    selected = true;
    ProcessMoment held{&process, {}, {}};
    if (*name == Name::kTime) {
      HistoryReader::SitesThen then;
      const QueryStatus status = history->At(process.key, side.moment().unix_ns(), context, &then);
      if (status.code == QueryCode::kNotFound) {
        missing = status;
        out->notes.push_back(status.message);
        continue;
      }
      if (!status.ok()) return status;
      out->unix_ns = then.unix_ns;
      held.classes = std::move(then.classes);
      AddDriverDevice(&held.classes);
      for (const auto& [key, bytes] : then.sites) held.sites[key] = {bytes, 0};
    } else {
      held.classes = ClassesAt(process, *name);
      for (const auto& site : *process.sites) {
        const BytesAndCount bytes = HeldAt(*site, *name);
        if (bytes.bytes != 0 || bytes.count != 0) held.sites[KeyOf(*site)] = bytes;
      }
    }
    out->processes.push_back(std::move(held));
  }
  if (!selected) return {QueryCode::kNotFound, "no process here is selected"};
  if (out->processes.empty()) return missing;
  if (*name == Name::kTime) {
    out->notes.push_back(
        "history keeps the 64 largest sites of a process and no counts: a site that is not among "
        "them counts as 0 there");
  }
  return {};
}

}  // namespace tidemark::serve
