// What docs/agent-contract.md promises, each on the real library in a running process.
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "cupti_agent/job_test_util.h"

namespace tidemark::agent::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using wire::Feature;
using wire::FeatureState;
using wire::Kind;
using wire::Layer;

constexpr int64_t kHeldBytes = 1000000;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::set<std::string> ThreadNames(pid_t pid) {
  std::set<std::string> names;
  for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::string name = ReadFile(task.path() / "comm");
    name.erase(name.find_last_not_of('\n') + 1);
    names.insert(name);
  }
  return names;
}

std::set<std::string> OpenNumbers(pid_t pid) {
  std::set<std::string> numbers;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    numbers.insert(entry.path().filename());
  }
  return numbers;
}

class AgentJobTest : public ::testing::Test {
 protected:
  AgentJobTest() : daemon_(TemporaryPath("agent.sock")), environment_(UnderAgent(daemon_)) {}

  std::unique_ptr<Job> Start(const std::string& mode) {
    return std::make_unique<Job>(std::vector<std::string>{AGENT_JOB, mode}, environment_);
  }
  std::unique_ptr<Job> StartHeld() {
    auto job = Start("hold");
    EXPECT_EQ(job->ReadLine(), "ready");
    EXPECT_TRUE(daemon_.TakeAgent());
    return job;
  }
  static void ExpectHeld(const RegionCopy& region) {
    const auto row = region.Totals(Layer::kDriver, Kind::kDevice, 0);
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->live_bytes, kHeldBytes);
  }
  static std::string State(const RegionCopy& region, Feature feature) {
    const wire::FeatureRow row = region.Feature(feature);
    constexpr const char* kNames[] = {"unknown", "on", "off", "yielded", "unavailable"};
    return std::string(kNames[row.state]) + ": " + row.reason;
  }

  FakeDaemon daemon_;
  std::map<std::string, std::string> environment_;
};

TEST_F(AgentJobTest, JobWritesWhatItWritesWithoutTheAgentAndExitsAlike) {
  auto with = StartHeld();
  const JobResult result = with->Wait();
  Job without({AGENT_JOB, "hold"}, WithoutAgent());
  const JobResult bare = without.Wait();
  EXPECT_EQ(result.out, bare.out);
  EXPECT_EQ(result.error, bare.error);
  EXPECT_EQ(result.exit_code, bare.exit_code);
  EXPECT_EQ(daemon_.Region().header().state, static_cast<uint32_t>(wire::AgentState::kExited));
}

TEST_F(AgentJobTest, InjectionChangesNoEnvironmentSignalHandlerMaskOrDirectory) {
  auto job = Start("promises");
  EXPECT_EQ(job->ReadLine(), "unchanged");
}

TEST_F(AgentJobTest, TheOneThreadIsNamedTidemarkAndBlocksAllSignals) {
  auto job = StartHeld();
  EXPECT_EQ(ThreadNames(job->pid()), (std::set<std::string>{"agent_job", "tidemark"}));
  for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(job->pid()) + "/task")) {
    if (ReadFile(task.path() / "comm") != "tidemark\n") continue;
    const std::string status = ReadFile(task.path() / "status");
    const uint64_t blocked = std::stoull(status.substr(status.find("SigBlk:") + 7), nullptr, 16);
    // All but SIGKILL and SIGSTOP, and the two that glibc keeps for itself.
    const uint64_t unblockable = 1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1) | 3ull << 31;
    EXPECT_EQ(blocked | unblockable, ~0ull);
  }
}

TEST_F(AgentJobTest, EveryDescriptorOfTheAgentClosesOnExec) {
  Job without({AGENT_JOB, "hold"}, WithoutAgent());
  ASSERT_EQ(without.ReadLine(), "ready");
  const std::set<std::string> own = OpenNumbers(without.pid());
  auto job = StartHeld();
  int seen = 0;
  for (const std::string& number : OpenNumbers(job->pid())) {
    if (own.count(number) != 0) continue;  // what the job has anyway
    const fs::path process = "/proc/" + std::to_string(job->pid());
    const std::string info = ReadFile(process / "fdinfo" / number);
    const int flags = std::stoi(info.substr(info.find("flags:") + 6), nullptr, 8);
    EXPECT_NE(flags & O_CLOEXEC, 0) << fs::read_symlink(process / "fd" / number);
    ++seen;
  }
  EXPECT_GE(seen, 3);  // region, connection, /proc/self/status
}

TEST_F(AgentJobTest, RecordsOfTheLastMomentAreFetchedAtExit) {
  auto job = Start("last");
  ASSERT_EQ(job->ReadLine(), "ready");
  ASSERT_TRUE(daemon_.TakeAgent());
  EXPECT_EQ(job->Wait().exit_code, 0);
  const RegionCopy region = daemon_.Region();
  for (const Layer layer : {Layer::kDriver, Layer::kRecords}) {
    const auto row = region.Totals(layer, Kind::kDevice, 0);
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->allocated_bytes, 2u * kHeldBytes);
  }
}

TEST_F(AgentJobTest, RegionOutlivesSigkillInTheHandsOfTheDaemon) {
  auto job = StartHeld();
  job->Kill(SIGKILL);
  EXPECT_EQ(job->Wait().exit_code, -SIGKILL);
  ExpectHeld(daemon_.Region());
  EXPECT_EQ(daemon_.Region().header().state, static_cast<uint32_t>(wire::AgentState::kRunning));
}

TEST_F(AgentJobTest, RegionCanBeReadButNotWrittenByWhoeverGetsIt) {
  auto job = StartHeld();
  const int fd = daemon_.region_fd();
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_NE(ftruncate(fd, 0), 0);
  EXPECT_NE(pwrite(fd, "x", 1, 0), 1);
  EXPECT_EQ(fcntl(fd, F_GET_SEALS) & 0x1f, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | 0x10);
}

TEST_F(AgentJobTest, ForkedWorkersThatAllocateLeaveTheParentsTotalsUnchanged) {
  auto job = Start("fork");
  ASSERT_EQ(job->ReadLine(), "ready");
  ASSERT_TRUE(daemon_.TakeAgent());
  const RegionCopy region = daemon_.Region();
  ExpectHeld(region);
  const auto blocks = region.Totals(Layer::kFramework, Kind::kFwBlock, 0);
  ASSERT_NE(blocks, nullptr);
  EXPECT_EQ(blocks->live_bytes, 512);
  EXPECT_EQ(blocks->allocations, 1u);
  EXPECT_EQ(region.Totals(Layer::kHostFramework, Kind::kCpuTensor, -1), nullptr);
  EXPECT_EQ(region.header().current_step, 0u);
  EXPECT_EQ(region.header().state, static_cast<uint32_t>(wire::AgentState::kRunning));
  EXPECT_EQ(job->Wait().exit_code, 0);
}

TEST_F(AgentJobTest, OffByVariableMeansNothingPatchedNoThreadNoRegion) {
  environment_["TIDEMARK"] = "off";
  environment_["LD_BIND_NOW"] = "1";
  auto job = Start("slots");
  EXPECT_EQ(job->ReadLine(), "slots same");
  EXPECT_EQ(ThreadNames(job->pid()), (std::set<std::string>{"agent_job"}));
  EXPECT_THAT(ReadFile("/proc/" + std::to_string(job->pid()) + "/maps"),
              ::testing::Not(HasSubstr("memfd:tidemark")));
  EXPECT_FALSE(daemon_.TakeAgent(0.5));
}

TEST_F(AgentJobTest, OffByTheNodesFileMeansTheSame) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for a mount namespace with its own /etc";
  std::vector<std::string> arguments = {"/usr/bin/unshare",
                                        "-m",
                                        "/bin/sh",
                                        "-c",
                                        "mount -t tmpfs none /etc && mkdir /etc/tidemark && : > "
                                        "/etc/tidemark/off && exec \"$0\" slots",
                                        AGENT_JOB};
  environment_["LD_BIND_NOW"] = "1";
  Job job(arguments, environment_);
  EXPECT_EQ(job.ReadLine(), "slots same");
  EXPECT_FALSE(daemon_.TakeAgent(0.5));
}

TEST_F(AgentJobTest, DetachPutsEverySlotBackEndsTheThreadsWorkAndStopsCounting) {
  environment_["LD_BIND_NOW"] = "1";
  auto job = Start("slots");
  EXPECT_EQ(job->ReadLine(), "slots changed");
  ASSERT_TRUE(daemon_.TakeAgent());
  daemon_.Command(wire::CommandOp::kDetach);
  ASSERT_TRUE(Eventually([&] {
    return daemon_.Region().header().state == static_cast<uint32_t>(wire::AgentState::kDetached);
  }));
  EXPECT_EQ(State(daemon_.Region(), Feature::kAgent), "off: detached");
  EXPECT_EQ(State(daemon_.Region(), Feature::kCuptiCallbacks), "off: detached");
  job->SendLine();
  EXPECT_EQ(job->ReadLine(), "slots same");
  EXPECT_EQ(job->Wait().exit_code, 0);
}

TEST_F(AgentJobTest, TapsThatAreNotNamedStayOff) {
  environment_["TIDEMARK_TAPS"] = "framework";
  auto job = Start("fork");
  ASSERT_EQ(job->ReadLine(), "ready");
  ASSERT_TRUE(daemon_.TakeAgent());
  const RegionCopy region = daemon_.Region();
  EXPECT_EQ(region.Totals(Layer::kDriver, Kind::kDevice, 0), nullptr);
  EXPECT_NE(region.Totals(Layer::kFramework, Kind::kFwBlock, 0), nullptr);
  EXPECT_EQ(State(region, Feature::kCuptiCallbacks), "off: TIDEMARK_TAPS");
}

TEST_F(AgentJobTest, ProfilerThatLinksCuptiGetsEveryRecordAndTheLeaseIsYielded) {
  Job without({AGENT_JOB, "linked"}, WithoutAgent());
  const std::string expected = without.ReadLine();
  ASSERT_THAT(expected, HasSubstr("subscribe 0 register 0 enable 0 0 callbacks 1000"));
  auto job = Start("linked");
  EXPECT_EQ(job->ReadLine(), expected);
  ASSERT_TRUE(daemon_.TakeAgent());
  EXPECT_EQ(State(daemon_.Region(), Feature::kCuptiCallbacks), "yielded: agent_job");
  ExpectHeld(daemon_.Region());
}

TEST_F(AgentJobTest, ProfilerThatLooksCuptiUpGetsEveryRecordAndTheLeaseIsYielded) {
  Job without({AGENT_JOB, "dlopen"}, WithoutAgent());
  const std::string expected = without.ReadLine();
  auto job = Start("dlopen");
  EXPECT_EQ(job->ReadLine(), expected);
  ASSERT_TRUE(daemon_.TakeAgent());
  EXPECT_EQ(State(daemon_.Region(), Feature::kCuptiCallbacks),
            "yielded: a lookup of cuptiSubscribe");
}

TEST_F(AgentJobTest, ProfilerWithAStaticCuptiGetsEveryRecordAndNoLeaseIsTaken) {
  Job without({AGENT_JOB_STATIC, "static"}, WithoutAgent());
  const std::string expected = without.ReadLine();
  Job job({AGENT_JOB_STATIC, "static"}, environment_);
  EXPECT_EQ(job.ReadLine(), expected);
  Job held({AGENT_JOB_STATIC, "fork"}, environment_);
  ASSERT_EQ(held.ReadLine(), "ready");
  ASSERT_TRUE(daemon_.TakeAgent());
  EXPECT_EQ(State(daemon_.Region(), Feature::kCuptiCallbacks),
            "unavailable: CUPTI is linked statically into the program");
}

TEST_F(AgentJobTest, RecordsGoOffAboveTheirRateAndTheCallbacksStay) {
  environment_["TIDEMARK_MAX_RECORDS_PER_SECOND"] = "10";
  Job job({TRUTH_ALLOC, "--operations", "400000", "--round-ms", "600"}, environment_);
  ASSERT_TRUE(daemon_.TakeAgent());
  ASSERT_TRUE(Eventually([&] {
    return daemon_.Region().Feature(Feature::kCuptiRecords).state ==
           static_cast<uint8_t>(FeatureState::kOff);
  }));
  EXPECT_THAT(State(daemon_.Region(), Feature::kCuptiRecords), HasSubstr("off: rate: "));
  EXPECT_EQ(State(daemon_.Region(), Feature::kCuptiCallbacks), "on: held");
}

TEST_F(AgentJobTest, RegionSaysWhoTheProcessIsAndWhatTheAgentCosts) {
  environment_["RANK"] = "5";
  environment_["AWS_SECRET_ACCESS_KEY"] = "secret";
  auto job = StartHeld();
  const RegionCopy region = daemon_.Region();
  EXPECT_EQ(region.header().pid, job->pid());
  EXPECT_EQ(region.header().magic, wire::kRegionMagic);
  EXPECT_EQ(region.header().cupti_version, 130001u);
  const std::string environment(region.header().environment, region.header().environment_bytes);
  EXPECT_THAT(environment, HasSubstr("RANK=5"));
  EXPECT_THAT(environment, ::testing::Not(HasSubstr("secret")));
  ASSERT_TRUE(Eventually([&] { return daemon_.Region().header().observer_host_bytes > 0; }));
  EXPECT_LT(daemon_.Region().header().observer_host_bytes, 2u << 20);
}

TEST_F(AgentJobTest, InitializeInjectionMayBeCalledAgain) {
  auto job = StartHeld();
  job.reset();
  void* library = dlopen(AGENT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  setenv("TIDEMARK", "off", 1);
  auto* entry = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry(), 1);
  EXPECT_EQ(entry(), 1);
  unsetenv("TIDEMARK");
}

}  // namespace
}  // namespace tidemark::agent::testing
