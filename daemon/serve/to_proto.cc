#include "daemon/serve/to_proto.h"

#include <algorithm>

#include "daemon/detect/cause.h"
#include "daemon/serve/utf8.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::serve {
namespace {

std::string_view ToString(wire::PeakSide side) {
  switch (side) {
    case wire::PeakSide::kFramework:
      return "framework";
    case wire::PeakSide::kDriverDevice:
      return "driver_device";
    case wire::PeakSide::kPinned:
      return "pinned";
    case wire::PeakSide::kHostFramework:
      return "host_framework";
  }
  return "unknown";
}

std::string_view ToString(Liveness liveness) {
  switch (liveness) {
    case Liveness::kAlive:
      return "alive";
    case Liveness::kExited:
      return "exited";
    case Liveness::kKilled:
      return "killed";
  }
  return "unknown";
}

// protobuf 3.21 takes std::string, not string_view.
std::string Text(std::string_view text) { return std::string(text); }

void Fill(const WitnessDifferenceView& in, v1::WitnessDifference* out) {
  out->set_entry_point(Utf8(in.entry_point));
  out->set_compared_calls(in.compared_calls);
  out->set_calls(in.calls);
  out->set_bytes(in.bytes);
  out->set_calls_last_minute(in.calls_last_minute);
  out->set_bytes_last_minute(in.bytes_last_minute);
}

void Fill(const FeatureView& in, v1::Feature* out) {
  out->set_name(Utf8(in.name));
  out->set_state(Utf8(in.state));
  out->set_reason(Utf8(in.reason));
}

void Fill(const LossView& in, v1::Loss* out) {
  out->set_cause(Utf8(in.cause));
  out->set_count(in.count);
  out->set_bytes(in.bytes);
}

void Fill(const BytesAndCount& in, v1::BytesAndCount* out) {
  out->set_bytes(in.bytes);
  out->set_count(in.count);
}

void Fill(const Identity& in, v1::Identity* out) {
  out->set_training_job(Utf8(in.training_job));
  out->set_job_source(Utf8(in.job_source));
  out->set_launcher(Utf8(in.launcher));
  out->set_rank(in.rank);
  out->set_local_rank(in.local_rank);
  out->set_world_size(in.world_size);
  out->set_local_world_size(in.local_world_size);
  out->set_attempt(in.attempt);
  out->set_uid(in.uid);
  out->set_command(Utf8(in.command));
  out->set_container(Utf8(in.container));
  out->set_workload_namespace(Utf8(in.workload_namespace));
  out->set_workload_pod(Utf8(in.workload_pod));
  out->set_workload_container(Utf8(in.workload_container));
  out->set_helper_of(in.helper_of);
  out->set_run(Utf8(in.run));
}

void Fill(const ClassTotal& in, v1::ClassTotal* out) {
  out->set_memory_class(Text(tidemark::ToString(in.memory_class)));
  out->set_device(in.device);
  out->set_witness(Text(tidemark::ToString(in.witness)));
  out->set_live_bytes(in.live_bytes);
  out->set_peak_bytes(in.peak_bytes);
  out->set_allocated_bytes(in.allocated_bytes);
  out->set_freed_bytes(in.freed_bytes);
  out->set_allocations(in.allocations);
  out->set_frees(in.frees);
  out->set_failed_calls(in.failed_calls);
  out->set_untracked_bytes(in.untracked_bytes);
  out->set_unknown_frees(in.unknown_frees);
  out->set_before_attach(in.before_attach);
}

void Fill(const PeakView& in, v1::Peak* out) {
  out->set_side(Text(ToString(in.side)));
  out->set_device(in.device);
  out->set_live_bytes(in.live_bytes);
  out->set_peak_bytes(in.peak_bytes);
  out->set_peak_step(in.peak_step);
  out->set_peak_monotonic_ns(in.peak_monotonic_ns);
}

void Fill(const SiteView& in, v1::Site* out) {
  const SiteInfo& info = *in.info;
  out->set_id(info.id);
  for (const FrameView& frame : info.frames) {
    v1::Frame* f = out->add_frames();
    f->set_kind(frame.kind == wire::FrameKind::kPython ? "python" : "native");
    f->set_function(Utf8(frame.function));
    f->set_file(Utf8(frame.file));
    f->set_line(frame.line);
  }
  out->set_blamed_frame(info.frames.empty() ? -1 : static_cast<int32_t>(info.blamed_frame));
  out->set_truncated(info.truncated);
  out->set_memory_class(Text(tidemark::ToString(in.memory_class)));
  out->set_device(in.device);
  out->set_witness(Text(tidemark::ToString(in.witness)));
  out->set_estimated(in.estimated);
  Fill(in.live, out->mutable_live());
  Fill(in.at[static_cast<size_t>(wire::Moment::kPeak)], out->mutable_at_peak());
  Fill(in.at[static_cast<size_t>(wire::Moment::kLoad)], out->mutable_at_load());
  Fill(in.at[static_cast<size_t>(wire::Moment::kStepEnd)], out->mutable_at_last_step());
  out->set_allocated_bytes(in.allocated_bytes);
  out->set_freed_bytes(in.freed_bytes);
  out->set_allocated_count(in.allocated_count);
  out->set_min_block_bytes(in.min_block_bytes);
  out->set_max_block_bytes(in.max_block_bytes);
  out->set_first_step(in.first_step);
  out->set_last_step(in.last_step);
  out->set_cohort_shift(in.cohort_shift);
  for (const int64_t bytes : in.cohort_bytes) out->add_cohort_bytes(bytes);
}

void Fill(const StepView& in, v1::Step* out) {
  out->set_step(in.step);
  out->set_end_monotonic_ns(in.end_monotonic_ns);
  out->set_phase(Utf8(in.phase));
  out->set_fw_allocated_bytes(in.fw_allocated_bytes);
  out->set_fw_reserved_bytes(in.fw_reserved_bytes);
  out->set_anon_bytes(in.anon_bytes);
  out->set_shmem_bytes(in.shmem_bytes);
  for (const StepGroupView& group : in.groups) {
    v1::StepGroup* g = out->add_groups();
    g->set_side(Text(ToString(group.side)));
    g->set_device(group.device);
    g->set_floor_bytes(group.floor_bytes);
    g->set_peak_bytes(group.peak_bytes);
    g->set_end_bytes(group.end_bytes);
  }
}

void Fill(const PhaseView& in, v1::Phase* out) {
  out->set_name(Utf8(in.name));
  out->set_first_step(in.first_step);
  out->set_last_step(in.last_step);
  out->set_start_monotonic_ns(in.start_monotonic_ns);
  out->set_end_monotonic_ns(in.end_monotonic_ns);
  for (const PhaseGroupView& group : in.groups) {
    v1::PhaseGroup* g = out->add_groups();
    g->set_memory_class(Text(tidemark::ToString(group.memory_class)));
    g->set_device(group.device);
    g->set_before_bytes(group.before_bytes);
    g->set_peak_bytes(group.peak_bytes);
    g->set_end_bytes(group.end_bytes);
  }
}

void Fill(const EventView& in, v1::Event* out) {
  out->set_type(Utf8(in.type));
  out->set_entry_point(Utf8(in.entry_point));
  out->set_unix_ns(in.unix_ns);
  out->set_step(in.step);
  out->set_code(in.code);
  out->set_device(in.device);
  out->set_bytes(in.bytes);
  out->set_site_id(in.site_id);
  out->set_text(Utf8(in.text));
}

void Fill(const EntryPointView& in, v1::EntryPoint* out) {
  out->set_entry_point(Utf8(in.entry_point));
  out->set_witness(Text(tidemark::ToString(in.witness)));
  out->set_calls(in.calls);
  out->set_failed_calls(in.failed_calls);
  out->set_requested_bytes(in.requested_bytes);
}

void Fill(const Waterfall& in, v1::Waterfall* out) {
  out->set_device(in.device);
  out->set_figure_known(in.figure_known);
  out->set_device_wide(in.device_wide);
  out->set_figure_source(Utf8(in.figure_source));
  out->set_figure_bytes(in.figure_bytes);
  for (const WaterfallLine& line : in.lines) {
    v1::WaterfallLine* l = out->add_lines();
    l->set_memory_class(Text(tidemark::ToString(line.memory_class)));
    l->set_bytes(line.bytes);
    l->set_note(Utf8(line.note));
  }
}

void Fill(const HostMemory& in, v1::HostMemory* out) {
  out->set_known(in.known);
  out->set_rss_bytes(in.rss_bytes);
  out->set_anon_bytes(in.anon_bytes);
  out->set_file_bytes(in.file_bytes);
  out->set_shmem_bytes(in.shmem_bytes);
  out->set_swap_bytes(in.swap_bytes);
  out->set_locked_bytes(in.locked_bytes);
  out->set_pinned_vm_bytes(in.pinned_vm_bytes);
  out->set_peak_rss_bytes(in.peak_rss_bytes);
  out->set_cgroup_current_bytes(in.cgroup_current_bytes);
  out->set_cgroup_limit_bytes(in.cgroup_limit_bytes);
}

void Fill(const detect::Verdict& in, v1::Verdict* out) {
  out->set_state(Text(detect::ToString(in.state)));
  out->set_cause(Text(detect::ToString(in.cause)));
  out->set_is_leak(detect::IsLeak(in.cause));
  out->set_memory_class(Text(tidemark::ToString(in.memory_class)));
  out->set_device(in.device);
  const bool by_steps = in.aligned_to == detect::AlignedTo::kSteps;
  if (by_steps) {
    out->set_slope_bytes_per_step(in.slope.per_unit);
    out->set_slope_low_bytes_per_step(in.slope.low);
    out->set_slope_high_bytes_per_step(in.slope.high);
  }
  out->set_slope_bytes_per_hour(in.slope.per_unit * (by_steps ? in.units_per_second : 1) * 3600);
  if (in.forecast) {
    if (by_steps) out->set_eta_steps(in.forecast->units_left);
    out->set_eta_seconds(
        in.forecast->seconds_left.value_or(by_steps ? 0 : in.forecast->units_left));
  }
  out->set_grown_bytes(in.grown_bytes);
  out->set_releasable_bytes(in.releasable_bytes);
  if (by_steps) {
    out->set_onset_step(in.onset);
    out->set_first_flagged_step(in.since);
  }
  if (in.site) {
    out->set_site_id(in.site->site_id);
    out->set_site_share(in.site->share_of_slope);
  }
  for (const std::string& line : in.evidence) out->add_evidence(Utf8(line));
  out->set_summary(Utf8(detect::Summarize(in)));
  out->set_advice(Text(detect::InfoOf(in.cause).action));
  out->set_scope(in.ranks.size() > 1 ? "job" : "rank");
  for (const int32_t rank : in.ranks) out->add_ranks(rank);
}

void FillSites(const SiteList& sites, const ProtoOptions& options, v1::Process* out) {
  std::vector<const SiteView*> order;
  order.reserve(sites.size());
  for (const auto& site : sites) order.push_back(site.get());
  const size_t keep =
      options.max_sites == 0 ? order.size() : std::min(options.max_sites, order.size());
  const auto larger = [](const SiteView* a, const SiteView* b) {
    if (a->live.bytes != b->live.bytes) return a->live.bytes > b->live.bytes;
    return a->info->id < b->info->id;  // so that equal snapshots give equal messages
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(keep), order.end(),
                    larger);
  out->mutable_sites()->Reserve(static_cast<int>(keep));
  for (size_t i = 0; i < keep; ++i) Fill(*order[i], out->add_sites());
  out->set_sites_omitted(static_cast<int32_t>(order.size() - keep));
}

}  // namespace

void ToProto(const ProcessSnapshot& process, v1::ProcessRef* out) {
  const Identity& identity = process.identity;
  out->set_pid(process.key.pid);
  out->set_start_time_ticks(process.key.start_time_ticks);
  out->set_boot_id(Utf8(process.key.boot_id));
  out->set_training_job(Utf8(identity.training_job));
  out->set_rank(identity.rank);
  out->set_local_rank(identity.local_rank);
  out->set_helper_of(identity.helper_of);
  out->set_command(Utf8(identity.command));
  out->set_run(Utf8(identity.run));
  out->set_attempt(identity.attempt);
}

void ToProto(const SiteView& site, v1::Site* out) { Fill(site, out); }
void ToProto(const detect::Verdict& verdict, v1::Verdict* out) { Fill(verdict, out); }

void ToProto(const ProcessSnapshot& process, const ProtoOptions& options, v1::Process* out) {
  out->set_pid(process.key.pid);
  out->set_start_time_ticks(process.key.start_time_ticks);
  Fill(process.identity, out->mutable_identity());
  out->set_liveness(Text(ToString(process.liveness)));
  out->set_exit_reason(Utf8(process.exit_reason));
  out->set_first_seen_unix_ns(process.first_seen_unix_ns);
  out->set_last_update_unix_ns(process.last_update_unix_ns);
  out->set_observed(process.observed);
  out->set_not_observed_reason(Utf8(process.not_observed_reason));
  for (const auto& feature : process.features) Fill(feature, out->add_features());
  for (const auto& total : process.totals) Fill(total, out->add_totals());
  for (const auto& peak : process.peaks) Fill(peak, out->add_peaks());
  if (!options.omit_sites) FillSites(*process.sites, options, out);
  if (!options.omit_steps) {
    const StepList& steps = *process.steps;
    const size_t keep =
        options.max_steps == 0 ? steps.size() : std::min(options.max_steps, steps.size());
    for (size_t i = steps.size() - keep; i < steps.size(); ++i) Fill(*steps[i], out->add_steps());
  }
  for (const auto& phase : process.phases) Fill(phase, out->add_phases());
  for (const auto& event : process.events) Fill(event, out->add_events());
  for (const auto& entry_point : process.entry_points) Fill(entry_point, out->add_entry_points());
  for (const auto& difference : process.witness_differences) {
    Fill(difference, out->add_witness_differences());
  }
  for (const auto& loss : process.losses) Fill(loss, out->add_losses());
  for (const auto& waterfall : process.waterfalls) Fill(waterfall, out->add_waterfalls());
  Fill(process.host, out->mutable_host());
  for (const auto& verdict : process.verdicts) Fill(verdict, out->add_verdicts());
  out->set_current_step(process.current_step);
  out->set_backward_passes(process.backward_passes);
  out->set_sampling_interval_bytes(process.sampling_interval_bytes);
  out->set_observer_host_bytes(process.observer_host_bytes);
}

void ToProto(const NodeSnapshot& snapshot, const ProtoOptions& options,
             const std::function<bool(const ProcessSnapshot&)>& visible, v1::Snapshot* out) {
  out->set_sequence(snapshot.sequence);
  out->set_unix_ns(snapshot.unix_ns);
  out->set_monotonic_ns(snapshot.monotonic_ns);
  out->set_node(Utf8(snapshot.node));
  out->set_boot_id(Utf8(snapshot.boot_id));
  for (const DeviceView& device : snapshot.devices) {
    v1::Device* d = out->add_devices();
    d->set_index(device.index);
    d->set_uuid(Utf8(device.uuid));
    d->set_name(Utf8(device.name));
    d->set_total_bytes(device.total_bytes);
    d->set_used_bytes(device.used_bytes);
    d->set_reserved_bytes(device.reserved_bytes);
    d->set_mig(device.mig);
  }
  v1::NodeMemory* memory = out->mutable_memory();
  memory->set_total_bytes(snapshot.memory.total_bytes);
  memory->set_available_bytes(snapshot.memory.available_bytes);
  memory->set_free_bytes(snapshot.memory.free_bytes);
  memory->set_page_cache_bytes(snapshot.memory.page_cache_bytes);
  memory->set_kernel_bytes(snapshot.memory.kernel_bytes);
  memory->set_shmem_bytes(snapshot.memory.shmem_bytes);
  for (const auto& source : snapshot.sources) Fill(source, out->add_sources());
  for (const auto& process : snapshot.processes) {
    if (!options.pids.empty() &&
        std::ranges::find(options.pids, process.key.pid) == options.pids.end()) {
      continue;
    }
    if (visible(process)) ToProto(process, options, out->add_processes());
  }
  for (const auto& loss : snapshot.losses) Fill(loss, out->add_losses());
  out->set_tick_ns(snapshot.tick_ns);
  out->set_daemon_rss_bytes(snapshot.daemon_rss_bytes);
  out->set_daemon_cpu_seconds(snapshot.daemon_cpu_seconds);
}

}  // namespace tidemark::serve
