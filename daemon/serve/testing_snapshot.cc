#include "daemon/serve/testing_snapshot.h"

#include <utility>

namespace tidemark::serve::testing {
namespace {

constexpr int64_t kMiB = 1 << 20;

std::shared_ptr<const SiteList> MakeSites(size_t count, int rank) {
  auto sites = std::make_shared<SiteList>();
  for (size_t i = 0; i < count; ++i) {
    const auto site =
        MakeSite(0x1000 + i, static_cast<int64_t>(i + 1) * kMiB, static_cast<uint32_t>(10 + i));
    auto copy = std::make_shared<SiteView>(*site);
    copy->device = rank;
    sites->push_back(std::move(copy));
  }
  return sites;
}

}  // namespace

std::shared_ptr<const SiteView> MakeSite(uint64_t id, int64_t live_bytes, uint32_t line) {
  auto info = std::make_shared<SiteInfo>();
  info->id = id;
  info->frames = {
      {wire::FrameKind::kNative, "c10::cuda::Allocate(unsigned long)", "/usr/lib/libc10_cuda.so",
       0},
      {wire::FrameKind::kPython, "cat", "/usr/lib/python3/site-packages/torch/functional.py", 7},
      {wire::FrameKind::kPython, "forward", "/home/ada/train/model.py", line}};
  info->blamed_frame = 2;
  auto site = std::make_shared<SiteView>();
  site->info = std::move(info);
  site->memory_class = MemoryClass::kFwLive;
  site->device = 0;
  site->witness = Witness::kTorch;
  site->live = {live_bytes, 2};
  site->allocated_bytes = static_cast<uint64_t>(live_bytes) * 2;
  site->freed_bytes = static_cast<uint64_t>(live_bytes);
  return site;
}

ProcessSnapshot MakeRank(pid_t pid, int rank, uid_t uid, size_t sites) {
  ProcessSnapshot process;
  process.key = {"boot", pid, 4711};
  Identity& identity = process.identity;
  identity.training_job = "gpt-7b";
  identity.job_source = "torchelastic";
  identity.launcher = "torchrun";
  identity.rank = rank;
  identity.local_rank = rank;
  identity.world_size = 16;
  identity.uid = uid;
  identity.command = "python3";
  process.observed = true;
  process.features = {{"cupti_callbacks", "on", ""},
                      {"framework_allocator", "on", ""},
                      {"bpf_libcuda", "unavailable", "bpf(2) denied; add CAP_BPF"}};

  const int device = rank;
  const auto total = [&](MemoryClass c, int at, Witness witness, int64_t bytes) {
    process.totals.push_back({.memory_class = c,
                              .device = at,
                              .witness = witness,
                              .live_bytes = bytes,
                              .peak_bytes = bytes * 2,
                              .allocated_bytes = static_cast<uint64_t>(bytes) * 3,
                              .freed_bytes = static_cast<uint64_t>(bytes) * 2,
                              .allocations = 30,
                              .frees = 20,
                              .failed_calls = 1});
  };
  total(MemoryClass::kDevice, device, Witness::kCupti, 900 * kMiB);
  total(MemoryClass::kManaged, device, Witness::kCupti, 5 * kMiB);
  total(MemoryClass::kFwLive, device, Witness::kTorch, 600 * kMiB);
  total(MemoryClass::kPinned, -1, Witness::kCupti, 64 * kMiB);
  total(MemoryClass::kPinned, -1, Witness::kBpf, 63 * kMiB);
  total(MemoryClass::kRegistered, -1, Witness::kCupti, 32 * kMiB);
  total(MemoryClass::kFwHost, -1, Witness::kTorch, 16 * kMiB);

  Waterfall waterfall;
  waterfall.device = device;
  waterfall.figure_known = true;
  waterfall.figure_source = "nvml";
  waterfall.figure_bytes = 1500 * kMiB;
  waterfall.lines = {{MemoryClass::kContext, 518 * kMiB, ""},
                     {MemoryClass::kFwLive, 600 * kMiB, ""},
                     {MemoryClass::kFwCache, 200 * kMiB, ""},
                     {MemoryClass::kDevice, 100 * kMiB, ""},
                     {MemoryClass::kPool, 10 * kMiB, ""},
                     {MemoryClass::kVmm, 9 * kMiB, ""},
                     {MemoryClass::kArray, 1 * kMiB, ""},
                     {MemoryClass::kGraph, 2 * kMiB, ""},
                     {MemoryClass::kObserver, 0, ""},
                     {MemoryClass::kUnattributed, 60 * kMiB, "stack limit raised"}};
  process.waterfalls.push_back(std::move(waterfall));

  for (const auto side : {wire::PeakSide::kFramework, wire::PeakSide::kDriverDevice,
                          wire::PeakSide::kPinned, wire::PeakSide::kHostFramework}) {
    const bool host = side == wire::PeakSide::kPinned || side == wire::PeakSide::kHostFramework;
    process.peaks.push_back({side, host ? -1 : device, 600 * kMiB, 700 * kMiB, 9, 1});
  }
  auto step = std::make_shared<StepView>();
  step->step = 41;
  step->phase = "train";
  step->groups = {{wire::PeakSide::kFramework, device, 500 * kMiB, 700 * kMiB, 600 * kMiB},
                  {wire::PeakSide::kDriverDevice, device, 900 * kMiB, 900 * kMiB, 900 * kMiB}};
  process.steps = std::make_shared<StepList>(StepList{std::move(step)});
  process.current_step = 41;
  process.host.known = true;
  process.host.anon_bytes = 3000 * kMiB;
  process.host.file_bytes = 400 * kMiB;
  process.host.shmem_bytes = 100 * kMiB;
  process.host.cgroup_current_bytes = 4000 * kMiB;
  process.host.cgroup_limit_bytes = 8000 * kMiB;
  process.observer_host_bytes = 2 * kMiB;
  process.losses = {{"records_dropped", 3, 4096}};
  process.sites = MakeSites(sites, device);

  detect::Verdict verdict;
  verdict.state = detect::VerdictState::kConfirmed;
  verdict.cause = detect::Cause::kTensorsKept;
  verdict.memory_class = MemoryClass::kFwLive;
  verdict.device = device;
  verdict.slope = {8.0 * kMiB, 7.9 * kMiB, 8.1 * kMiB};
  verdict.units_per_second = 2;
  verdict.ranks = {rank};
  verdict.site = detect::SiteBlame{.site_id = 0x1000, .share_of_slope = 0.97};
  verdict.forecast.emplace();
  verdict.forecast->units_left = 4000;
  verdict.forecast->seconds_left = 2000;
  process.verdicts.push_back(std::move(verdict));
  return process;
}

NodeSnapshot MakeNode(size_t ranks, size_t sites, uint64_t sequence) {
  NodeSnapshot node;
  node.sequence = sequence;
  node.unix_ns = 1'790'000'000'000'000'000;
  node.monotonic_ns = MonotonicNow();
  node.node = "node-7";
  node.boot_id = "boot";
  node.sources = {{"agent_socket", "on", ""}, {"nvml", "on", ""}};
  node.losses = {{"handshake_refused", 2, 0}};
  node.memory = {256LL << 30, 128LL << 30, 64LL << 30, 32LL << 30, 2LL << 30, 1LL << 30};
  node.tick_ns = 1'500'000;
  node.daemon_rss_bytes = 20 * kMiB;
  node.daemon_cpu_seconds = 1.25;
  for (size_t i = 0; i < ranks; ++i) {
    const int rank = static_cast<int>(i);
    node.devices.push_back({rank, "GPU-" + std::to_string(rank), "NVIDIA H200", 140LL << 30,
                            70LL << 30, 1LL << 30, false});
    node.processes.push_back(MakeRank(1000 + rank, rank, 1000, sites));
  }
  return node;
}

}  // namespace tidemark::serve::testing
