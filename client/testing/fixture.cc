#include "client/testing/fixture.h"

#include "client/recording.h"

namespace tidemark::client::testing {
namespace {

constexpr uint64_t kSteps = 120;

void AddFrame(v1::Site& site, const std::string& file, uint32_t line, const std::string& function) {
  v1::Frame* frame = site.add_frames();
  frame->set_kind("python");
  frame->set_file(file);
  frame->set_line(line);
  frame->set_function(function);
}

void Hold(v1::BytesAndCount* held, int64_t count, int64_t block_bytes) {
  held->set_count(count);
  held->set_bytes(count * block_bytes);
}

v1::Peak* AddPeak(v1::Process& process, const std::string& side, int64_t live, int64_t peak,
                  uint64_t step) {
  v1::Peak* entry = process.add_peaks();
  entry->set_side(side);
  entry->set_device(side == "pinned" ? -1 : process.identity().local_rank());
  entry->set_live_bytes(live);
  entry->set_peak_bytes(peak);
  entry->set_peak_step(step);
  return entry;
}

void AddPhaseGroup(v1::Phase& phase, const std::string& memory_class, int device, int64_t before,
                   int64_t peak, int64_t end) {
  v1::PhaseGroup* group = phase.add_groups();
  group->set_memory_class(memory_class);
  group->set_device(device);
  group->set_before_bytes(before);
  group->set_peak_bytes(peak);
  group->set_end_bytes(end);
}

void SetHost(v1::Process& process, int64_t anon) {
  v1::HostMemory* host = process.mutable_host();
  host->set_known(true);
  host->set_anon_bytes(anon);
  host->set_file_bytes(256 * kMiB);
  host->set_shmem_bytes(128 * kMiB);
  host->set_rss_bytes(anon + 384 * kMiB);
  host->set_peak_rss_bytes(anon + 512 * kMiB);
  host->set_cgroup_current_bytes(-1);
  host->set_cgroup_limit_bytes(-1);
}

// 1 GiB of weights since loading, and `growth` more by the last step; anon stays at 2 GiB.
void AddTraining(v1::Process& process, int64_t growth_per_step) {
  const int64_t growth = growth_per_step * static_cast<int64_t>(kSteps);
  const int device = process.identity().local_rank();
  process.set_current_step(kSteps);
  process.set_backward_passes(kSteps);
  v1::Site* weights =
      AddSite(process, kWeightsSite, "/home/me/train/model.py", 12, "__init__", 4, 256 * kMiB);
  Hold(weights->mutable_at_load(), 4, 256 * kMiB);
  weights->add_cohort_bytes(kGiB);

  AddTotal(process, "fw_live", "torch", kGiB + growth, kGiB + growth + 512 * kMiB);
  AddTotal(process, "fw_cache", "torch", 512 * kMiB, 512 * kMiB);
  AddTotal(process, "device", "cupti", kGiB + growth + 512 * kMiB, kGiB + growth + 512 * kMiB);
  AddTotal(process, "pinned", "cupti", 128 * kMiB, 128 * kMiB);
  AddPeak(process, "framework", kGiB + growth, kGiB + growth + 512 * kMiB, kSteps);
  AddPeak(process, "driver_device", kGiB + growth + 512 * kMiB, kGiB + growth + 512 * kMiB, kSteps);
  SetHost(process, 2 * kGiB);

  v1::Phase* load = process.add_phases();
  load->set_name("load");
  AddPhaseGroup(*load, "fw_live", device, 0, kGiB, kGiB);
  AddPhaseGroup(*load, "anon", -1, 512 * kMiB, 3 * kGiB, 2 * kGiB);
  v1::Phase* train = process.add_phases();
  train->set_name("train");
  train->set_first_step(1);
  train->set_last_step(kSteps);
  AddPhaseGroup(*train, "fw_live", device, kGiB, kGiB + growth + 512 * kMiB, kGiB + growth);

  for (uint64_t s = kSteps - 9; s <= kSteps; ++s) {
    v1::Step* step = process.add_steps();
    step->set_step(s);
    step->set_phase("train");
    step->set_anon_bytes(2 * kGiB);
    step->set_shmem_bytes(128 * kMiB);
    const int64_t live = kGiB + growth_per_step * static_cast<int64_t>(s);
    v1::StepGroup* framework = step->add_groups();
    framework->set_side("framework");
    framework->set_device(device);
    framework->set_floor_bytes(live);
    framework->set_peak_bytes(live + 512 * kMiB);
    framework->set_end_bytes(live);
    v1::StepGroup* pinned = step->add_groups();
    pinned->set_side("pinned");
    pinned->set_device(-1);
    pinned->set_end_bytes(128 * kMiB);
  }

  v1::Waterfall* waterfall = process.add_waterfalls();
  waterfall->set_device(device);
  waterfall->set_figure_known(true);
  waterfall->set_figure_source("nvml");
  int64_t sum = 0;
  const auto line = [&](const std::string& memory_class, int64_t bytes, const std::string& note) {
    v1::WaterfallLine* entry = waterfall->add_lines();
    entry->set_memory_class(memory_class);
    entry->set_bytes(bytes);
    entry->set_note(note);
    sum += bytes;
  };
  line("context", 518 * kMiB, "");
  line("fw_live", kGiB + growth, "");
  line("fw_cache", 512 * kMiB, "");
  line("unattributed", -2 * kMiB, "");
  waterfall->set_figure_bytes(sum);
}

}  // namespace

v1::Process* AddRank(v1::Snapshot& snapshot, int rank, int world_size) {
  v1::Process* process = snapshot.add_processes();
  process->set_pid(1000 + rank);
  process->set_start_time_ticks(77);
  process->set_liveness("alive");
  process->set_observed(true);
  v1::Identity* identity = process->mutable_identity();
  identity->set_training_job("job-1");
  identity->set_job_source("TIDEMARK_JOB");
  identity->set_launcher("torchrun");
  identity->set_rank(rank);
  identity->set_local_rank(rank);
  identity->set_world_size(world_size);
  identity->set_local_world_size(world_size);
  identity->set_command("python3");
  identity->set_run("run-1");
  return process;
}

v1::Site* AddSite(v1::Process& process, uint64_t id, const std::string& file, uint32_t line,
                  const std::string& function, int64_t count, int64_t block_bytes) {
  v1::Site* site = process.add_sites();
  site->set_id(id);
  AddFrame(*site, "/usr/lib/python3/dist-packages/torch/functional.py", 99, "cat");
  AddFrame(*site, file, line, function);
  AddFrame(*site, "/home/me/train/train.py", 7, "main");
  site->set_blamed_frame(1);
  site->set_memory_class("fw_live");
  site->set_device(process.identity().local_rank());
  site->set_witness("torch");
  Hold(site->mutable_live(), count, block_bytes);
  Hold(site->mutable_at_peak(), count, block_bytes);
  Hold(site->mutable_at_last_step(), count, block_bytes);
  site->set_min_block_bytes(static_cast<uint64_t>(block_bytes));
  site->set_max_block_bytes(static_cast<uint64_t>(block_bytes));
  site->set_allocated_bytes(static_cast<uint64_t>(count * block_bytes));
  site->set_allocated_count(static_cast<uint64_t>(count));
  return site;
}

v1::ClassTotal* AddTotal(v1::Process& process, const std::string& memory_class,
                         const std::string& witness, int64_t live_bytes, int64_t peak_bytes) {
  v1::ClassTotal* total = process.add_totals();
  total->set_memory_class(memory_class);
  total->set_device(memory_class == "pinned" ? -1 : process.identity().local_rank());
  total->set_witness(witness);
  total->set_live_bytes(live_bytes);
  total->set_peak_bytes(peak_bytes);
  total->set_allocated_bytes(static_cast<uint64_t>(peak_bytes));
  total->set_freed_bytes(static_cast<uint64_t>(peak_bytes - live_bytes));
  total->set_allocations(10);
  total->set_frees(4);
  return total;
}

v1::Snapshot EmptySnapshot() {
  v1::Snapshot snapshot;
  snapshot.set_sequence(7);
  snapshot.set_unix_ns(1'800'000'000'000'000'000);
  snapshot.set_monotonic_ns(1'000'000'000'000);
  snapshot.set_node("node-a");
  snapshot.set_daemon_version("0.1.0");
  snapshot.set_metrics_url("http://127.0.0.1:9470/metrics");
  return snapshot;
}

v1::Snapshot LeakingSnapshot(int ranks) {
  v1::Snapshot snapshot = EmptySnapshot();
  for (int rank = 0; rank < ranks; ++rank) {
    v1::Process* process = AddRank(snapshot, rank, ranks);
    AddTraining(*process, 8 * kMiB);
    v1::Site* leak = AddSite(*process, kLeakingSite, "/home/me/train/model.py", 41, "forward",
                             static_cast<int64_t>(kSteps), 8 * kMiB);
    leak->set_first_step(1);
    leak->set_last_step(kSteps);
    leak->set_cohort_shift(3);  // a cohort is 8 steps
    leak->add_cohort_bytes(7 * 8 * kMiB);
    for (int c = 1; c < 15; ++c) leak->add_cohort_bytes(8 * 8 * kMiB);
    leak->add_cohort_bytes(8 * kMiB);
    v1::Verdict* verdict = process->add_verdicts();
    verdict->set_state("confirmed");
    verdict->set_cause("tensors_kept");
    verdict->set_is_leak(true);
    verdict->set_memory_class("fw_live");
    verdict->set_device(rank);
    verdict->set_site_id(kLeakingSite);
    verdict->set_site_share(0.97);
    verdict->set_slope_bytes_per_step(8.0 * kMiB);
    verdict->set_slope_low_bytes_per_step(7.9 * kMiB);
    verdict->set_slope_high_bytes_per_step(8.1 * kMiB);
    verdict->set_eta_steps(412);
    verdict->set_eta_seconds(160);
    verdict->set_grown_bytes(960 * kMiB);
    verdict->set_onset_step(12);
    verdict->set_scope("rank");
    verdict->add_ranks(rank);
    verdict->add_evidence("every generation since step 12 is still alive");
    verdict->set_advice("find the holder");
  }
  return snapshot;
}

v1::Snapshot SteadySnapshot(int ranks) {
  v1::Snapshot snapshot = EmptySnapshot();
  for (int rank = 0; rank < ranks; ++rank) {
    v1::Process* process = AddRank(snapshot, rank, ranks);
    AddTraining(*process, 0);
    v1::Verdict* verdict = process->add_verdicts();
    verdict->set_state("steady");
    verdict->set_cause("none");
    verdict->set_memory_class("fw_live");
    verdict->set_device(rank);
  }
  return snapshot;
}

v1::Snapshot MasksSnapshot(int ranks) {
  v1::Snapshot snapshot = EmptySnapshot();
  for (int rank = 0; rank < ranks; ++rank) {
    v1::Process* process = AddRank(snapshot, rank, ranks);
    const int64_t shard = 8 * kGiB / ranks;
    v1::Site* masks =
        AddSite(*process, kMaskSite, "/home/me/train/attention.py", 23, "__init__", 36, 256 * kMiB);
    v1::Site* weights =
        AddSite(*process, kWeightsSite, "/home/me/train/zero.py", 61, "partition", 36, shard / 36);
    for (v1::Site* site : {masks, weights}) {
      *site->mutable_at_load() = site->live();
      site->clear_at_last_step();
      site->add_cohort_bytes(site->live().bytes());
    }
    const int64_t live = masks->live().bytes() + weights->live().bytes();
    AddTotal(*process, "fw_live", "torch", live, live);
    AddPeak(*process, "framework", live, live, 0);
    v1::Phase* load = process->add_phases();
    load->set_name("load");
    AddPhaseGroup(*load, "fw_live", rank, 0, live, live);
  }
  return snapshot;
}

v1::Recording RecordingOf(const v1::Snapshot& snapshot, int exit_code) {
  v1::Recording recording;
  recording.set_version(kRecordingVersion);
  recording.set_tidemark_version("0.1.0");
  recording.set_start_unix_ns(1'800'000'000'000'000'000);
  recording.set_end_unix_ns(1'800'000'041'000'000'000);
  recording.set_exit_code(exit_code);
  *recording.mutable_snapshot() = snapshot;
  return recording;
}

}  // namespace tidemark::client::testing
