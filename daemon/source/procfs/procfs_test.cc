#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "daemon/source/procfs/node_memory.h"
#include "daemon/source/procfs/process_files.h"
#include "daemon/source/procfs/process_scanner.h"

namespace tidemark::procfs {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// A made-up /proc and /sys.
class ProcfsTest : public ::testing::Test {
 protected:
  ProcfsTest() {
    std::string pattern = "/tmp/tidemark-procfs-test-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    std::filesystem::create_directories(directory_ / "proc");
  }
  ~ProcfsTest() override { std::filesystem::remove_all(directory_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((directory_ / path).parent_path());
    std::ofstream(directory_ / path) << text;
  }
  void AddProcess(pid_t pid, const std::string& comm, pid_t parent, uint64_t start,
                  const std::string& environment, const std::string& maps) {
    const std::string base = "proc/" + std::to_string(pid) + "/";
    Write(base + "stat", std::to_string(pid) + " (" + comm + ") S " + std::to_string(parent) +
                             " 1 1 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 1 0 " +
                             std::to_string(start) + " 1000 200 18446744073709551615\n");
    Write(base + "status", "Name:\tx\nUid:\t1000\t1001\t1000\t1000\nNSpid:\t" +
                               std::to_string(pid) + "\t7\nVmRSS:\t    2048 kB\n");
    Write(base + "environ", environment);
    Write(base + "maps", maps);
  }
  ProcRoot root() const { return ProcRoot(directory_); }

  std::filesystem::path directory_;
};

TEST_F(ProcfsTest, StatIsReadPastANameThatImitatesFields) {
  AddProcess(42, "evil) S 1 (x", 7, 123456, "", "");
  const std::optional<Stat> stat = ReadStat(root(), 42);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->comm, "evil) S 1 (x");
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->parent, 7);
  EXPECT_EQ(stat->start_time_ticks, 123456u);
  EXPECT_EQ(stat->cpu_ticks, 110u);
  EXPECT_EQ(stat->exit_status, std::nullopt);
}

TEST_F(ProcfsTest, TruncatedFilesGiveNothing) {
  Write("proc/1/stat", "1 (init");
  EXPECT_FALSE(ReadStat(root(), 1));
  Write("proc/1/stat", "1 (init) S 0 1");
  EXPECT_FALSE(ReadStat(root(), 1));
  Write("proc/1/stat", "");
  EXPECT_FALSE(ReadStat(root(), 1));
  EXPECT_FALSE(ReadStat(root(), 2));
  EXPECT_FALSE(ReadStatus(root(), 2));
}

TEST_F(ProcfsTest, StatusTellsMemoryAndWhoItIs) {
  Write("proc/9/status",
        "Name:\tpython\nUid:\t10\t20\t30\t40\nNSpid:\t9\t5\t1\nVmLck:\t       8 kB\n"
        "VmPin:\t      16 kB\nVmHWM:\t    4096 kB\nVmRSS:\t    3072 kB\nRssAnon:\t    1024 kB\n"
        "RssFile:\t     512 kB\nRssShmem:\t    1536 kB\nVmSwap:\t      32 kB\n");
  const std::optional<Status> status = ReadStatus(root(), 9);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->uid, 20u);
  EXPECT_THAT(status->namespace_pids, ElementsAre(9, 5, 1));
  EXPECT_EQ(status->vm_rss_bytes, 3072 * 1024);
  EXPECT_EQ(status->rss_anon_bytes, 1024 * 1024);
  EXPECT_EQ(status->rss_file_bytes, 512 * 1024);
  EXPECT_EQ(status->rss_shmem_bytes, 1536 * 1024);
  EXPECT_EQ(status->vm_swap_bytes, 32 * 1024);
  EXPECT_EQ(status->vm_locked_bytes, 8 * 1024);
  EXPECT_EQ(status->vm_pinned_bytes, 16 * 1024);
  EXPECT_EQ(status->vm_hwm_bytes, 4096 * 1024);
}

TEST_F(ProcfsTest, ThisProcessIsReadFromTheRealKernel) {
  const std::optional<Status> status = ReadStatus(ProcRoot(), ::getpid());
  ASSERT_TRUE(status);
  EXPECT_EQ(status->uid, ::geteuid());
  EXPECT_GT(status->vm_rss_bytes, 0);
  const std::optional<Stat> stat = ReadStat(ProcRoot(), ::getpid());
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->parent, ::getppid());
}

TEST_F(ProcfsTest, OnlyAllowedVariablesAreRead) {
  using namespace std::string_literals;
  AddProcess(5, "x", 1, 1, "SECRET=1\0RANK=3\0RANKLE=9\0BROKEN\0RANK_=4\0"s, "");
  constexpr std::string_view kAllowed[] = {"RANK", "WORLD_SIZE"};
  EXPECT_THAT(ReadEnvironment(root(), 5, kAllowed), ElementsAre(Pair("RANK", "3")));
}

TEST_F(ProcfsTest, CgroupMemoryIsReadInVersionOne) {
  Write("proc/5/cgroup", "9:memory:/job/inner\n1:name=systemd:/user\n0::/unified\n");
  Write("sys/fs/cgroup/memory/job/inner/memory.usage_in_bytes", "1000\n");
  Write("sys/fs/cgroup/memory/job/inner/memory.limit_in_bytes", "9223372036854771712\n");
  Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000\n");
  const CgroupMemory memory = ReadCgroupMemory(root(), ReadCgroups(root(), 5));
  EXPECT_EQ(memory.current_bytes, 1000);
  EXPECT_EQ(memory.limit_bytes, 5000);
}

TEST_F(ProcfsTest, CgroupMemoryIsReadInVersionTwo) {
  Write("proc/5/cgroup", "0::/kubepods/pod:1/c\n");
  Write("sys/fs/cgroup/kubepods/pod:1/c/memory.current", "2000\n");
  Write("sys/fs/cgroup/kubepods/pod:1/c/memory.max", "max\n");
  Write("sys/fs/cgroup/kubepods/pod:1/memory.max", "8000\n");
  Write("sys/fs/cgroup/kubepods/memory.max", "9000\n");
  const CgroupMemory memory = ReadCgroupMemory(root(), ReadCgroups(root(), 5));
  EXPECT_EQ(memory.current_bytes, 2000);
  EXPECT_EQ(memory.limit_bytes, 8000);
}

TEST_F(ProcfsTest, WithoutAMemoryCgroupNothingIsMadeUp) {
  Write("proc/5/cgroup", "1:name=systemd:/user\n");
  const CgroupMemory memory = ReadCgroupMemory(root(), ReadCgroups(root(), 5));
  EXPECT_EQ(memory.current_bytes, -1);
  EXPECT_EQ(memory.limit_bytes, -1);
}

TEST_F(ProcfsTest, TheNodesMemoryAddsUp) {
  Write("proc/meminfo",
        "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\nBuffers: 10 kB\nCached: 200 kB\n"
        "Shmem: 50 kB\nSlab: 30 kB\nKernelStack: 5 kB\nPageTables: 7 kB\nHugePages_Total: 0\n");
  const NodeMemory memory = ReadNodeMemory(root());
  EXPECT_EQ(memory.total_bytes, 1000 * 1024);
  EXPECT_EQ(memory.available_bytes, 400 * 1024);
  EXPECT_EQ(memory.page_cache_bytes, 160 * 1024);
  EXPECT_EQ(memory.shmem_bytes, 50 * 1024);
  EXPECT_EQ(memory.kernel_bytes, 42 * 1024);
}

TEST_F(ProcfsTest, TheScannerFindsRanksAndCudaAndNothingElse) {
  using namespace std::string_literals;
  AddProcess(10, "bash", 1, 100, "", "/usr/bin/bash");
  AddProcess(11, "python", 10, 101, "RANK=1\0WORLD_SIZE=2\0"s, "/usr/bin/python3\n");
  AddProcess(12, "raw", 10, 102, "", "7f /usr/lib/libcuda.so.1\n");
  Write("proc/self/stat", "no pid");
  ProcessScanner scanner(root(), std::nullopt);
  const auto result = scanner.Scan();
  ASSERT_EQ(result->processes.size(), 2u);
  EXPECT_EQ(result->processes[0].pid, 11);
  EXPECT_FALSE(result->processes[0].maps_cuda);
  EXPECT_EQ(result->processes[0].variables.at("RANK"), "1");
  EXPECT_EQ(result->processes[0].uid, 1001u);
  EXPECT_EQ(result->processes[1].pid, 12);
  EXPECT_TRUE(result->processes[1].maps_cuda);
  EXPECT_EQ(result->parents.at(12), 10);
}

TEST_F(ProcfsTest, TheScannerSeesADriverLoadedLaterAndAPidReused) {
  AddProcess(12, "raw", 1, 102, "", "");
  ProcessScanner scanner(root(), std::nullopt);
  EXPECT_TRUE(scanner.Scan()->processes.empty());
  AddProcess(12, "raw", 1, 102, "", "/x/libcuda.so.580\n");
  EXPECT_EQ(scanner.Scan()->processes.size(), 1u);
  AddProcess(12, "other", 1, 999, "", "");
  EXPECT_TRUE(scanner.Scan()->processes.empty());
}

TEST_F(ProcfsTest, APrivateScannerLeavesOthersAlone) {
  AddProcess(12, "raw", 1, 102, "", "/x/libcuda.so.1\n");
  ProcessScanner mine(root(), uid_t{1001});
  EXPECT_EQ(mine.Scan()->processes.size(), 1u);
  ProcessScanner other(root(), uid_t{5});
  EXPECT_TRUE(other.Scan()->processes.empty());
}

}  // namespace
}  // namespace tidemark::procfs
