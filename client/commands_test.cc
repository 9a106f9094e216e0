// Commands from their arguments to what they print and return, in this process, against a gRPC
// service that answers as the test says.
#include "client/commands/commands.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "client/command_line.h"
#include "client/recording.h"
#include "client/testing/fixture.h"
#include "tidemark/v1/tidemark.grpc.pb.h"

namespace tidemark::client {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Service final : public v1::Tidemark::Service {
 public:
  grpc::Status GetSnapshot(grpc::ServerContext*, const v1::GetSnapshotRequest* request,
                           v1::Snapshot* answer) override {
    asked = *request;
    *answer = snapshot;
    return status;
  }
  grpc::Status WatchSnapshots(grpc::ServerContext* context, const v1::GetSnapshotRequest*,
                              grpc::ServerWriter<v1::Snapshot>* writer) override {
    v1::Snapshot next = snapshot;
    while (!context->IsCancelled() && next.sequence() < snapshot.sequence() + ticks) {
      if (!writer->Write(next)) break;
      next.set_sequence(next.sequence() + 1);
      next.set_monotonic_ns(next.monotonic_ns() + 1'000'000'000);
    }
    return status;
  }
  grpc::Status ListHolders(grpc::ServerContext*, const v1::ListHoldersRequest* request,
                           v1::ListHoldersResponse* answer) override {
    holders = *request;
    answer->set_blocks_total(1);
    answer->add_blocks()->set_address(0xabc000);
    return status;
  }
  grpc::Status Detach(grpc::ServerContext*, const v1::DetachRequest* request,
                      v1::DetachResponse* answer) override {
    if (request->all()) {
      for (const v1::Process& process : snapshot.processes()) {
        answer->add_detached_pids(process.pid());
      }
      return grpc::Status::OK;
    }
    for (const v1::Process& process : snapshot.processes()) {
      if (process.pid() == request->pid()) {
        answer->add_detached_pids(request->pid());
        return grpc::Status::OK;
      }
    }
    return {grpc::StatusCode::NOT_FOUND, "process has no agent"};
  }
  grpc::Status ReleaseGpu(grpc::ServerContext*, const v1::ReleaseGpuRequest* request,
                          v1::ReleaseGpuResponse* answer) override {
    answer->set_released(!request->resume());
    return grpc::Status::OK;
  }

  v1::Snapshot snapshot = testing::LeakingSnapshot();
  grpc::Status status;
  uint64_t ticks = 3;
  v1::GetSnapshotRequest asked;
  v1::ListHoldersRequest holders;
};

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

class CommandsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tidemark-commands-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    socket_ = directory_ + "/api.sock";
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket_, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    environment_.Set("TIDEMARK_SOCKET", socket_);
  }
  void TearDown() override {
    server_->Shutdown(std::chrono::system_clock::now());
    std::filesystem::remove_all(directory_);
  }

  Outcome Tidemark(const std::vector<std::string>& arguments) {
    std::ostringstream out;
    std::ostringstream err;
    Context context{out, err, Ink(), Ink(), environment_, ::getuid(), false, "/opt/bin/tidemark"};
    CommandLine line;
    for (const auto add : {AddPs, AddWhere, AddSites, AddSteps, AddLeaks, AddJob, AddDiff, AddTop,
                           AddReport, AddEnv, AddDoctor, AddDetach, AddReleaseGpu, AddAnalyze,
                           AddEstimate, AddVersion, AddCompletion}) {
      add(line);
    }
    const int code = line.Run(arguments, context);
    return {code, out.str(), err.str()};
  }

  Json TidemarkJson(std::vector<std::string> arguments) {
    arguments.push_back("--json");
    const Outcome outcome = Tidemark(arguments);
    EXPECT_EQ(outcome.err, "");
    return Json::parse(outcome.out, nullptr, false);
  }

  std::string Record(const v1::Snapshot& snapshot, const std::string& name) {
    const std::string path = directory_ + "/" + name;
    EXPECT_TRUE(WriteRecording(testing::RecordingOf(snapshot), path).ok());
    return path;
  }

  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::string directory_;
  std::string socket_;
  Environment environment_;
};

TEST_F(CommandsTest, EveryReadingCommandAnswersInTextAndJson) {
  for (const char* command : {"ps", "where", "sites", "steps", "leaks", "job", "report"}) {
    const Outcome outcome = Tidemark({command});
    EXPECT_EQ(outcome.exit_code, kOk) << command;
    EXPECT_NE(outcome.out, "") << command;
    EXPECT_TRUE(TidemarkJson({command}).is_object()) << command;
  }
}

TEST_F(CommandsTest, ARecordingAnswersLikeADaemon) {
  const std::string path = Record(service_.snapshot, "run.tdm");
  for (const char* command : {"ps", "where", "sites", "steps", "leaks", "job"}) {
    EXPECT_EQ(Tidemark({command, "--from", path}).out, Tidemark({command}).out) << command;
  }
}

TEST_F(CommandsTest, ADamagedRecordingIsAPlainErrorForEveryReader) {
  const std::string path = directory_ + "/run.tdm";
  std::ofstream(path) << "TIDEMARK-RECORDING\n";
  for (const char* command : {"ps", "where", "sites", "steps", "leaks", "job", "report"}) {
    const Outcome outcome = Tidemark({command, "--from", path});
    EXPECT_EQ(outcome.exit_code, kBadFile) << command;
    EXPECT_EQ(outcome.out, "") << command;
    EXPECT_THAT(outcome.err, HasSubstr("it is cut short in its header")) << command;
  }
}

TEST_F(CommandsTest, ProcessesAreChosenByRankPidAndJob) {
  EXPECT_EQ(TidemarkJson({"ps", "--rank", "2"})["processes"][0]["pid"], 1002);
  EXPECT_EQ(TidemarkJson({"ps", "--pid", "1001"})["processes"].size(), 1u);
  EXPECT_EQ(TidemarkJson({"ps", "--job", "job-1"})["processes"].size(), 4u);
  EXPECT_EQ(Tidemark({"ps", "--job", "other"}).out,
            "No such process is known; see `tidemark ps`.\n");
}

TEST_F(CommandsTest, ANodeWithoutProcessesSaysSo) {
  service_.snapshot.clear_processes();
  EXPECT_EQ(Tidemark({"leaks"}).out, "No process uses a GPU or belongs to a training job.\n");
}

TEST_F(CommandsTest, CommandsAskOnlyForWhatTheyShow) {
  Tidemark({"ps"});
  EXPECT_TRUE(service_.asked.omit_sites());
  EXPECT_TRUE(service_.asked.omit_steps());
  Tidemark({"steps", "--last", "5"});
  EXPECT_EQ(service_.asked.max_steps(), 6);
}

TEST_F(CommandsTest, ADaemonThatFailsIsAnErrorWithItsWords) {
  service_.status = {grpc::StatusCode::INTERNAL, "the tick has died"};
  const Outcome outcome = Tidemark({"ps"});
  EXPECT_EQ(outcome.exit_code, kNoDaemon);
  EXPECT_THAT(outcome.err, HasSubstr("the tick has died"));
}

TEST_F(CommandsTest, ADaemonThatEndsTheStreamEndsTop) {
  const Outcome outcome = Tidemark({"top"});
  EXPECT_EQ(outcome.exit_code, kNoDaemon);
  EXPECT_THAT(outcome.err, HasSubstr("the daemon ended the stream"));
}

TEST_F(CommandsTest, TopIntoAPipeIsALineAProcessAndRefresh) {
  const Outcome outcome = Tidemark({"top", "-n", "2"});
  EXPECT_EQ(outcome.exit_code, kOk);
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 8);
  EXPECT_EQ(outcome.out.find('\033'), std::string::npos);
  EXPECT_THAT(outcome.out, HasSubstr(" rank 3 step 120 gpu 1.94 GiB rss 2.38 GiB confirmed "
                                     "tensors_kept +8.0 MiB/step (7.9 to 8.1)\n"));
}

TEST_F(CommandsTest, TopTakesOneOfSeveralTicksWhereAsked) {
  service_.ticks = 10;
  const Outcome outcome = Tidemark({"top", "-n", "2", "--interval", "4", "--rank", "0"});
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2);
}

TEST_F(CommandsTest, FailOnLeakIsForScripts) {
  EXPECT_EQ(Tidemark({"leaks"}).exit_code, kOk);
  EXPECT_EQ(Tidemark({"leaks", "--fail-on", "leak"}).exit_code, kLeakFound);
  EXPECT_EQ(Tidemark({"leaks", "--fail-on", "fire"}).exit_code, kUsage);
}

TEST_F(CommandsTest, HoldersAreThoseOfTheBlamedSite) {
  const Outcome outcome = Tidemark({"sites", "--holders"});
  EXPECT_EQ(outcome.exit_code, kOk);
  EXPECT_EQ(service_.holders.site_id(), testing::kLeakingSite);
  EXPECT_EQ(service_.holders.pid(), 1000);
  EXPECT_THAT(outcome.out, HasSubstr("0xabc000: "));
}

TEST_F(CommandsTest, HoldersOfAChosenSiteOnAChosenRank) {
  Tidemark({"sites", "--holders", "--site", "beef", "--rank", "2"});
  EXPECT_EQ(service_.holders.site_id(), testing::kWeightsSite);
  EXPECT_EQ(service_.holders.pid(), 1002);
}

TEST_F(CommandsTest, TheDeadHaveNoHoldersToAsk) {
  for (auto& process : *service_.snapshot.mutable_processes()) process.set_liveness("exited");
  const Outcome outcome = Tidemark({"sites", "--holders"});
  EXPECT_EQ(outcome.exit_code, kRefused);
  EXPECT_THAT(outcome.err, HasSubstr("no living process has such a site"));
}

TEST_F(CommandsTest, ARecordingHasNoHolders) {
  const std::string path = Record(service_.snapshot, "run.tdm");
  EXPECT_EQ(Tidemark({"sites", "--holders", "--from", path}).exit_code, kUsage);
}

TEST_F(CommandsTest, WrongMomentsAndIdsAreWrongUsage) {
  EXPECT_EQ(Tidemark({"sites", "--at", "lunch"}).exit_code, kUsage);
  EXPECT_EQ(Tidemark({"sites", "--site", "xyz"}).exit_code, kUsage);
  EXPECT_EQ(Tidemark({"sites", "--site", "0"}).exit_code, kUsage);
}

TEST_F(CommandsTest, DetachNeedsToKnowFromWhat) {
  EXPECT_EQ(Tidemark({"detach"}).exit_code, kUsage);
  EXPECT_EQ(Tidemark({"detach", "--pid", "1", "--all"}).exit_code, kUsage);
  EXPECT_EQ(Tidemark({"detach", "--pid", "1003"}).out,
            "detached from pid 1003; it goes on unobserved\n");
  EXPECT_EQ(TidemarkJson({"detach", "--all"})["detached_pids"].size(), 4u);
}

TEST_F(CommandsTest, ARefusalIsNotAMissingDaemon) {
  const Outcome outcome = Tidemark({"detach", "--pid", "7"});
  EXPECT_EQ(outcome.exit_code, kRefused);
  EXPECT_THAT(outcome.err, HasSubstr("process has no agent"));
}

TEST_F(CommandsTest, ReleaseGpuSaysHowToEndIt) {
  EXPECT_THAT(Tidemark({"release-gpu"}).out, HasSubstr("release-gpu --resume"));
  EXPECT_THAT(Tidemark({"release-gpu", "--resume"}).out, HasSubstr("reads the GPUs again"));
}

TEST_F(CommandsTest, DiffIsOneWhereASiteGrowsAlone) {
  const std::string leak = Record(testing::LeakingSnapshot(), "leak.tdm");
  const std::string steady = Record(testing::SteadySnapshot(), "steady.tdm");
  EXPECT_EQ(Tidemark({"diff", leak, steady}).exit_code, kDiffers);
  EXPECT_EQ(Tidemark({"diff", leak, leak}).exit_code, kOk);
  EXPECT_EQ(Tidemark({"diff", leak, directory_ + "/none.tdm"}).exit_code, kBadFile);
  EXPECT_EQ(Tidemark({"diff", leak}).exit_code, kUsage);
  const Json json = TidemarkJson({"diff", leak, steady});
  EXPECT_EQ(json["grows_in_one_only"], true);
  EXPECT_EQ(json["sites"][0]["allocated_at"], "model.py:41 forward");
}

TEST_F(CommandsTest, EnvIsForTheShellToEvaluate) {
  for (const char* launcher : {"torchrun", "deepspeed", "accelerate", "srun", "mpirun", "ray"}) {
    const Outcome outcome = Tidemark({"env", "--for", launcher});
    EXPECT_EQ(outcome.exit_code, kOk) << launcher;
    EXPECT_THAT(outcome.out,
                StartsWith("export CUDA_INJECTION64_PATH='/opt/lib/libtidemark_cupti.so'\n"));
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_TRUE(line.rfind("export ", 0) == 0 || line.rfind("# ", 0) == 0) << line;
    }
  }
  EXPECT_THAT(Tidemark({"env", "--for", "mpirun"}).out, HasSubstr("-x CUDA_INJECTION64_PATH"));
  EXPECT_EQ(Tidemark({"env"}).exit_code, kUsage);
  EXPECT_EQ(Tidemark({"env", "--for", "cron"}).exit_code, kUsage);
}

TEST_F(CommandsTest, EnvTellsOfAPrivateDaemonAndOfAnotherInjection) {
  environment_ =
      Environment{{"XDG_RUNTIME_DIR", directory_}, {"CUDA_INJECTION64_PATH", "/opt/nsight.so"}};
  const Json json = TidemarkJson({"env", "--for", "torchrun"});
  EXPECT_FALSE(json["variables"].contains("TIDEMARK_AGENT_SOCKET")) << "none answers there";
  EXPECT_THAT(json["notes"].dump(), HasSubstr("CUDA_INJECTION64_PATH is /opt/nsight.so now"));
  std::filesystem::create_directory(directory_ + "/tidemark");
  std::filesystem::rename(socket_, directory_ + "/tidemark/api.sock");
  EXPECT_EQ(TidemarkJson({"env", "--for", "torchrun"})["variables"]["TIDEMARK_AGENT_SOCKET"],
            directory_ + "/tidemark/agent.sock");
}

TEST_F(CommandsTest, DoctorWorksWithAndWithoutADaemon) {
  const Json with = TidemarkJson({"doctor"});
  EXPECT_EQ(with["daemon"]["processes"].size(), 4u);
  environment_.Set("TIDEMARK_SOCKET", directory_ + "/none.sock");
  const Json without = TidemarkJson({"doctor"});
  EXPECT_TRUE(without["daemon"].is_null());
  EXPECT_EQ(without["machine"][0]["name"], "daemon");
  EXPECT_EQ(without["machine"][0]["good"], false);
  EXPECT_THAT(Tidemark({"doctor"}).out, HasSubstr("-> systemctl start tidemarkd"));
}

TEST_F(CommandsTest, VersionNamesBothEnds) {
  EXPECT_EQ(TidemarkJson({"version"})["tidemarkd"], "0.1.0");
  environment_.Set("TIDEMARK_SOCKET", directory_ + "/none.sock");
  const Outcome outcome = Tidemark({"version"});
  EXPECT_EQ(outcome.exit_code, kOk);
  EXPECT_THAT(outcome.out, HasSubstr("no tidemarkd answers"));
}

TEST_F(CommandsTest, WrongUsageIsTwoAndSaysWhat) {
  EXPECT_EQ(Tidemark({}).exit_code, kUsage);
  EXPECT_EQ(Tidemark({"dance"}).exit_code, kUsage);
  const Outcome outcome = Tidemark({"ps", "--colour"});
  EXPECT_EQ(outcome.exit_code, kUsage);
  EXPECT_THAT(outcome.err, HasSubstr("--colour"));
  EXPECT_EQ(Tidemark({"ps", "--from", "x", "--socket", "y"}).exit_code, kUsage);
}

TEST_F(CommandsTest, HelpIsNoError) {
  const Outcome outcome = Tidemark({"--help"});
  EXPECT_EQ(outcome.exit_code, kOk);
  EXPECT_THAT(outcome.out, HasSubstr("Exit codes:"));
}

TEST_F(CommandsTest, AnalyzeAndEstimateReachTheDetector) {
  const std::string csv = directory_ + "/steady.csv";
  std::ofstream file(csv);
  file << "sample,rank,metric,value\n";
  for (int i = 0; i < 200; ++i) file << i << ",0,gpu_live,1073741824\n";
  file.close();
  EXPECT_EQ(TidemarkJson({"analyze", csv})["verdict"], "not_leak");
  EXPECT_EQ(Tidemark({"analyze", directory_ + "/none.csv"}).exit_code, kBadFile);
  const Outcome estimate =
      Tidemark({"estimate", "--stage", "3", "--params", "6897M", "--largest-layer", "314M",
                "--nodes", "1", "--gpus-per-node", "8"});
  EXPECT_EQ(estimate.exit_code, kOk);
  EXPECT_THAT(estimate.out, HasSubstr("173.43"));
  EXPECT_EQ(Tidemark({"estimate", "--params", "many"}).exit_code, kUsage);
}

TEST_F(CommandsTest, CompletionKnowsEveryCommandAndItsOptions) {
  const std::string script = Tidemark({"completion"}).out;
  for (const char* word : {"release-gpu", "--reconcile", "--holders", "--fail-on"}) {
    EXPECT_THAT(script, HasSubstr(word));
  }
  const std::string path = directory_ + "/completion.bash";
  std::ofstream(path) << script;
  EXPECT_EQ(std::system(("bash -n " + path).c_str()), 0);
}

}  // namespace
}  // namespace tidemark::client
