// What the judgement costs a tick. The aim: 16 processes with 1,000 sites each under 50 us a tick,
// amortised; a series under 16 KiB after a million points.
//
// The first case is the measure to compare with: copying the same numbers once, which any judge of
// them has to do at least.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "daemon/detect/process_judge.h"
#include "daemon/detect/series_detector.h"

namespace tidemark::detect {
namespace {

constexpr int kProcesses = 16;
constexpr size_t kSites = 1000;
constexpr int64_t kMiB = 1 << 20;
constexpr SeriesId kLive{MemoryClass::kFwLive, 0};

class Table : public SiteTable {
 public:
  explicit Table(bool leaks) : leaks_(leaks), rows_(kSites) {
    for (size_t i = 0; i < kSites; ++i) {
      rows_[i].site_id = i + 1;
      rows_[i].id = kLive;
      rows_[i].live_bytes = kMiB;
      rows_[i].cohort_bytes[0] = kMiB;
    }
  }
  // Every tenth site is busy, and the leaking one keeps a MiB a step.
  void Step(uint64_t step) {
    for (size_t i = 0; i < kSites; i += 10) {
      rows_[i].live_bytes = kMiB * (1 + static_cast<int64_t>((step * 7 + i) % 5));
    }
    if (!leaks_) return;
    SitePoint& leak = rows_[5];
    while ((step >> leak.cohort_shift) >= kCohorts) {
      for (size_t i = 0; i < kCohorts / 2; ++i) {
        leak.cohort_bytes[i] = leak.cohort_bytes[2 * i] + leak.cohort_bytes[2 * i + 1];
        leak.cohort_bytes[kCohorts / 2 + i] = 0;
      }
      ++leak.cohort_shift;
    }
    leak.cohort_bytes[step >> leak.cohort_shift] += kMiB;
    leak.live_bytes += kMiB;
  }
  size_t size() const override { return rows_.size(); }
  SitePoint At(size_t row) const override { return rows_[row]; }

 private:
  bool leaks_;
  std::vector<SitePoint> rows_;
};

struct Process {
  explicit Process(bool leaks) : table(leaks), leaks(leaks) {}
  ProcessJudge judge;
  Table table;
  bool leaks;
  std::vector<StepPoint> steps;
  std::vector<SeriesPoint> totals;
  ProcessTick tick;

  void Prepare(uint64_t step) {
    table.Step(step);
    const int64_t now = static_cast<int64_t>(step) * 1'000'000'000;
    const int64_t live = 4096 * kMiB + (leaks ? static_cast<int64_t>(step) * kMiB : 0) +
                         static_cast<int64_t>(step * 2654435761u % 1024) * 1024;
    steps = {{step,
              now,
              {{kLive, live, live + 1024 * kMiB},
               {{MemoryClass::kDevice, 0}, live + 512 * kMiB, live + 2048 * kMiB},
               {{MemoryClass::kPinned, -1}, 64 * kMiB, 64 * kMiB},
               {{MemoryClass::kFwHost, -1}, 32 * kMiB, 32 * kMiB}}}};
    totals.clear();
    for (MemoryClass c :
         {MemoryClass::kFwCache, MemoryClass::kContext, MemoryClass::kUnattributed}) {
      totals.push_back({{c, 0}, 512 * kMiB + live % kMiB, 0});
    }
    for (MemoryClass c : {MemoryClass::kAnon, MemoryClass::kFile, MemoryClass::kShmem,
                          MemoryClass::kSwap, MemoryClass::kLocked, MemoryClass::kObserver}) {
      totals.push_back({{c, -1}, 256 * kMiB + live % kMiB, 0});
    }
    tick.now_ns = now;
    tick.rank = 0;
    tick.new_steps = steps;
    tick.totals = totals;
    tick.sites = &table;
    tick.current_step = step;
  }
};

// Ticks of all processes; the preparation of the input is not timed.
void JudgeAll(benchmark::State& state, int leaking) {
  std::vector<std::unique_ptr<Process>> processes;
  for (int i = 0; i < kProcesses; ++i) processes.push_back(std::make_unique<Process>(i < leaking));
  uint64_t step = 0;
  for (; step < 200; ++step) {
    for (auto& process : processes) {
      process->Prepare(step + 1);
      process->judge.Judge(process->tick);
    }
  }
  for (auto _ : state) {
    state.PauseTiming();
    ++step;
    for (auto& process : processes) process->Prepare(step);
    state.ResumeTiming();
    for (auto& process : processes) benchmark::DoNotOptimize(process->judge.Judge(process->tick));
  }
  state.counters["KiB/process"] = static_cast<double>(processes[0]->judge.MemoryBytes()) / 1024;
}

void BM_CopySeriesOfATick(benchmark::State& state) {
  Process process(false);
  process.Prepare(1);
  for (auto _ : state) {
    for (int i = 0; i < kProcesses; ++i) {
      auto steps = process.steps;
      auto totals = process.totals;
      benchmark::DoNotOptimize(steps.data());
      benchmark::DoNotOptimize(totals.data());
    }
  }
}
BENCHMARK(BM_CopySeriesOfATick);

void BM_TickOf16SteadyProcesses(benchmark::State& state) { JudgeAll(state, 0); }
BENCHMARK(BM_TickOf16SteadyProcesses)->Unit(benchmark::kMicrosecond);

void BM_TickOf16ProcessesOneLeaks(benchmark::State& state) { JudgeAll(state, 1); }
BENCHMARK(BM_TickOf16ProcessesOneLeaks)->Unit(benchmark::kMicrosecond);

void BM_TickOf16ProcessesAllLeak(benchmark::State& state) { JudgeAll(state, kProcesses); }
BENCHMARK(BM_TickOf16ProcessesAllLeak)->Unit(benchmark::kMicrosecond);

void BM_SeriesPoint(benchmark::State& state) {
  SeriesDetector detector;
  uint64_t step = 0;
  for (auto _ : state) {
    ++step;
    benchmark::DoNotOptimize(
        detector.Push(step, static_cast<int64_t>(step) * 1'000'000'000,
                      4096 * kMiB + static_cast<int64_t>(step * 2654435761u % 1024) * 1024));
  }
  state.counters["bytes"] = static_cast<double>(detector.MemoryBytes());
}
BENCHMARK(BM_SeriesPoint)->Iterations(1'000'000);

}  // namespace
}  // namespace tidemark::detect

BENCHMARK_MAIN();
