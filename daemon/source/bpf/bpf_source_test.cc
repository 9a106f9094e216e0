#include "daemon/source/bpf/bpf_source.h"

#include <bpf/bpf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "bpf/stack_intf.h"
#include "daemon/source/bpf/testing/target.h"

namespace tidemark {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr char kTruthProgram[] = TIDEMARK_TRUTH_PROGRAM;

bool Eventually(const std::function<bool()>& holds, milliseconds within = milliseconds(5000)) {
  const auto end = steady_clock::now() + within;
  while (!holds()) {
    if (steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

bool WaitLoaded(const BpfSource& source) {
  return Eventually(
      [&] {
        return std::ranges::none_of(source.States(), [](const BpfFamilyState& family) {
          return family.reason == kBeingLoaded;
        });
      },
      milliseconds(20000));
}

BpfProcess ProcessOf(const BpfSource& source, pid_t pid) {
  for (BpfProcess& process : source.Collect().processes) {
    if (process.pid == pid) return process;
  }
  return {};
}

bool WaitAttached(const BpfSource& source, pid_t pid, BpfMode mode) {
  return Eventually([&] {
    const BpfProcess process = ProcessOf(source, pid);
    return process.state == BpfAttachState::kAttached && process.mode == mode;
  });
}

BpfTotal TotalOf(const BpfProcess& process, MemoryClass memory_class) {
  BpfTotal sum;
  for (const BpfTotal& total : process.totals) {
    if (total.memory_class != memory_class) continue;
    sum.live_bytes += total.live_bytes;
    sum.live_count += total.live_count;
    sum.allocated_bytes += total.allocated_bytes;
    sum.allocated_count += total.allocated_count;
  }
  return sum;
}

uint64_t Calls(const BpfProcess& process, wire::EntryPoint entry_point) {
  for (const BpfEntryPoint& counted : process.entry_points) {
    if (counted.entry_point == entry_point) return counted.calls;
  }
  return 0;
}

uint64_t Loss(const BpfProcess& process, std::string_view cause) {
  for (const BpfLoss& loss : process.losses) {
    if (loss.cause == cause) return loss.count;
  }
  return 0;
}

// Reports are drained many times a second: wait until nothing more can come.
void Settle() { std::this_thread::sleep_for(milliseconds(200)); }

void ExpectEqual(const BpfProcess& process, const std::map<std::string, ToldTotal>& told) {
  ASSERT_FALSE(told.empty());
  for (const auto& [name, truth] : told) {
    SCOPED_TRACE(name);
    const std::optional<MemoryClass> memory_class = MemoryClassFromString(name);
    ASSERT_TRUE(memory_class);
    const BpfTotal total = TotalOf(process, *memory_class);
    EXPECT_EQ(total.live_bytes, truth.live_bytes);
    EXPECT_EQ(total.live_count, truth.live_count);
    EXPECT_EQ(total.allocated_bytes, truth.allocated_bytes);
    EXPECT_EQ(total.allocated_count, truth.allocated_count);
  }
}

BpfConfig WithRing(uint32_t bytes) {
  BpfConfig config;
  config.ring_bytes = bytes;
  return config;
}

class BpfSourceTest : public testing::Test {
 protected:
  void StartSource(BpfConfig config = {}) {
    source_ = std::make_unique<BpfSource>(config, ProcRoot());
    Result<void> started = source_->Start();
    ASSERT_TRUE(started.ok());
    ASSERT_TRUE(WaitLoaded(*source_));
    for (const BpfFamilyState& family : source_->States()) {
      ASSERT_TRUE(family.attached) << family.name << ": " << family.reason << " / " << family.hint;
    }
  }
  // A program at its starting line with the probes on.
  std::unique_ptr<Target> Watched(const std::string& scenario, BpfMode mode) {
    auto target = std::make_unique<Target>(std::vector<std::string>{kTruthProgram, scenario});
    EXPECT_TRUE(target->WaitReady());
    source_->SetProcess(target->pid(), {.cuda = mode});
    EXPECT_TRUE(WaitAttached(*source_, target->pid(), mode))
        << ProcessOf(*source_, target->pid()).reason;
    return target;
  }
  void ExpectLedgerEqualsScript(const std::string& scenario) {
    StartSource();
    auto target = Watched(scenario, BpfMode::kLedger);
    const auto told = target->Go();
    Settle();
    ExpectEqual(ProcessOf(*source_, target->pid()), told);
    EXPECT_EQ(target->Quit(), 0);
  }

  std::unique_ptr<BpfSource> source_;
};

TEST_F(BpfSourceTest, LedgerEqualsTheScriptWithThreadsThatReuseAddressesAndCallsThatFail) {
  StartSource(WithRing(64u << 20));
  auto target = Watched("threads", BpfMode::kLedger);
  const auto told = target->Go();
  Settle();
  const BpfProcess process = ProcessOf(*source_, target->pid());
  ExpectEqual(process, told);
  EXPECT_EQ(process.before_attach_frees, 1u);  // the block from before the probes
  EXPECT_TRUE(process.losses.empty()) << process.losses.front().cause;
  uint64_t failed = 0, told_failed = 0;
  for (const BpfEntryPoint& counted : process.entry_points) failed += counted.failed_calls;
  for (const auto& [name, truth] : told) told_failed += truth.failed_calls;
  EXPECT_EQ(failed, told_failed);
  EXPECT_GT(failed, 1000u);
}

TEST_F(BpfSourceTest, CallsOfAForkedChildAreNotTheParents) { ExpectLedgerEqualsScript("fork"); }

TEST_F(BpfSourceTest, SpawningOtherProgramsLosesNothing) { ExpectLedgerEqualsScript("spawn"); }

TEST_F(BpfSourceTest, AThreadThatEndsInsideACallLeavesTheOthersExact) {
  ExpectLedgerEqualsScript("die_inside");
}

TEST_F(BpfSourceTest, ACallLeftByLongjmpIsCountedAsAbandonedAndNotBooked) {
  StartSource();
  auto target = Watched("longjmp", BpfMode::kLedger);
  const auto told = target->Go();
  Settle();
  const BpfProcess process = ProcessOf(*source_, target->pid());
  ExpectEqual(process, told);
  EXPECT_EQ(Loss(process, "abandoned_call"), 10u);
}

TEST_F(BpfSourceTest, ACallThatTheLibraryMakesInsideAnotherIsCountedOnce) {
  StartSource();
  auto target = Watched("nested", BpfMode::kLedger);
  const auto told = target->Go();
  Settle();
  const BpfProcess process = ProcessOf(*source_, target->pid());
  ExpectEqual(process, told);
  EXPECT_EQ(Loss(process, "nested_call"), 10u);
}

TEST_F(BpfSourceTest, AProgramWhoseLibraryThrowsCatchesAndLives) {
  ExpectLedgerEqualsScript("throwing");
}

TEST_F(BpfSourceTest, CallSitesAreToldApartWithModuleAndOffset) {
  StartSource();
  auto target = Watched("sites", BpfMode::kLedger);
  target->Go();
  Settle();
  const BpfProcess process = ProcessOf(*source_, target->pid());
  ASSERT_EQ(process.sites.size(), 2u);
  const BpfSite& big =
      process.sites[process.sites[0].live_bytes > process.sites[1].live_bytes ? 0 : 1];
  EXPECT_EQ(big.live_count, 36u);
  EXPECT_EQ(big.live_bytes, 36ull * (256 << 20));
  EXPECT_EQ(big.min_block_bytes, 256u << 20);
  EXPECT_EQ(big.max_block_bytes, 256u << 20);
  ASSERT_GE(big.stack->frames.size(), 3u);
  // Pin, then SiteTwo, then Sites: all in the program, none in libcuda.
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(big.stack->frames[i].module, HasSubstr("truth_program"));
    EXPECT_EQ(big.stack->frames[i].build_id.size(), 40u);
  }
  const std::string command = std::string("addr2line -f -e ") + kTruthProgram + " 0x";
  char offset[32];
  snprintf(offset, sizeof(offset), "%lx", big.stack->frames[1].offset - 1);
  FILE* pipe = popen((command + offset).c_str(), "r");
  char name[256] = "";
  EXPECT_TRUE(fgets(name, sizeof(name), pipe));
  pclose(pipe);
  EXPECT_THAT(name, HasSubstr("SiteTwo"));
}

TEST_F(BpfSourceTest, BesideAnAgentOnlyCallsAndRequestedBytesAreCounted) {
  StartSource();
  auto target = Watched("sites", BpfMode::kWitness);
  target->Go();
  const BpfProcess process = ProcessOf(*source_, target->pid());
  EXPECT_TRUE(process.totals.empty());
  EXPECT_TRUE(process.sites.empty());
  ASSERT_EQ(process.entry_points.size(), 1u);
  EXPECT_EQ(process.entry_points[0].entry_point, wire::EntryPoint::kMemHostAlloc);
  EXPECT_EQ(process.entry_points[0].calls, 37u);
  EXPECT_EQ(process.entry_points[0].requested_bytes, 36ull * (256 << 20) + 1);
}

TEST_F(BpfSourceTest, AChangeOfModeUnderLoadLosesAndDoublesNoCall) {
  StartSource(WithRing(64u << 20));
  auto target = Watched("threads", BpfMode::kWitness);
  std::map<std::string, ToldTotal> told;
  std::thread run([&] { told = target->Go(); });
  for (BpfMode mode : {BpfMode::kLedger, BpfMode::kWitness, BpfMode::kLedger}) {
    source_->SetProcess(target->pid(), {.cuda = mode});
    EXPECT_TRUE(WaitAttached(*source_, target->pid(), mode));
  }
  run.join();
  Settle();
  const BpfProcess process = ProcessOf(*source_, target->pid());
  const ToldTotal& pinned = told["pinned"];
  const uint64_t freed = pinned.allocated_count - pinned.live_count + 1;  // 1: from before
  EXPECT_EQ(Calls(process, wire::EntryPoint::kMemHostAlloc) +
                Calls(process, wire::EntryPoint::kMemAllocHost) +
                Calls(process, wire::EntryPoint::kMemFreeHost),
            pinned.allocated_count + freed + pinned.failed_calls);
  const ToldTotal& registered = told["registered"];
  EXPECT_EQ(Calls(process, wire::EntryPoint::kMemHostRegister) +
                Calls(process, wire::EntryPoint::kMemHostUnregister),
            2 * registered.allocated_count - registered.live_count + registered.failed_calls);
}

TEST_F(BpfSourceTest, TheLastNumbersOfAKilledProcessStayUntilForgotten) {
  StartSource();
  auto target = Watched("sites", BpfMode::kLedger);
  const auto told = target->Go();
  const pid_t pid = target->pid();
  target->Kill();
  target->Quit();
  ASSERT_TRUE(
      Eventually([&] { return ProcessOf(*source_, pid).state == BpfAttachState::kExited; }));
  ExpectEqual(ProcessOf(*source_, pid), told);
  EXPECT_EQ(Calls(ProcessOf(*source_, pid), wire::EntryPoint::kMemHostAlloc), 37u);
  source_->SetProcess(pid, {});
  EXPECT_TRUE(Eventually([&] { return ProcessOf(*source_, pid).pid == 0; }));
}

// Starts the truth program under a pid of our choice.
pid_t StartWithPid(pid_t wanted, const char* scenario, int input, int output) {
  clone_args args = {};
  args.exit_signal = SIGCHLD;
  args.set_tid = reinterpret_cast<uintptr_t>(&wanted);
  args.set_tid_size = 1;
  const auto pid = static_cast<pid_t>(syscall(SYS_clone3, &args, sizeof(args)));
  if (pid == 0) {
    dup2(input, 0);
    dup2(output, 1);
    execl(kTruthProgram, kTruthProgram, scenario, nullptr);
    _exit(9);
  }
  return pid;
}

TEST_F(BpfSourceTest, AReusedPidIsAnotherProcess) {
  StartSource();
  auto first = Watched("sites", BpfMode::kLedger);
  first->Go();
  const pid_t pid = first->pid();
  const uint64_t first_start = ProcessOf(*source_, pid).start_time_ticks;
  first->Quit();
  ASSERT_TRUE(
      Eventually([&] { return ProcessOf(*source_, pid).state == BpfAttachState::kExited; }));

  int to[2], from[2];
  ASSERT_EQ(pipe2(to, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(from, O_CLOEXEC), 0);
  ASSERT_EQ(StartWithPid(pid, "steady", to[0], from[1]), pid) << strerror(errno);
  FILE* output = fdopen(from[0], "r");
  char line[256];
  ASSERT_TRUE(fgets(line, sizeof(line), output));  // "ready"
  source_->SetProcess(pid, {.cuda = BpfMode::kLedger});
  ASSERT_TRUE(WaitAttached(*source_, pid, BpfMode::kLedger));
  ASSERT_EQ(write(to[1], "go\n", 3), 3);
  ASSERT_TRUE(fgets(line, sizeof(line), output));
  Settle();
  const BpfProcess second = ProcessOf(*source_, pid);
  EXPECT_NE(second.start_time_ticks, first_start);
  EXPECT_EQ(TotalOf(second, MemoryClass::kPinned).live_bytes, 4096u);
  EXPECT_EQ(TotalOf(second, MemoryClass::kPinned).allocated_count, 1u);
  EXPECT_EQ(Calls(second, wire::EntryPoint::kMemHostAlloc), 1u);
  close(to[1]);
  close(to[0]);
  close(from[1]);
  fclose(output);
  waitpid(pid, nullptr, 0);
}

TEST_F(BpfSourceTest, ExecEndsWhatTheOldProgramHeldAndTheNewOneIsCounted) {
  StartSource();
  auto target = Watched("sites", BpfMode::kLedger);
  target->Go();
  target->Say("exec");
  ASSERT_TRUE(target->WaitReady());
  ASSERT_TRUE(WaitAttached(*source_, target->pid(), BpfMode::kLedger));
  const auto told = target->Go();
  Settle();
  const BpfTotal pinned = TotalOf(ProcessOf(*source_, target->pid()), MemoryClass::kPinned);
  // The new program's block from before its starting line is seen too: the probes were on.
  EXPECT_EQ(pinned.live_bytes, told.at("pinned").live_bytes + 12345);
  EXPECT_EQ(pinned.live_count, told.at("pinned").live_count + 1);
}

TEST_F(BpfSourceTest, AProcessThatMapsLibcudaLaterIsPickedUpWithinTwoSeconds) {
  StartSource();
  // A shell that sleeps, then becomes the program.
  Target target({"/bin/sh", "-c", std::string("sleep 0.3; exec ") + kTruthProgram + " steady"});
  source_->SetProcess(target.pid(), {.cuda = BpfMode::kLedger});
  ASSERT_TRUE(Eventually(
      [&] { return ProcessOf(*source_, target.pid()).state == BpfAttachState::kWaiting; }));
  ASSERT_TRUE(target.WaitReady());
  const auto ready = steady_clock::now();
  ASSERT_TRUE(WaitAttached(*source_, target.pid(), BpfMode::kLedger));
  EXPECT_LT(steady_clock::now() - ready, milliseconds(2000));
}

TEST_F(BpfSourceTest, WhatAnotherWitnessKnewIsTakenOverWithoutDoublingAByte) {
  StartSource();
  auto target = Watched("steady", BpfMode::kLedger);
  target->Go();
  Settle();
  // The stand-in hands out 2 MiB apart: the first block was there before, the second is known.
  const std::vector<BpfSeed> live = {{0x7f0000000000, 12345, MemoryClass::kPinned},
                                     {0x7f0000200000, 4096, MemoryClass::kPinned}};
  source_->Seed(target->pid(), live);
  source_->Seed(target->pid(), live);
  Settle();
  const BpfTotal pinned = TotalOf(ProcessOf(*source_, target->pid()), MemoryClass::kPinned);
  EXPECT_EQ(pinned.live_bytes, 12345u + 4096u);
  EXPECT_EQ(pinned.live_count, 2u);
}

TEST_F(BpfSourceTest, AFullRingIsCountedAsLoss) {
  StartSource(WithRing(4096));
  auto target = Watched("threads", BpfMode::kLedger);
  target->Go();
  Settle();
  EXPECT_GT(Loss(ProcessOf(*source_, target->pid()), "ring_full"), 0u);
  EXPECT_EQ(target->Quit(), 0);
}

TEST_F(BpfSourceTest, ATargetThatDiesDuringAttachIsAStateAndNotAHang) {
  StartSource();
  for (int i = 0; i < 20; ++i) {
    Target target({kTruthProgram, "steady"});
    ASSERT_TRUE(target.WaitReady());
    const pid_t pid = target.pid();
    source_->SetProcess(pid, {.cuda = BpfMode::kLedger});
    std::this_thread::sleep_for(milliseconds(i % 5));
    target.Kill();
    target.Quit();
    EXPECT_TRUE(
        Eventually([&] { return ProcessOf(*source_, pid).state == BpfAttachState::kExited; }));
    source_->SetProcess(pid, {});
  }
  source_->SetProcess(0x3ffffe, {.cuda = BpfMode::kLedger});  // nobody
  EXPECT_TRUE(
      Eventually([&] { return ProcessOf(*source_, 0x3ffffe).state == BpfAttachState::kExited; }));
}

TEST_F(BpfSourceTest, LifecycleTellsForkExecAndExit) {
  StartSource();
  source_->TakeEvents();
  Target target({"/bin/true"});
  const pid_t pid = target.pid();
  target.Quit();
  Settle();
  std::vector<BpfLifecycleEvent::Kind> kinds;
  for (const BpfLifecycleEvent& event : source_->TakeEvents()) {
    if (event.pid != pid) continue;
    kinds.push_back(event.kind);
    if (event.kind == BpfLifecycleEvent::Kind::kFork) {
      EXPECT_EQ(event.parent, getpid());
    }
  }
  EXPECT_THAT(kinds,
              testing::ElementsAre(BpfLifecycleEvent::Kind::kFork, BpfLifecycleEvent::Kind::kExec,
                                   BpfLifecycleEvent::Kind::kExit));
}

// Every entry point, on the simulated driver.
void ExpectEqualByDevice(const BpfProcess& process, const std::map<std::string, ToldTotal>& told) {
  ASSERT_GE(told.size(), 13u);
  std::map<std::string, BpfTotal> totals;
  for (const BpfTotal& total : process.totals) {
    totals[std::string(ToString(total.memory_class)) + "@" + std::to_string(total.device)] = total;
  }
  for (const auto& [name, truth] : told) {
    SCOPED_TRACE(name);
    EXPECT_EQ(totals[name].live_bytes, truth.live_bytes);
    EXPECT_EQ(totals[name].live_count, truth.live_count);
    EXPECT_EQ(totals[name].allocated_bytes, truth.allocated_bytes);
    EXPECT_EQ(totals[name].allocated_count, truth.allocated_count);
  }
  EXPECT_EQ(totals.size(), told.size());
  EXPECT_EQ(process.before_attach_frees, 0u);
  EXPECT_TRUE(process.losses.empty()) << process.losses.front().cause;
}

TEST_F(BpfSourceTest, EveryEntryPointOnTwoDevicesEqualsTheScriptUpToTheEndOfTheContexts) {
  StartSource(WithRing(64u << 20));
  // Through a shell that waits, so that the process is seen before it maps libcuda: only then can
  // a last release be told.
  Target target({"/bin/sh", "-c", std::string("read go; exec ") + TIDEMARK_CUDA_TRUTH});
  source_->SetProcess(target.pid(), {.cuda = BpfMode::kLedger});
  ASSERT_TRUE(Eventually(
      [&] { return ProcessOf(*source_, target.pid()).state == BpfAttachState::kWaiting; }));
  target.Say("go");
  ASSERT_TRUE(target.WaitReady());
  ASSERT_TRUE(WaitAttached(*source_, target.pid(), BpfMode::kLedger));
  for (const char* moment : {"after the calls", "after a reset", "after the last release"}) {
    SCOPED_TRACE(moment);
    const auto told = target.Go();
    Settle();
    ExpectEqualByDevice(ProcessOf(*source_, target.pid()), told);
  }
}

// An interpreter of that minor version, from pyenv or the distribution; empty if there is none.
std::string Interpreter(int minor) {
  const std::string name = "python3." + std::to_string(minor);
  const char* home = getenv("HOME");
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::string(home ? home : "/root") + "/.pyenv/versions", ignored)) {
    const std::filesystem::path program = entry.path() / "bin" / name;
    if (std::filesystem::exists(program)) return program;
  }
  for (const char* folder : {"/usr/bin/", "/usr/local/bin/"}) {
    if (std::filesystem::exists(folder + name)) return folder + name;
  }
  return "";
}

std::vector<std::string> PythonFrames(const BpfStack& stack) {
  std::vector<std::string> frames;
  for (const BpfFrame& frame : stack.frames) {
    if (!frame.python) continue;
    frames.push_back(frame.file.substr(frame.file.rfind('/') + 1) + ":" +
                     std::to_string(frame.line) + " " +
                     frame.function.substr(frame.function.rfind('.') + 1));
  }
  return frames;
}

class PythonStackTest : public BpfSourceTest, public testing::WithParamInterface<int> {};

TEST_P(PythonStackTest, SitesHaveFileLineAndFunctionOfEveryThread) {
  const std::string python = Interpreter(GetParam());
  if (python.empty()) GTEST_SKIP() << "no CPython 3." << GetParam() << " on this machine";
  StartSource();
  Target target({python, TIDEMARK_PYTHON_JOB, TIDEMARK_FAKE_LIBCUDA});
  ASSERT_TRUE(target.WaitReady());
  source_->SetProcess(target.pid(), {.cuda = BpfMode::kLedger});
  ASSERT_TRUE(WaitAttached(*source_, target.pid(), BpfMode::kLedger));
  EXPECT_EQ(ProcessOf(*source_, target.pid()).reason, "");
  target.Go();
  Settle();
  std::map<uint64_t, const BpfSite*> by_bytes;
  const BpfProcess process = ProcessOf(*source_, target.pid());
  for (const BpfSite& site : process.sites) by_bytes[site.live_bytes] = &site;
  ASSERT_THAT(by_bytes, testing::SizeIs(4));

  // Recursion stands as often as it is deep; a method and a comprehension under their own names.
  const auto deep = PythonFrames(*by_bytes.at(70000)->stack);
  EXPECT_THAT(deep, testing::ElementsAre("python_job.py:15 pin", "python_job.py:22 deep",
                                         "python_job.py:21 deep", "python_job.py:21 deep",
                                         "python_job.py:21 deep", "python_job.py:21 deep",
                                         "python_job.py:21 deep", "python_job.py:32 <module>"));
  EXPECT_FALSE(by_bytes.at(70000)->stack->frames[0].python);  // ctypes' own native frames
  const auto method = PythonFrames(*by_bytes.at(3000)->stack);
  ASSERT_GE(method.size(), 3u);
  EXPECT_EQ(method[0], "python_job.py:15 pin");
  EXPECT_THAT(method, testing::Contains("python_job.py:27 load"));
  EXPECT_EQ(by_bytes.at(3000)->live_count, 3u);
  const auto thread = PythonFrames(*by_bytes.at(900)->stack);
  ASSERT_GE(thread.size(), 5u);
  EXPECT_EQ(thread[1], "python_job.py:22 deep");
  EXPECT_THAT(thread, testing::Contains(HasSubstr("threading.py")));
  const BpfStack& cut = *by_bytes.at(5)->stack;
  EXPECT_TRUE(cut.partial);
  EXPECT_EQ(PythonFrames(cut).size(), size_t{TM_PYTHON_FRAMES});
}

INSTANTIATE_TEST_SUITE_P(Versions, PythonStackTest, testing::Values(8, 9, 10, 11, 12, 13, 14),
                         [](const auto& version) {
                           return "CPython3_" + std::to_string(version.param);
                         });

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

// Ids of all BPF objects of one kind on the machine.
std::set<uint32_t> Ids(int (*next_id)(uint32_t, uint32_t*)) {
  std::set<uint32_t> ids;
  for (uint32_t id = 0; next_id(id, &id) == 0;) ids.insert(id);
  return ids;
}

TEST_F(BpfSourceTest, NothingIsLeftBehind) {
  const size_t descriptors = OpenDescriptors();
  std::set<uint32_t> links, maps, programs;
  for (int round = 0; round < 3; ++round) {
    const auto links_before = Ids(bpf_link_get_next_id);
    const auto maps_before = Ids(bpf_map_get_next_id);
    const auto programs_before = Ids(bpf_prog_get_next_id);
    StartSource();
    auto target = Watched("sites", BpfMode::kLedger);
    auto other = Watched("sites", BpfMode::kWitness);
    target->Go();
    std::ranges::set_difference(Ids(bpf_link_get_next_id), links_before,
                                std::inserter(links, links.end()));
    std::ranges::set_difference(Ids(bpf_map_get_next_id), maps_before,
                                std::inserter(maps, maps.end()));
    std::ranges::set_difference(Ids(bpf_prog_get_next_id), programs_before,
                                std::inserter(programs, programs.end()));
    source_.reset();
  }
  EXPECT_GE(links.size(), 3u * 3);
  EXPECT_EQ(OpenDescriptors(), descriptors);
  // The kernel lets go of them a grace period later. Other tests may run beside this one: only
  // what appeared here is looked for.
  auto gone = [](const std::set<uint32_t>& ids, int (*next_id)(uint32_t, uint32_t*)) {
    return Eventually(
        [&] {
          const std::set<uint32_t> now = Ids(next_id);
          return std::ranges::none_of(ids, [&](uint32_t id) { return now.contains(id); });
        },
        milliseconds(20000));
  };
  EXPECT_TRUE(gone(links, bpf_link_get_next_id));
  EXPECT_TRUE(gone(programs, bpf_prog_get_next_id));
  EXPECT_TRUE(gone(maps, bpf_map_get_next_id));
}

TEST_F(BpfSourceTest, SixteenProcessesAttachAndDetachWithinTwoSecondsEach) {
  StartSource();
  std::vector<std::unique_ptr<Target>> targets;
  for (int i = 0; i < 16; ++i) {
    targets.push_back(std::make_unique<Target>(std::vector<std::string>{kTruthProgram, "steady"}));
    ASSERT_TRUE(targets.back()->WaitReady());
  }
  auto begin = steady_clock::now();
  for (auto& target : targets) source_->SetProcess(target->pid(), {.cuda = BpfMode::kLedger});
  for (auto& target : targets) {
    ASSERT_TRUE(WaitAttached(*source_, target->pid(), BpfMode::kLedger));
  }
  const auto attach = steady_clock::now() - begin;
  begin = steady_clock::now();
  source_->Stop();
  const auto detach = steady_clock::now() - begin;
  printf("16 processes: attach %ld ms, detach and stop %ld ms\n",
         std::chrono::duration_cast<milliseconds>(attach).count(),
         std::chrono::duration_cast<milliseconds>(detach).count());
  EXPECT_LT(attach, milliseconds(2000));
  EXPECT_LT(detach, milliseconds(2000));
}

// Runs `body` in a child whose status is its result: privileges are dropped for good.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

// 0 when every family is down with `word` in its reason and something to do; the source still runs.
int FamiliesSay(const std::string& word) {
  BpfSource source({}, ProcRoot());
  if (!source.Start().ok()) return 1;
  source.SetProcess(getpid(), {.cuda = BpfMode::kLedger});
  if (!WaitLoaded(source)) return 4;
  for (const BpfFamilyState& family : source.States()) {
    if (family.attached) return 2;
    if (family.reason.find(word) == std::string::npos || family.hint.empty()) {
      fprintf(stderr, "%s: %s / %s\n", family.name.c_str(), family.reason.c_str(),
              family.hint.c_str());
      return 3;
    }
  }
  source.Stop();
  return 0;
}

TEST(BpfSourceDeniedTest, WithoutCapabilitiesEveryFamilyNamesTheMissingOnes) {
  EXPECT_EQ(InChild([] {
              if (setgid(65534) != 0 || setuid(65534) != 0) return 10;
              return FamiliesSay("missing CAP_BPF, CAP_PERFMON");
            }),
            0);
}

TEST(BpfSourceDeniedTest, InAUserNamespaceTheReasonSaysSo) {
  EXPECT_EQ(InChild([] {
              if (unshare(CLONE_NEWUSER) != 0) return 10;
              return FamiliesSay("user namespace");
            }),
            0);
}

TEST(BpfSourceDeniedTest, SwitchedOffFamiliesSaySo) {
  BpfConfig config;
  config.enabled = false;
  BpfSource source(config, ProcRoot());
  ASSERT_TRUE(source.Start().ok());
  ASSERT_TRUE(WaitLoaded(source));
  for (const BpfFamilyState& family : source.States()) {
    EXPECT_FALSE(family.attached);
    EXPECT_EQ(family.reason, "switched off");
  }
}

}  // namespace
}  // namespace tidemark
