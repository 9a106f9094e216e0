#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "daemon/source/bpf/bpf_source.h"
#include "daemon/source/bpf/testing/target.h"

namespace tidemark {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

bool Eventually(const std::function<bool()>& holds, milliseconds within = milliseconds(5000)) {
  const auto end = steady_clock::now() + within;
  while (!holds()) {
    if (steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

class HostSourceTest : public testing::Test {
 protected:
  void SetUp() override {
    BpfConfig config;
    config.ring_bytes = 64u << 20;
    source_ = std::make_unique<BpfSource>(config, ProcRoot());
    ASSERT_TRUE(source_->Start().ok());
    ASSERT_TRUE(Eventually(
        [&] {
          return std::ranges::none_of(source_->States(), [](const BpfFamilyState& family) {
            return family.reason == kBeingLoaded;
          });
        },
        milliseconds(20000)));
    for (const BpfFamilyState& family : source_->States()) {
      ASSERT_TRUE(family.attached) << family.name << ": " << family.reason << " / " << family.hint;
      EXPECT_EQ(family.reason, "");
    }
  }
  BpfProcess ProcessOf(pid_t pid) {
    for (BpfProcess& process : source_->Collect().processes) {
      if (process.pid == pid) return process;
    }
    return {};
  }
  std::unique_ptr<Target> Watched(const std::string& program, const std::string& scenario) {
    auto target = std::make_unique<Target>(std::vector<std::string>{program, scenario});
    EXPECT_TRUE(target->WaitReady());
    BpfWatch watch;
    watch.host = true;
    source_->SetProcess(target->pid(), watch);
    EXPECT_TRUE(Eventually([&] { return ProcessOf(target->pid()).pid != 0; }));
    // Mappings of before are read in the same stroke as the probes are put on.
    std::this_thread::sleep_for(milliseconds(300));
    return target;
  }
  // Everything that is told must be so, and nothing else may be there.
  void ExpectLedgerEqualsScript(const std::string& scenario) {
    auto target = Watched(TIDEMARK_HOST_TRUTH, scenario);
    const auto told = target->Go();
    ASSERT_FALSE(told.empty());
    BpfProcess process;
    std::map<std::string, BpfTotal> totals;
    // Closed rings are looked for once a second, and a busy machine is late to read them.
    Eventually(
        [&] {
          process = ProcessOf(target->pid());
          totals.clear();
          for (const BpfTotal& total : process.totals) {
            totals[std::string(ToString(total.memory_class))] = total;
          }
          return std::ranges::all_of(told, [&](const auto& entry) {
            const auto& [name, truth] = entry;
            return totals[name].live_bytes == truth.live_bytes &&
                   totals[name].allocated_bytes == truth.allocated_bytes;
          });
        },
        milliseconds(30000));
    for (const auto& [name, truth] : told) {
      SCOPED_TRACE(name);
      EXPECT_EQ(totals[name].live_bytes, truth.live_bytes);
      EXPECT_EQ(totals[name].allocated_bytes, truth.allocated_bytes);
    }
    EXPECT_EQ(totals.size(), told.size());
    EXPECT_TRUE(process.losses.empty()) << process.losses.front().cause;
  }

  std::unique_ptr<BpfSource> source_;
};

TEST_F(HostSourceTest, MappingsOfThreadsThatReuseAddressesEqualTheScript) {
  ExpectLedgerEqualsScript("threads");
}

TEST_F(HostSourceTest, TheBreakGrowsAndShrinksAsTheScriptSays) { ExpectLedgerEqualsScript("brk"); }

TEST_F(HostSourceTest, LockedPinnedAndLazilyFreedBytesEqualTheScript) {
  ExpectLedgerEqualsScript("pins");
}

TEST_F(HostSourceTest, MappingsOfAForkedChildAreNotTheParents) { ExpectLedgerEqualsScript("fork"); }

TEST_F(HostSourceTest, WhatMapsAndWhatTouchesAreDifferentSites) {
  auto target = Watched(TIDEMARK_HOST_TRUTH, "touch");
  target->Go();
  std::this_thread::sleep_for(milliseconds(1300));
  const BpfProcess process = ProcessOf(target->pid());
  const BpfSite* mapped = nullptr;
  const BpfSite* touched = nullptr;
  for (const BpfSite& site : process.sites) {
    if (site.live_bytes == 300u << 20) mapped = &site;
    if (!touched || site.resident_bytes > touched->resident_bytes) touched = &site;
  }
  ASSERT_TRUE(mapped && touched);
  EXPECT_NE(mapped, touched);
  EXPECT_LT(mapped->resident_bytes, 1u << 20);
  EXPECT_NEAR(static_cast<double>(touched->resident_bytes), 200.0 * (1 << 20), 10.0 * (1 << 20));
  ASSERT_GE(touched->stack->frames.size(), 2u);
  EXPECT_THAT(touched->stack->frames[0].module, HasSubstr("host_truth"));
}

// Without an agent, a malloc probe or a stop: which line of Python keeps the memory.
TEST_F(HostSourceTest, AListThatKeepsMemoryIsFoundWithFileAndLine) {
  Target target({"/usr/bin/python3", TIDEMARK_PYTHON_HOST_JOB});
  ASSERT_TRUE(target.WaitReady());
  BpfWatch watch;
  watch.host = true;
  source_->SetProcess(target.pid(), watch);
  std::this_thread::sleep_for(milliseconds(500));
  target.Go();
  std::this_thread::sleep_for(milliseconds(300));
  const BpfProcess process = ProcessOf(target.pid());
  uint64_t kept = 0, dropped = 0;
  for (const BpfSite& site : process.sites) {
    for (const BpfFrame& frame : site.stack->frames) {
      if (!frame.python) continue;
      EXPECT_THAT(frame.file, HasSubstr("python_host_job.py"));
      if (frame.function == "keep" && frame.line == 8) kept += site.live_bytes;
      if (frame.function == "drop") dropped += site.live_bytes;
      break;
    }
  }
  EXPECT_GE(kept, 70ull << 20);
  EXPECT_LE(kept, 90ull << 20);
  EXPECT_LE(dropped, 10ull << 20);
}

TEST_F(HostSourceTest, SystemCallProbesAreOnOnlyWhileSomethingIsWatched) {
  auto target = Watched(TIDEMARK_HOST_TRUTH, "fork");
  source_->SetProcess(target->pid(), {});
  ASSERT_TRUE(Eventually([&] { return ProcessOf(target->pid()).pid == 0; }));
  auto again = Watched(TIDEMARK_HOST_TRUTH, "fork");
  const auto told = again->Go();
  std::this_thread::sleep_for(milliseconds(200));
  const BpfProcess process = ProcessOf(again->pid());
  ASSERT_FALSE(process.totals.empty());
  EXPECT_EQ(process.totals[0].live_bytes, told.at("anon").live_bytes);
}

}  // namespace
}  // namespace tidemark
