// A node that is all made up but for what serves it: the real gRPC and HTTP server over hand-made
// snapshots, one a second, with a job that leaks on one rank and one that leaks everywhere, with
// GPU processes that nothing observes, and losses. Prints "PORT\n" once it serves; ends with its
// standard input.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "daemon/serve/server.h"
#include "daemon/serve/testing_snapshot.h"

namespace tidemark::serve {
namespace {

NodeSnapshot Moment(uint64_t second) {
  NodeSnapshot node = testing::MakeNode(8, 20, second);
  node.unix_ns = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch() /
                                       std::chrono::nanoseconds(1));
  node.losses = {{"handshake_refused", second, 0}};
  node.sources.push_back({"bpf_libcuda", "unavailable", "bpf(2) denied (add CAP_BPF)"});
  for (size_t i = 0; i < node.processes.size(); ++i) {
    ProcessSnapshot& process = node.processes[i];
    Identity& identity = process.identity;
    // Ranks 0 to 3 of one job, then 0 to 3 of another.
    identity.training_job = i < 4 ? "one-rank" : "all-ranks";
    identity.rank = identity.local_rank = static_cast<int>(i % 4);
    identity.world_size = 4;
    process.current_step = second * 10;
    if (i < 4 && i != 2) process.verdicts.clear();
    for (detect::Verdict& verdict : process.verdicts) {
      verdict.ranks = {identity.rank};
      verdict.releasable_bytes = 1 << 20;
    }
    auto step = std::make_shared<StepView>(*process.steps->back());
    for (StepGroupView& group : step->groups) {
      group.floor_bytes += static_cast<int64_t>(second) << 23;
    }
    process.steps = std::make_shared<StepList>(StepList{std::move(step)});
  }
  ProcessSnapshot blind;
  blind.key = {"boot", 9000, 1};
  blind.not_observed_reason = "TIDEMARK=off";
  blind.waterfalls = {{0, true, false, "nvml", 1 << 29, {{MemoryClass::kContext, 1 << 29, ""}}}};
  node.processes.push_back(std::move(blind));
  return node;
}

int Main() {
  SnapshotHub hub;
  testing::FakeControl control;
  Server server(hub, control, {.http_port = 0, .version = "test"});
  hub.Publish(testing::Share(Moment(1)));
  const Result<void> started = server.Start();
  if (!started) {
    std::fprintf(stderr, "%s\n", started.error().ToString().c_str());
    return 1;
  }
  std::printf("%d\n", server.BoundHttpPort());
  std::fflush(stdout);
  std::thread ticker([&hub] {
    for (uint64_t second = 2;; ++second) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      hub.Publish(testing::Share(Moment(second)));
    }
  });
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  _exit(0);  // the ticker has no end of its own
}

}  // namespace
}  // namespace tidemark::serve

int main() { return tidemark::serve::Main(); }
