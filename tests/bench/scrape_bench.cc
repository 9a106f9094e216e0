// What a scrape and a snapshot request of a full node cost: 16 ranks of 1000 sites. With --check,
// fails when building and writing the metrics takes 5 ms or more, the best of several rounds (the
// machine may be busy with something else), and prints the ratio to merely copying the answer.
#include <benchmark/benchmark.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "daemon/serve/metrics_exporter.h"
#include "daemon/serve/testing_snapshot.h"
#include "daemon/serve/to_proto.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::serve {
namespace {

constexpr size_t kRanks = 16;
constexpr size_t kSites = 1000;

struct Node {
  SnapshotHub hub;
  ServeCounters counters;
  MetricsExporter exporter{hub, counters, MetricsLevel::kBasic, "1"};

  Node() { hub.Publish(testing::Share(testing::MakeNode(kRanks, kSites))); }
  std::string Scrape() const { return prometheus::TextSerializer().Serialize(exporter.Collect()); }
};

void Scrape(benchmark::State& state) {
  const Node node;
  for (auto _ : state) benchmark::DoNotOptimize(node.Scrape());
}
BENCHMARK(Scrape)->Unit(benchmark::kMicrosecond);

void SnapshotMessage(benchmark::State& state) {
  const Node node;
  const auto snapshot = node.hub.Latest();
  for (auto _ : state) {
    v1::Snapshot message;
    ToProto(
        *snapshot, {.max_sites = static_cast<size_t>(state.range(0))},
        [](const ProcessSnapshot&) { return true; }, &message);
    benchmark::DoNotOptimize(message.SerializeAsString());
  }
}
BENCHMARK(SnapshotMessage)->Arg(20)->Arg(0)->Unit(benchmark::kMicrosecond);

int Check() {
  using Clock = std::chrono::steady_clock;
  const Node node;
  const auto best_of = [](const auto& work) {
    double best_ms = 1e9;
    for (int round = 0; round < 20; ++round) {
      const auto start = Clock::now();
      work();
      best_ms = std::min(best_ms,
                         std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
    return best_ms;
  };
  std::string text;
  const double scrape_ms = best_of([&] { text = node.Scrape(); });
  std::string copy(text.size(), '\0');
  const double copy_ms = best_of([&] {
    std::memcpy(copy.data(), text.data(), text.size());
    benchmark::ClobberMemory();
  });
  std::printf("scrape of %zu ranks x %zu sites: %.2f ms, %zu bytes, %.0f x a copy of the answer\n",
              kRanks, kSites, scrape_ms, text.size(), scrape_ms / copy_ms);
  return scrape_ms < 5 ? 0 : 1;
}

}  // namespace
}  // namespace tidemark::serve

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--check") == 0) return tidemark::serve::Check();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
