#include "daemon/serve/to_proto.h"

#include <gtest/gtest.h>

#include <set>

#include "daemon/serve/testing_snapshot.h"
#include "daemon/serve/utf8.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::serve {
namespace {

constexpr auto kAll = [](const ProcessSnapshot&) { return true; };

// Every field of every part holds a value of its own that is not the default.
ProcessSnapshot FullProcess() {
  ProcessSnapshot p;
  p.key = {"boot", 101, 102};
  p.identity = {.training_job = "job",
                .job_source = "slurm",
                .launcher = "srun",
                .rank = 3,
                .local_rank = 1,
                .world_size = 8,
                .local_world_size = 4,
                .attempt = 2,
                .uid = 1001,
                .command = "python3",
                .container = "c0ffee",
                .workload_namespace = "ml",
                .workload_pod = "pod-1",
                .workload_container = "main",
                .helper_of = 99,
                .run = "run-1"};
  p.liveness = Liveness::kKilled;
  p.exit_reason = "killed by the OOM killer";
  p.first_seen_unix_ns = 103;
  p.last_update_unix_ns = 104;
  p.observed = true;
  p.not_observed_reason = "none";
  p.features = {{"cupti_callbacks", "yielded", "to Kineto"}};
  p.totals = {{MemoryClass::kVmm, 1, Witness::kBpf, 11, 12, 13, 14, 15, 16, 17, 18, 19, true}};
  p.peaks = {{wire::PeakSide::kDriverDevice, 1, 21, 22, 23, 24}};
  auto info = std::make_shared<SiteInfo>();
  info->id = 0xfeedfacecafebeef;
  info->frames = {{wire::FrameKind::kNative, "f", "libf.so", 1},
                  {wire::FrameKind::kPython, "g", "g.py", 32}};
  info->blamed_frame = 1;
  info->truncated = true;
  auto site = std::make_shared<SiteView>();
  site->info = info;
  site->memory_class = MemoryClass::kPinned;
  site->device = -1;
  site->witness = Witness::kTorch;
  site->estimated = true;
  site->live = {41, 42};
  site->at[static_cast<size_t>(wire::Moment::kPeak)] = {43, 44};
  site->at[static_cast<size_t>(wire::Moment::kLoad)] = {45, 46};
  site->at[static_cast<size_t>(wire::Moment::kStepEnd)] = {47, 48};
  site->allocated_bytes = 49;
  site->freed_bytes = 50;
  site->allocated_count = 51;
  site->min_block_bytes = 52;
  site->max_block_bytes = 53;
  site->first_step = 54;
  site->last_step = 55;
  site->cohort_shift = 56;
  for (size_t i = 0; i < site->cohort_bytes.size(); ++i) {
    site->cohort_bytes[i] = static_cast<int64_t>(60 + i);
  }
  p.sites = std::make_shared<SiteList>(SiteList{site});
  auto step = std::make_shared<StepView>();
  *step = {81, 82, "train", 83, 84, 85, 86, {{wire::PeakSide::kPinned, -1, 87, 88, 89}}};
  p.steps = std::make_shared<StepList>(StepList{step});
  p.phases = {{"load", 91, 92, 93, 94, {{MemoryClass::kAnon, -1, 95, 96, 97}}}};
  p.events = {{"allocation_failed", "cuMemAlloc_v2", 111, 112, 2, 1, 113, 114, "text"}};
  p.entry_points = {{"cuMemCreate", Witness::kBpf, 121, 122, 123}};
  p.witness_differences = {{"cuMemMap", 124, -125, -126, 127, 128}};
  p.losses = {{"live_table_full", 131, 132}};
  p.waterfalls = {
      {1, true, true, "nvml", 141, {{MemoryClass::kUnattributed, -142, "stack limit"}}}};
  p.host = {true, 151, 152, 153, 154, 155, 156, 157, 158, 159, 160};
  detect::Verdict v;
  v.state = detect::VerdictState::kSuspect;
  v.cause = detect::Cause::kPinnedGrowth;
  v.memory_class = MemoryClass::kPinned;
  v.device = -1;
  v.ranks = {3, 5};
  v.slope = {10, 9, 11};
  v.units_per_second = 2;
  v.grown_bytes = 171;
  v.releasable_bytes = 172;
  v.onset = 173;
  v.since = 174;
  v.site = detect::SiteBlame{.site_id = 175, .share_of_slope = 0.5};
  v.forecast.emplace();
  v.forecast->units_left = 176;
  v.forecast->seconds_left = 177;
  v.evidence = {"first", "second"};
  p.verdicts = {v};
  p.current_step = 181;
  p.backward_passes = 182;
  p.sampling_interval_bytes = 183;
  p.observer_host_bytes = 184;
  return p;
}

// Names of fields that hold their default anywhere in the message: what the conversion forgot.
void FindDefaults(const google::protobuf::Message& message, std::set<std::string>* unset) {
  const auto* reflection = message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> set;
  reflection->ListFields(message, &set);
  const auto* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    if (std::find(set.begin(), set.end(), field) == set.end()) unset->insert(field->full_name());
  }
  for (const auto* field : set) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      FindDefaults(reflection->GetMessage(message, field), unset);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      FindDefaults(reflection->GetRepeatedMessage(message, field, i), unset);
    }
  }
}

TEST(ToProto, LeavesNoFieldOfAProcessOut) {
  v1::Process out;
  ToProto(FullProcess(), {}, &out);
  std::set<std::string> unset;
  FindDefaults(out, &unset);
  EXPECT_EQ(unset, std::set<std::string>{"tidemark.v1.Process.sites_omitted"});
}

TEST(ToProto, CarriesEachFieldOfAProcess) {
  v1::Process out;
  ToProto(FullProcess(), {}, &out);
  EXPECT_EQ(out.pid(), 101);
  EXPECT_EQ(out.start_time_ticks(), 102u);
  EXPECT_EQ(out.identity().ShortDebugString(),
            "training_job: \"job\" job_source: \"slurm\" launcher: \"srun\" rank: 3 local_rank: 1 "
            "world_size: 8 local_world_size: 4 attempt: 2 uid: 1001 command: \"python3\" "
            "container: \"c0ffee\" workload_namespace: \"ml\" workload_pod: \"pod-1\" "
            "workload_container: \"main\" helper_of: 99 run: \"run-1\"");
  EXPECT_EQ(out.liveness(), "killed");
  EXPECT_EQ(out.exit_reason(), "killed by the OOM killer");
  EXPECT_EQ(out.first_seen_unix_ns(), 103u);
  EXPECT_EQ(out.last_update_unix_ns(), 104u);
  EXPECT_TRUE(out.observed());
  EXPECT_EQ(out.not_observed_reason(), "none");
  EXPECT_EQ(out.features(0).ShortDebugString(),
            "name: \"cupti_callbacks\" state: \"yielded\" reason: \"to Kineto\"");
  EXPECT_EQ(out.totals(0).ShortDebugString(),
            "memory_class: \"vmm\" device: 1 witness: \"bpf\" live_bytes: 11 peak_bytes: 12 "
            "allocated_bytes: 13 freed_bytes: 14 allocations: 15 frees: 16 failed_calls: 17 "
            "untracked_bytes: 18 unknown_frees: 19 before_attach: true");
  EXPECT_EQ(out.peaks(0).ShortDebugString(),
            "side: \"driver_device\" device: 1 live_bytes: 21 peak_bytes: 22 peak_step: 23 "
            "peak_monotonic_ns: 24");
  EXPECT_EQ(out.steps(0).ShortDebugString(),
            "step: 81 end_monotonic_ns: 82 phase: \"train\" fw_allocated_bytes: 83 "
            "fw_reserved_bytes: 84 anon_bytes: 85 shmem_bytes: 86 groups { side: \"pinned\" "
            "device: -1 floor_bytes: 87 peak_bytes: 88 end_bytes: 89 }");
  EXPECT_EQ(out.phases(0).ShortDebugString(),
            "name: \"load\" first_step: 91 last_step: 92 start_monotonic_ns: 93 "
            "end_monotonic_ns: 94 groups { memory_class: \"anon\" device: -1 before_bytes: 95 "
            "peak_bytes: 96 end_bytes: 97 }");
  EXPECT_EQ(out.events(0).ShortDebugString(),
            "type: \"allocation_failed\" entry_point: \"cuMemAlloc_v2\" unix_ns: 111 step: 112 "
            "code: 2 device: 1 bytes: 113 site_id: 114 text: \"text\"");
  EXPECT_EQ(out.entry_points(0).ShortDebugString(),
            "entry_point: \"cuMemCreate\" witness: \"bpf\" calls: 121 failed_calls: 122 "
            "requested_bytes: 123");
  EXPECT_EQ(out.witness_differences(0).ShortDebugString(),
            "entry_point: \"cuMemMap\" compared_calls: 124 calls: -125 bytes: -126 "
            "calls_last_minute: 127 bytes_last_minute: 128");
  EXPECT_EQ(out.losses(0).ShortDebugString(), "cause: \"live_table_full\" count: 131 bytes: 132");
  EXPECT_EQ(out.waterfalls(0).ShortDebugString(),
            "device: 1 figure_known: true device_wide: true figure_source: \"nvml\" "
            "figure_bytes: 141 lines { memory_class: \"unattributed\" bytes: -142 "
            "note: \"stack limit\" }");
  EXPECT_EQ(out.host().ShortDebugString(),
            "known: true rss_bytes: 151 anon_bytes: 152 file_bytes: 153 shmem_bytes: 154 "
            "swap_bytes: 155 locked_bytes: 156 pinned_vm_bytes: 157 peak_rss_bytes: 158 "
            "cgroup_current_bytes: 159 cgroup_limit_bytes: 160");
  EXPECT_EQ(out.current_step(), 181u);
  EXPECT_EQ(out.backward_passes(), 182u);
  EXPECT_EQ(out.sampling_interval_bytes(), 183u);
  EXPECT_EQ(out.observer_host_bytes(), 184);
}

TEST(ToProto, CarriesEachFieldOfASite) {
  v1::Process out;
  ToProto(FullProcess(), {}, &out);
  ASSERT_EQ(out.sites_size(), 1);
  v1::Site site = out.sites(0);
  ASSERT_EQ(site.cohort_bytes_size(), static_cast<int>(wire::kCohorts));
  for (int i = 0; i < site.cohort_bytes_size(); ++i) EXPECT_EQ(site.cohort_bytes(i), 60 + i);
  site.clear_cohort_bytes();
  EXPECT_EQ(site.ShortDebugString(),
            "id: 18369614221190020847 frames { kind: \"native\" function: \"f\" file: \"libf.so\" "
            "line: 1 } frames { kind: \"python\" function: \"g\" file: \"g.py\" line: 32 } "
            "blamed_frame: 1 truncated: true memory_class: \"pinned\" device: -1 "
            "witness: \"torch\" estimated: true live { bytes: 41 count: 42 } at_peak { bytes: 43 "
            "count: 44 } at_load { bytes: 45 count: 46 } at_last_step { bytes: 47 count: 48 } "
            "allocated_bytes: 49 freed_bytes: 50 allocated_count: 51 min_block_bytes: 52 "
            "max_block_bytes: 53 first_step: 54 last_step: 55 cohort_shift: 56");
}

TEST(ToProto, SaysPerHourFromThePaceOfSteps) {
  v1::Process out;
  ToProto(FullProcess(), {}, &out);
  const v1::Verdict& v = out.verdicts(0);
  EXPECT_EQ(v.state(), "suspect");
  EXPECT_EQ(v.cause(), "pinned_growth");
  EXPECT_TRUE(v.is_leak());
  EXPECT_EQ(v.memory_class(), "pinned");
  EXPECT_EQ(v.device(), -1);
  EXPECT_EQ(v.site_id(), 175u);
  EXPECT_EQ(v.site_share(), 0.5);
  EXPECT_EQ(v.slope_bytes_per_step(), 10);
  EXPECT_EQ(v.slope_low_bytes_per_step(), 9);
  EXPECT_EQ(v.slope_high_bytes_per_step(), 11);
  EXPECT_EQ(v.slope_bytes_per_hour(), 72000);
  EXPECT_EQ(v.eta_steps(), 176);
  EXPECT_EQ(v.eta_seconds(), 177);
  EXPECT_EQ(v.grown_bytes(), 171);
  EXPECT_EQ(v.releasable_bytes(), 172);
  EXPECT_EQ(v.onset_step(), 173u);
  EXPECT_EQ(v.first_flagged_step(), 174u);
  ASSERT_EQ(v.evidence_size(), 2);
  EXPECT_EQ(v.evidence(0), "first");
  EXPECT_FALSE(v.summary().empty());
  EXPECT_EQ(v.advice(), detect::InfoOf(detect::Cause::kPinnedGrowth).action);
  EXPECT_EQ(v.scope(), "job");
  ASSERT_EQ(v.ranks_size(), 2);
  EXPECT_EQ(v.ranks(1), 5);
}

TEST(ToProto, NeverCallsASlopePerSecondOnePerStep) {
  ProcessSnapshot process = FullProcess();
  detect::Verdict& verdict = process.verdicts[0];
  verdict.aligned_to = detect::AlignedTo::kSeconds;
  verdict.units_per_second = 1;
  verdict.forecast->seconds_left.reset();
  v1::Process out;
  ToProto(process, {}, &out);
  EXPECT_EQ(out.verdicts(0).slope_bytes_per_step(), 0);
  EXPECT_EQ(out.verdicts(0).slope_bytes_per_hour(), 36000);
  EXPECT_EQ(out.verdicts(0).eta_steps(), 0);
  EXPECT_EQ(out.verdicts(0).eta_seconds(), 176);
  EXPECT_EQ(out.verdicts(0).onset_step(), 0u);
}

TEST(ToProto, CarriesEachFieldOfTheNode) {
  NodeSnapshot node = testing::MakeNode(1);
  node.devices[0].mig = true;
  v1::Snapshot out;
  ToProto(node, {}, kAll, &out);
  EXPECT_EQ(out.sequence(), 1u);
  EXPECT_EQ(out.unix_ns(), node.unix_ns);
  EXPECT_EQ(out.monotonic_ns(), node.monotonic_ns);
  EXPECT_EQ(out.node(), "node-7");
  EXPECT_EQ(out.boot_id(), "boot");
  ASSERT_EQ(out.devices_size(), 1);
  EXPECT_EQ(out.devices(0).ShortDebugString(),
            "uuid: \"GPU-0\" name: \"NVIDIA H200\" total_bytes: 150323855360 "
            "used_bytes: 75161927680 reserved_bytes: 1073741824 mig: true");
  EXPECT_EQ(out.memory().ShortDebugString(),
            "total_bytes: 274877906944 available_bytes: 137438953472 free_bytes: 68719476736 "
            "page_cache_bytes: 34359738368 kernel_bytes: 2147483648 shmem_bytes: 1073741824");
  ASSERT_EQ(out.sources_size(), 2);
  EXPECT_EQ(out.sources(1).name(), "nvml");
  ASSERT_EQ(out.losses_size(), 1);
  EXPECT_EQ(out.losses(0).cause(), "handshake_refused");
  EXPECT_EQ(out.tick_ns(), 1'500'000u);
  EXPECT_EQ(out.daemon_rss_bytes(), 20 << 20);
  EXPECT_EQ(out.daemon_cpu_seconds(), 1.25);
  EXPECT_EQ(out.processes_size(), 1);
}

TEST(ToProto, KeepsTheLargestSitesInOrderAndCountsTheRest) {
  v1::Process out;
  ToProto(testing::MakeRank(1, 0, 0, 10), {.max_sites = 3}, &out);
  ASSERT_EQ(out.sites_size(), 3);
  EXPECT_EQ(out.sites(0).live().bytes(), 10 << 20);
  EXPECT_EQ(out.sites(2).live().bytes(), 8 << 20);
  EXPECT_EQ(out.sites_omitted(), 7);
}

TEST(ToProto, KeepsTheLatestSteps) {
  ProcessSnapshot process;
  auto steps = std::make_shared<StepList>();
  for (uint64_t i = 1; i <= 5; ++i) {
    auto step = std::make_shared<StepView>();
    step->step = i;
    steps->push_back(std::move(step));
  }
  process.steps = std::move(steps);
  v1::Process out;
  ToProto(process, {.max_steps = 2}, &out);
  ASSERT_EQ(out.steps_size(), 2);
  EXPECT_EQ(out.steps(0).step(), 4u);
  EXPECT_EQ(out.steps(1).step(), 5u);
}

TEST(ToProto, LeavesOutWhatIsNotWanted) {
  v1::Snapshot out;
  ToProto(testing::MakeNode(3), {.pids = {1001}, .omit_sites = true, .omit_steps = true}, kAll,
          &out);
  ASSERT_EQ(out.processes_size(), 1);
  EXPECT_EQ(out.processes(0).pid(), 1001);
  EXPECT_EQ(out.processes(0).sites_size(), 0);
  EXPECT_EQ(out.processes(0).steps_size(), 0);
}

TEST(ToProto, LeavesNoTraceOfWhatIsNotVisible) {
  v1::Snapshot out;
  ToProto(
      testing::MakeNode(2), {}, [](const ProcessSnapshot& p) { return p.key.pid != 1000; }, &out);
  ASSERT_EQ(out.processes_size(), 1);
  EXPECT_EQ(out.processes(0).pid(), 1001);
}

TEST(ToProto, ASiteWithoutFramesBlamesNone) {
  ProcessSnapshot process;
  auto site = std::make_shared<SiteView>();
  site->info = std::make_shared<SiteInfo>();
  process.sites = std::make_shared<SiteList>(SiteList{site});
  v1::Process out;
  ToProto(process, {}, &out);
  EXPECT_EQ(out.sites(0).blamed_frame(), -1);
}

TEST(ToProto, TextThatIsNoUtf8DoesNotBreakTheMessage) {
  ProcessSnapshot process;
  process.identity.training_job = "job\xff\xfe";
  v1::Process out;
  ToProto(process, {}, &out);
  EXPECT_EQ(out.identity().training_job(), "job\xEF\xBF\xBD\xEF\xBF\xBD");
  v1::Process again;
  EXPECT_TRUE(again.ParseFromString(out.SerializeAsString()));
}

TEST(Utf8, KeepsWhatIsWellFormedAndReplacesTheRest) {
  EXPECT_EQ(Utf8("plain"), "plain");
  EXPECT_EQ(Utf8("h\u00f6her \u20ac \U0001F30A"), "h\u00f6her \u20ac \U0001F30A");
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(Utf8("\xC0\xAF"), bad + bad);                      // overlong
  EXPECT_EQ(Utf8("\xED\xA0\x80"), bad + bad + bad);            // surrogate
  EXPECT_EQ(Utf8("\xF4\x90\x80\x80"), bad + bad + bad + bad);  // past U+10FFFF
  EXPECT_EQ(Utf8("a\xE2\x82"), "a" + bad + bad);               // cut off
  EXPECT_EQ(Utf8(std::string_view("\0x", 2)), std::string_view("\0x", 2));
}

}  // namespace
}  // namespace tidemark::serve
