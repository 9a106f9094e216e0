// The agent against an oracle: scripted programs that know to the byte what they hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cupti_agent/job_test_util.h"

namespace tidemark::agent::testing {
namespace {

using wire::Kind;
using wire::Layer;
using wire::Loss;

Kind KindNamed(const std::string& name) {
  static const std::map<std::string, Kind> kinds = {
      {"device", Kind::kDevice},   {"pool", Kind::kPool},     {"vmm", Kind::kVmm},
      {"managed", Kind::kManaged}, {"array", Kind::kArray},   {"graph", Kind::kGraph},
      {"ipc", Kind::kIpc},         {"pinned", Kind::kPinned}, {"registered", Kind::kRegistered}};
  return kinds.at(name);
}

struct Truth {
  nlohmann::json json;
  std::unique_ptr<FakeDaemon> daemon;
  JobResult result;
};

class ExactnessTest : public ::testing::Test {
 protected:
  // Runs the oracle to its end; the region is then that of a process that has exited.
  Truth Run(std::vector<std::string> options, std::map<std::string, std::string> more = {}) {
    Truth truth;
    truth.daemon = std::make_unique<FakeDaemon>(TemporaryPath("agent.sock"));
    std::map<std::string, std::string> environment = UnderAgent(*truth.daemon);
    environment["TIDEMARK_MAX_RECORDS_PER_SECOND"] = "0";
    for (const auto& [name, value] : more) environment[name] = value;
    options.insert(options.begin(), TRUTH_ALLOC);
    options.push_back("--hold");
    Job job(options, environment);
    EXPECT_TRUE(truth.daemon->TakeAgent());
    truth.json = nlohmann::json::parse(job.ReadLine(), nullptr, false);
    EXPECT_FALSE(truth.json.is_discarded());
    // The script is over. Records come in when the agent's thread has flushed once more.
    truth.daemon->Command(wire::CommandOp::kFlushRecords);
    std::vector<wire::TotalsRow> before;
    EXPECT_TRUE(Eventually([&] {
      usleep(300'000);
      auto now = truth.daemon->Region().Rows<wire::TotalsRow>(wire::Section::kTotals);
      const bool settled = now.size() == before.size() &&
                           std::equal(now.begin(), now.end(), before.begin(),
                                      [](const auto& a, const auto& b) { return a.seq == b.seq; });
      before = std::move(now);
      return settled;
    }));
    truth.result = job.Wait();
    EXPECT_EQ(truth.result.exit_code, 0);
    EXPECT_EQ(truth.result.error, "");
    return truth;
  }

  static void ExpectNoLossBut(const RegionCopy& region, std::vector<Loss> allowed) {
    for (uint32_t i = 0; i < wire::kLossCount; ++i) {
      const Loss loss = static_cast<Loss>(i);
      if (std::find(allowed.begin(), allowed.end(), loss) != allowed.end()) continue;
      EXPECT_EQ(region.Losses(loss), 0u) << "loss " << i;
    }
  }
};

TEST_F(ExactnessTest, AMillionOperationsOfFourThreadsEqualTheScriptToTheByte) {
  const Truth truth = Run({"--threads", "4", "--operations", "1000000", "--reset"},
                          {{"TIDEMARK_SAMPLING_BYTES", "1048576"}});
  const RegionCopy region = truth.daemon->Region();
  ASSERT_GT(truth.json["groups"].size(), 12u);
  for (const auto& group : truth.json["groups"]) {
    SCOPED_TRACE(group.dump());
    const auto row = region.Totals(Layer::kDriver, KindNamed(group["kind"]), group["device"]);
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->live_bytes, group["live"].get<int64_t>());
    EXPECT_EQ(row->allocated_bytes, group["allocated"].get<uint64_t>());
    EXPECT_EQ(row->freed_bytes,
              group["freed"].get<uint64_t>() + group["implicitly_freed"].get<uint64_t>());
    EXPECT_EQ(row->allocations, group["allocations"].get<uint64_t>());
    EXPECT_EQ(row->frees, group["frees"].get<uint64_t>() + group["implicit_frees"].get<uint64_t>());
    EXPECT_EQ(row->untracked_bytes, 0u);
    EXPECT_EQ(row->unknown_frees, 0u);
    if (group["peak"].is_null()) continue;
    EXPECT_EQ(row->peak_bytes, group["peak"].get<int64_t>());
  }
  const auto calls = region.Rows<wire::EntryPointRow>(wire::Section::kEntryPoints);
  for (const auto& [name, truth_calls] : truth.json["entry_points"].items()) {
    SCOPED_TRACE(name);
    const auto it = std::find(wire::kEntryPointNames.begin(), wire::kEntryPointNames.end(), name);
    ASSERT_NE(it, wire::kEntryPointNames.end());
    const auto& row = calls[static_cast<size_t>(it - wire::kEntryPointNames.begin())];
    EXPECT_EQ(row.calls, truth_calls["calls"].get<uint64_t>());
    EXPECT_EQ(row.failed_calls, truth_calls["failed"].get<uint64_t>());
    // A mapping asks for no memory; its bytes are counted as an entry probe sees them.
    if (name != "cuMemMap") {
      EXPECT_EQ(row.requested_bytes, truth_calls["requested_bytes"].get<uint64_t>());
    }
  }
  ExpectNoLossBut(region, {Loss::kStackTruncated});
}

TEST_F(ExactnessTest, RecordsAndCallbacksAgreeToTheByteForEachKindThatBothSee) {
  const Truth truth = Run({"--threads", "4", "--operations", "60000"});
  const RegionCopy region = truth.daemon->Region();
  auto expect_equal = [&](const wire::TotalsRow& records, const wire::TotalsRow& callbacks) {
    EXPECT_EQ(records.allocated_bytes, callbacks.allocated_bytes);
    // CUPTI does not record the free of what outlived its pool (measured on a GPU): the one thing
    // that only the callbacks see.
    if (callbacks.kind == static_cast<uint8_t>(Kind::kPool)) {
      EXPECT_LE(records.freed_bytes, callbacks.freed_bytes);
      return;
    }
    EXPECT_EQ(records.freed_bytes, callbacks.freed_bytes);
    EXPECT_EQ(records.live_bytes, callbacks.live_bytes);
  };
  for (Kind kind : {Kind::kDevice, Kind::kPool, Kind::kManaged, Kind::kArray}) {
    for (int16_t device : {0, 1}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + " on " + std::to_string(device));
      const auto records = region.Totals(Layer::kRecords, kind, device);
      const auto callbacks = region.Totals(Layer::kDriver, kind, device);
      ASSERT_NE(records, nullptr);
      ASSERT_NE(callbacks, nullptr);
      expect_equal(*records, *callbacks);
    }
  }
  // Records do not tell registrations from pinned allocations.
  auto host = *region.Totals(Layer::kDriver, Kind::kPinned, -1);
  const auto registered = region.Totals(Layer::kDriver, Kind::kRegistered, -1);
  host.live_bytes += registered->live_bytes;
  host.allocated_bytes += registered->allocated_bytes;
  host.freed_bytes += registered->freed_bytes;
  expect_equal(*region.Totals(Layer::kRecords, Kind::kPinned, -1), host);
  EXPECT_EQ(region.Feature(wire::Feature::kCuptiRecords).state,
            static_cast<uint8_t>(wire::FeatureState::kOn));
}

TEST_F(ExactnessTest, WithEveryTableTooSmallAllocatedIsExactAndLiveAnHonestInterval) {
  const Truth truth = Run({"--threads", "4", "--operations", "200000"},
                          {{"TIDEMARK_REGION_BYTES", "196608"}, {"TIDEMARK_SAMPLING_BYTES", "1"}});
  const RegionCopy region = truth.daemon->Region();
  EXPECT_EQ(region.header().region_bytes, 196608u);
  EXPECT_GT(region.Losses(Loss::kLiveTableFull), 0u);
  for (const auto& group : truth.json["groups"]) {
    SCOPED_TRACE(group.dump());
    const auto row = region.Totals(Layer::kDriver, KindNamed(group["kind"]), group["device"]);
    ASSERT_NE(row, nullptr);
    const auto live = group["live"].get<int64_t>();
    EXPECT_EQ(row->allocated_bytes, group["allocated"].get<uint64_t>());
    EXPECT_EQ(row->allocations, group["allocations"].get<uint64_t>());
    EXPECT_LE(row->live_bytes, live);
    EXPECT_GE(row->live_bytes + static_cast<int64_t>(row->untracked_bytes), live);
  }
  ExpectNoLossBut(region, {Loss::kLiveTableFull, Loss::kSiteTableFull, Loss::kFramePoolFull,
                           Loss::kStringPoolFull, Loss::kModuleTableFull, Loss::kStackTruncated,
                           Loss::kUnknownFree});
}

TEST_F(ExactnessTest, DaemonThatComesAndGoesChangesNothing) {
  auto daemon = std::make_unique<FakeDaemon>(TemporaryPath("agent.sock"));
  std::map<std::string, std::string> environment = UnderAgent(*daemon);
  Job job({TRUTH_ALLOC, "--operations", "200000", "--round-ms", "300", "--hold"}, environment);
  ASSERT_TRUE(daemon->TakeAgent());
  const uint64_t agent_id = daemon->hello().agent_id;
  daemon.reset();  // in the middle; then one that has never seen this process
  daemon = std::make_unique<FakeDaemon>(TemporaryPath("agent.sock"));
  const nlohmann::json truth = nlohmann::json::parse(job.ReadLine(), nullptr, false);
  ASSERT_FALSE(truth.is_discarded());
  ASSERT_TRUE(daemon->TakeAgent());
  EXPECT_EQ(daemon->hello().agent_id, agent_id);
  const RegionCopy region = daemon->Region();
  for (const auto& group : truth["groups"]) {
    const auto row = region.Totals(Layer::kDriver, KindNamed(group["kind"]), group["device"]);
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->live_bytes, group["live"].get<int64_t>()) << group.dump();
  }
}

}  // namespace
}  // namespace tidemark::agent::testing
