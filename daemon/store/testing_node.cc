#include "daemon/store/testing_node.h"

namespace tidemark {

TestingNode::TestingNode(int ranks, int sites, bool steps) : ranks_(ranks), steps_(steps) {
  for (int i = 0; i < sites; ++i) {
    auto info = std::make_shared<SiteInfo>();
    info->id = static_cast<uint64_t>(i + 1);
    info->frames = {
        {wire::FrameKind::kPython, "forward", "/job/model.py", static_cast<uint32_t>(i)},
        {wire::FrameKind::kPython, "main", "/job/train.py", 7}};
    sites_.push_back(std::move(info));
  }
  step_lists_.assign(static_cast<size_t>(ranks), std::make_shared<StepList>());
}

ProcessKey TestingNode::KeyOf(int rank) const { return {"boot", kFirstPid + rank, 7}; }

NodeSnapshot TestingNode::At(uint64_t second) {
  constexpr int64_t kMiB = 1 << 20;
  NodeSnapshot node;
  node.sequence = ++sequence_;
  node.unix_ns = UnixNs(second);
  node.monotonic_ns = (second + 1) * 1'000'000'000;
  node.node = "n1";
  node.boot_id = "boot";
  node.memory.available_bytes = 64 * kMiB;
  for (int rank = 0; rank < ranks_; ++rank) {
    ProcessSnapshot process;
    process.key = KeyOf(rank);
    process.identity.rank = rank;
    process.identity.training_job = "llama";
    process.identity.uid = 1000;
    process.first_seen_unix_ns = UnixNs(0);
    process.last_update_unix_ns = node.unix_ns;
    const int64_t live = FwLive(rank, second);
    Waterfall fall;
    fall.device = rank;
    fall.figure_known = true;
    fall.figure_bytes = live + 518 * kMiB;
    fall.lines = {{MemoryClass::kContext, 518 * kMiB, ""}, {MemoryClass::kFwLive, live, ""}};
    process.waterfalls = {fall};
    process.host.known = true;
    process.host.anon_bytes = static_cast<int64_t>(second + 1) * 4096;
    auto sites = std::make_shared<SiteList>();
    for (const auto& info : sites_) {
      auto site = std::make_shared<SiteView>();
      site->info = info;
      site->memory_class = MemoryClass::kFwLive;
      site->device = rank;
      site->live = {FwLive((rank + 1) * 1000 + static_cast<int>(info->id), second), 1};
      sites->push_back(std::move(site));
    }
    process.sites = std::move(sites);
    if (steps_) {
      auto list = std::make_shared<StepList>(*step_lists_[static_cast<size_t>(rank)]);
      auto step = std::make_shared<StepView>();
      step->step = second;
      step->end_monotonic_ns = node.monotonic_ns;
      step->groups = {{wire::PeakSide::kFramework, rank, live - kMiB, live + kMiB, live}};
      list->push_back(std::move(step));
      if (list->size() > kKeptSteps) list->erase(list->begin());
      step_lists_[static_cast<size_t>(rank)] = list;
      process.steps = std::move(list);
      process.current_step = second;
    }
    node.processes.push_back(std::move(process));
  }
  return node;
}

}  // namespace tidemark
