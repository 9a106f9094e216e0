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

std::map<SeriesKey, int64_t> ClassesAt(const ProcessSnapshot& process, Name name) {
  std::map<SeriesKey, int64_t> classes;
  const auto put = [&classes](MemoryClass c, int device, int64_t bytes) {
    classes[{std::string(ToString(c)), device, 0}] = bytes;
  };
  switch (name) {
    case Name::kNow:
    case Name::kTime:
      for (const auto& [key, bytes] : BytesByClass(process)) classes[key] = bytes;
      break;
    case Name::kLoad:
      for (const PhaseView& phase : process.phases) {
        if (phase.name != "load") continue;
        for (const PhaseGroupView& group : phase.groups) {
          put(group.memory_class, group.device, group.end_bytes);
        }
      }
      break;
    case Name::kPeak:
      for (const ClassTotal& total : process.totals) {
        if (total.witness == Witness::kBpf || total.before_attach) continue;  // the second witness
        put(total.memory_class, total.device, total.peak_bytes);
      }
      break;
    case Name::kLastStep:
      if (process.steps->empty()) break;
      for (const StepGroupView& group : process.steps->back()->groups) {
        if (group.side == wire::PeakSide::kFramework) {
          put(MemoryClass::kFwLive, group.device, group.end_bytes);
        } else if (group.side == wire::PeakSide::kPinned) {
          put(MemoryClass::kPinned, group.device, group.end_bytes);
        } else if (group.side == wire::PeakSide::kHostFramework) {
          put(MemoryClass::kFwHost, group.device, group.end_bytes);
        }
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
