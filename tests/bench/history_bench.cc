// What the past costs: 16 ranks with 64 sites each, a snapshot a second, written every five.
//
//   history_bench [--days N] [--every SECONDS] [--check]     the file lies in $TMPDIR
//
// With --every 10 a month takes minutes: ten seconds are what is kept of it anyway.
// Prints the CPU time that a second of history costs, how much of a core that is, what a day takes
// on disk, and after N days (1) under the default cap: the file's size, and how long the range of
// 24 hours of one rank takes to read. --check: fails when writing takes 0.5 % of a core or more,
// the query 50 ms or more, or the cap does not hold.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/store/history.h"
#include "daemon/store/history_database.h"
#include "daemon/store/history_reader.h"
#include "daemon/store/history_sampler.h"
#include "daemon/store/testing_node.h"
#include "tidemark/v1/tidemark.pb.h"

namespace {

using namespace tidemark;

constexpr int kRanks = 16;
constexpr int kSites = 64;
constexpr uint64_t kDay = 24 * 3600;
constexpr uint64_t kFlushEveryS = 5;

double ThreadCpuS() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// Of a day of one rank, as a page asks for it: 600 points of every class.
double MedianQueryMs(const std::filesystem::path& file, uint64_t now) {
  v1::QueryRangeRequest request;
  request.set_start_unix_ns(TestingNode::UnixNs(now > kDay ? now - kDay : 0));
  request.set_end_unix_ns(TestingNode::UnixNs(now));
  request.add_ranks(3);
  request.set_include_marks(true);
  std::vector<double> ms;
  for (int i = 0; i < 21; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    v1::QueryRangeResponse answer;
    const QueryStatus status = HistoryReader(file).QueryRange(
        request, {[](uid_t) { return true; }, begin + std::chrono::seconds(60), 0}, &answer);
    const auto end = std::chrono::steady_clock::now();
    if (!status.ok() || answer.series().empty()) {
      std::fprintf(stderr, "the query failed: %s\n", status.message.c_str());
      std::exit(1);
    }
    ms.push_back(std::chrono::duration<double, std::milli>(end - begin).count());
  }
  std::nth_element(ms.begin(), ms.begin() + 10, ms.end());
  return ms[10];
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t days = 1;
  uint64_t every = 1;
  bool check = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--check") == 0) check = true;
    if (std::strcmp(argv[i], "--days") == 0 && i + 1 < argc) days = std::stoul(argv[++i]);
    if (std::strcmp(argv[i], "--every") == 0 && i + 1 < argc) every = std::stoul(argv[++i]);
  }
  std::string pattern = std::filesystem::temp_directory_path() / "tidemark-history-bench-XXXXXX";
  const std::filesystem::path directory = ::mkdtemp(pattern.data());
  const std::filesystem::path file = directory / "history.db";
  const uint64_t cap = HistoryOptions().cap_bytes;
  HistoryDatabase database(file, cap);
  HistorySampler sampler([&](const ProcessKey& key) { return database.KnownOf(key); });
  if (!database.Open().ok()) return 1;

  TestingNode node(kRanks, kSites, true);
  double cpu_s = 0;
  uint64_t most_bytes = 0;
  double first_query_ms = 0;
  bool right = true;
  for (uint64_t second = every; second <= days * kDay; second += every) {
    const NodeSnapshot snapshot = node.At(second);  // not history's cost
    const double begin = ThreadCpuS();
    sampler.Absorb(snapshot);
    if (second % (kFlushEveryS * every) == 0) {
      right = database.Write(&sampler, TestingNode::UnixNs(second) / 1'000'000).ok() && right;
    }
    cpu_s += ThreadCpuS() - begin;
    if (second % 3600 == 0) most_bytes = std::max(most_bytes, database.BytesOnDisk());
    if (second % kDay == 0) {
      const double ms = MedianQueryMs(file, second);
      if (second == kDay) first_query_ms = ms;
      std::printf("day %2lu: %6.1f MiB on disk, 24 h of one rank in %.1f ms\n", second / kDay,
                  static_cast<double>(database.BytesOnDisk()) / (1 << 20), ms);
      std::fflush(stdout);
    }
  }
  const double share = cpu_s / static_cast<double>(days * kDay / every);
  const double query_ms = MedianQueryMs(file, days * kDay);
  std::printf(
      "%d processes, %d sites each: %.3f %% of a core at a snapshot a second; at most %.1f MiB of "
      "%.0f MiB on disk; "
      "24 h of one rank in %.1f ms, %.2f of the first day's\n",
      kRanks, kSites, share * 100, static_cast<double>(most_bytes) / (1 << 20),
      static_cast<double>(cap) / (1 << 20), query_ms, query_ms / first_query_ms);
  std::filesystem::remove_all(directory);
  if (!right) std::printf("a write failed\n");
  return check && (!right || share >= 0.005 || query_ms >= 50 || most_bytes > cap) ? 1 : 0;
}
