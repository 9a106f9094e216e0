#include "daemon/serve/export.h"

#include <algorithm>
#include <array>
#include <utility>

#include "daemon/serve/export_stacks.h"

namespace tidemark::exports {
namespace {

constexpr std::array<std::pair<std::string_view, Format>, 6> kFormats = {
    {{"pprof", Format::kPprof},
     {"torch", Format::kTorch},
     {"folded", Format::kFolded},
     {"csv", Format::kCsv},
     {"perfetto", Format::kPerfetto},
     {"openmetrics", Format::kOpenMetrics}}};

constexpr std::array<std::pair<std::string_view, What>, 5> kWhats = {
    {{"live", What::kLive},
     {"growth", What::kGrowth},
     {"peak", What::kPeak},
     {"allocations", What::kAllocations},
     {"history", What::kHistory}}};

int64_t BytesThen(const Plan& plan, const Input& input, const v1::Process& process,
                  const v1::Site& site) {
  const std::string& name = plan.since.name();
  if (name.empty() || name == "load") return site.at_load().bytes();
  if (name == "peak") return site.at_peak().bytes();
  if (name == "last_step") return site.at_last_step().bytes();
  const auto then = input.then.find(KeyOf(process, site));
  return then == input.then.end() ? 0 : then->second;
}

int64_t CountThen(const Plan& plan, const v1::Site& site) {
  const std::string& name = plan.since.name();
  if (name.empty() || name == "load") return site.at_load().count();
  if (name == "peak") return site.at_peak().count();
  if (name == "last_step") return site.at_last_step().count();
  return site.live().count();  // history keeps no counts: the difference is 0, which is "unknown"
}

Stack StackOf(const Plan& plan, const Input& input, const v1::Process& process,
              const v1::Site& site) {
  Stack stack{&process, &site, 0, 0};
  switch (plan.what) {
    case What::kLive:
    case What::kHistory:
      stack.bytes = site.live().bytes();
      stack.count = site.live().count();
      break;
    case What::kPeak:
      stack.bytes = site.at_peak().bytes();
      stack.count = site.at_peak().count();
      break;
    case What::kAllocations:
      stack.bytes = static_cast<int64_t>(site.allocated_bytes());
      stack.count = static_cast<int64_t>(site.allocated_count());
      break;
    case What::kGrowth:
      stack.bytes = site.live().bytes() - BytesThen(plan, input, process, site);
      stack.count = site.live().count() - CountThen(plan, site);
      break;
  }
  return stack;
}

v1::ProcessRef ReferenceOf(const v1::Snapshot& snapshot, const v1::Process& process) {
  const v1::Identity& identity = process.identity();
  v1::ProcessRef reference;
  reference.set_pid(process.pid());
  reference.set_start_time_ticks(process.start_time_ticks());
  reference.set_boot_id(snapshot.boot_id());
  reference.set_training_job(identity.training_job());
  reference.set_rank(identity.rank());
  reference.set_local_rank(identity.local_rank());
  reference.set_helper_of(identity.helper_of());
  reference.set_command(identity.command());
  reference.set_run(identity.run());
  reference.set_attempt(identity.attempt());
  return reference;
}

std::string ClassOf(const std::string& side) {
  if (side == "framework") return "fw_live";
  return side == "host_framework" ? "fw_host" : side;
}

}  // namespace

std::string_view NameOf(What what) { return kWhats[static_cast<size_t>(what)].first; }

std::string ProcessName(int32_t rank, int32_t helper_of, int32_t pid, const std::string& command) {
  if (rank >= 0 && helper_of == 0) return "rank " + std::to_string(rank);
  if (pid == 0) return "node";
  return "pid " + std::to_string(pid) + " " + command;
}

std::string ProcessName(const v1::Process& process) {
  const v1::Identity& identity = process.identity();
  return ProcessName(identity.rank(), identity.helper_of(), process.pid(), identity.command());
}

std::string ProcessName(const v1::ProcessRef& process) {
  return ProcessName(process.rank(), process.helper_of(), process.pid(), process.command());
}

std::string FrameName(const v1::Frame& frame) {
  const std::string file = frame.file().substr(frame.file().rfind('/') + 1);
  std::string name = frame.function().empty() ? "?" : frame.function();
  if (file.empty()) return name;
  name += " (" + file;
  if (frame.line() > 0) name += ":" + std::to_string(frame.line());
  return name + ")";
}

SiteKey KeyOf(const v1::Process& process, const v1::Site& site) {
  return {process.pid(), process.start_time_ticks(), site.memory_class(), site.device(), site.id()};
}

Result<Plan> MakePlan(const std::string& format, const std::string& what, const v1::Moment& since) {
  Plan plan;
  plan.since = since;
  const auto known_format = std::ranges::find(kFormats, format, [](auto& f) { return f.first; });
  if (known_format == kFormats.end()) {
    return Error{"export \"" + format + "\"", "there is no such format",
                 "use pprof, torch, folded, csv, perfetto or openmetrics"};
  }
  plan.format = known_format->second;
  const bool only_history = plan.format == Format::kPerfetto || plan.format == Format::kOpenMetrics;
  plan.what = only_history ? What::kHistory : What::kLive;
  if (!what.empty()) {
    const auto known_what = std::ranges::find(kWhats, what, [](auto& w) { return w.first; });
    if (known_what == kWhats.end()) {
      return Error{"export " + format + " of \"" + what + "\"", "there is no such thing",
                   "use live, growth, peak, allocations or history"};
    }
    plan.what = known_what->second;
  }
  if (only_history && plan.what != What::kHistory) {
    return Error{"export " + format + " of " + what, "the format has no stacks",
                 "leave the choice out, or use pprof, torch, folded or csv"};
  }
  if (plan.what == What::kHistory && !only_history && plan.format != Format::kCsv) {
    return Error{"export " + format + " of history", "the format knows no time",
                 "use csv, perfetto or openmetrics"};
  }
  static constexpr std::array<std::string_view, 5> kMoments = {"", "load", "peak", "last_step",
                                                               "time"};
  if (std::ranges::find(kMoments, since.name()) == kMoments.end()) {
    return Error{"export the growth since \"" + since.name() + "\"", "there is no such moment",
                 "use load, peak, last_step or time"};
  }
  return plan;
}

std::vector<Stack> Stacks(const Plan& plan, const Input& input) {
  std::vector<Stack> stacks;
  for (const v1::Process& process : input.snapshot->processes()) {
    const auto first = static_cast<ptrdiff_t>(stacks.size());
    for (const v1::Site& site : process.sites()) {
      const Stack stack = StackOf(plan, input, process, site);
      if (stack.bytes != 0 || stack.count != 0) stacks.push_back(stack);
    }
    std::stable_sort(stacks.begin() + first, stacks.end(),
                     [](const Stack& a, const Stack& b) { return a.bytes > b.bytes; });
  }
  return stacks;
}

Result<std::string> Write(const Plan& plan, const Input& input) {
  const std::string tried = "export " + std::string(NameOf(plan.what));
  if (plan.of_history()) {
    if (input.series.empty() && input.steps.empty()) {
      return Error{tried, "there is no history of what was chosen", ""};
    }
    switch (plan.format) {
      case Format::kPerfetto:
        return WritePerfetto(input);
      case Format::kOpenMetrics:
        return WriteOpenMetrics(input);
      case Format::kCsv:
      case Format::kPprof:
      case Format::kTorch:
      case Format::kFolded:
        break;
    }
    return WriteHistoryCsv(input);
  }
  const std::vector<Stack> stacks = Stacks(plan, input);
  switch (plan.format) {
    case Format::kPprof:
      return WritePprof(plan, input, stacks);
    case Format::kTorch:
      return WriteTorch(plan, input, stacks);
    case Format::kFolded:
      return WriteFolded(stacks);
    case Format::kCsv:
    case Format::kPerfetto:
    case Format::kOpenMetrics:
      break;
  }
  return WriteSitesCsv(input, stacks);
}

std::vector<v1::Series> StepSeries(const v1::Snapshot& snapshot) {
  std::vector<v1::Series> all;
  for (const v1::Process& process : snapshot.processes()) {
    std::map<std::pair<std::string, int32_t>, v1::Series> series;
    for (const v1::Step& step : process.steps()) {
      const uint64_t unix_ns =
          snapshot.unix_ns() - (snapshot.monotonic_ns() - step.end_monotonic_ns());
      const auto add = [&](const std::string& memory_class, int32_t device, int64_t min,
                           int64_t mean, int64_t max) {
        v1::Series& line = series[{memory_class, device}];
        line.add_unix_ns(unix_ns);
        line.add_steps(step.step());
        line.add_min_bytes(min);
        line.add_mean_bytes(mean);
        line.add_max_bytes(max);
      };
      for (const v1::StepGroup& group : step.groups()) {
        add(ClassOf(group.side()), group.device(), group.floor_bytes(), group.end_bytes(),
            group.peak_bytes());
      }
      if (step.anon_bytes() >= 0) {
        add("anon", -1, step.anon_bytes(), step.anon_bytes(), step.anon_bytes());
      }
      if (step.shmem_bytes() >= 0) {
        add("shmem", -1, step.shmem_bytes(), step.shmem_bytes(), step.shmem_bytes());
      }
    }
    for (auto& [key, line] : series) {
      *line.mutable_process() = ReferenceOf(snapshot, process);
      line.set_memory_class(key.first);
      line.set_device(key.second);
      all.push_back(std::move(line));
    }
  }
  return all;
}

std::map<SiteKey, int64_t> SitesAt(const std::vector<v1::Series>& series, uint64_t unix_ns) {
  std::map<SiteKey, int64_t> sites;
  for (const v1::Series& line : series) {
    if (line.site_id() == 0) continue;
    const int points = std::min(line.unix_ns_size(), line.mean_bytes_size());
    for (int i = 0; i < points && line.unix_ns(i) <= unix_ns; ++i) {
      sites[{line.process().pid(), line.process().start_time_ticks(), line.memory_class(),
             line.device(), line.site_id()}] = line.mean_bytes(i);
    }
  }
  return sites;
}

}  // namespace tidemark::exports
