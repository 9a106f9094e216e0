// `tidemark run` as a whole: the real command, real jobs, a daemon that serves a snapshot made by
// hand.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "client/argv.h"
#include "client/environment.h"
#include "client/exit_code.h"
#include "client/json.h"
#include "client/recording.h"
#include "client/testing/fixture.h"

namespace tidemark::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class RunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tidemark-run-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    environment_ = Environment::OfProcess();
    for (const char* variable : {"TIDEMARK", "TIDEMARK_RUN", "TIDEMARK_SOCKET", "LOCAL_RANK",
                                 "CUDA_INJECTION64_PATH", "TIDEMARK_AGENT_SOCKET"}) {
      environment_.Unset(variable);
    }
    environment_.Set("XDG_RUNTIME_DIR", directory_);
    environment_.Set("FAKE_DIRECTORY", directory_);
    environment_.Set("TIDEMARK_DAEMON", FAKE_TIDEMARKD);
    Serve(testing::SteadySnapshot(2));
  }
  void TearDown() override {
    for (const int pid : DaemonPids()) ::kill(pid, SIGKILL);
    std::filesystem::remove_all(directory_);
  }

  void Serve(const v1::Snapshot& snapshot) {
    std::ofstream(directory_ + "/snapshot", std::ios::binary) << snapshot.SerializeAsString();
  }

  std::vector<int> DaemonPids() const {
    std::vector<int> pids;
    std::ifstream file(directory_ + "/starts");
    for (int pid; file >> pid;) pids.push_back(pid);
    return pids;
  }

  // Starts a program; standard streams go to files named after `label`.
  pid_t Start(std::vector<std::string> arguments, const std::string& label,
              const std::string& input = "", const char* program = TIDEMARK) {
    std::ofstream(directory_ + "/" + label + ".in") << input;
    arguments.insert(arguments.begin(), program);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string base = directory_ + "/" + label;
    posix_spawn_file_actions_addopen(&actions, 0, (base + ".in").c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, (base + ".out").c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, (base + ".err").c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    std::vector<std::string> variables = environment_.Strings();
    pid_t pid = 0;
    EXPECT_EQ(::posix_spawn(&pid, program, &actions, nullptr, ArgvOf(arguments).data(),
                            ArgvOf(variables).data()),
              0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }

  Outcome Finish(pid_t pid, const std::string& label) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    const std::string base = directory_ + "/" + label;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), ReadAll(base + ".out"),
            ReadAll(base + ".err")};
  }

  Outcome Tidemark(std::vector<std::string> arguments, const std::string& input = "") {
    return Finish(Start(std::move(arguments), "one", input), "one");
  }

  // The command with a shell script as its job, which first tells the fake daemon its run.
  Outcome Run(const std::string& script, std::vector<std::string> options = {}) {
    return Tidemark(Arguments(script, std::move(options)));
  }
  std::vector<std::string> Arguments(const std::string& script,
                                     std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"run", "--private"});
    options.insert(options.end(),
                   {"--", "sh", "-c", "echo $TIDEMARK_RUN >$FAKE_DIRECTORY/run; " + script});
    return options;
  }

  bool WaitForFile(const std::string& name) const {
    for (int i = 0; i < 500; ++i) {
      if (std::filesystem::exists(directory_ + "/" + name)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

  std::string directory_;
  Environment environment_;
};

TEST_F(RunTest, TheExitCodeIsTheJobs) {
  EXPECT_EQ(Run("exit 0").exit_code, 0);
  EXPECT_EQ(Run("exit 3").exit_code, 3);
}

TEST_F(RunTest, AJobKilledBySignalGives128AndTheSignal) {
  EXPECT_EQ(Run("kill -KILL $$").exit_code, 128 + SIGKILL);
  EXPECT_EQ(Run("kill -SEGV $$").exit_code, 128 + SIGSEGV);
}

TEST_F(RunTest, ACommandThatIsNotThereIs127AndOneThatCannotRunIs126) {
  const Outcome missing = Tidemark({"run", "--private", "--", "no-such-command-here"});
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.err, HasSubstr("start no-such-command-here: there is no such command"));
  std::ofstream(directory_ + "/plain.txt") << "text";
  EXPECT_EQ(Tidemark({"run", "--private", "--", directory_ + "/plain.txt"}).exit_code, 126);
}

TEST_F(RunTest, AScriptWithoutAnInterpreterLineRunsAsInAShell) {
  const std::string script = directory_ + "/script";
  std::ofstream(script) << "exit 5\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  EXPECT_EQ(Tidemark({"run", "--private", "--", script}).exit_code, 5);
}

TEST_F(RunTest, InputAndOutputOfTheJobPassUntouched) {
  const Outcome outcome =
      Tidemark({"run", "--private", "--", "sh", "-c", "cat; printf e >&2"}, "a\0b\n-- x");
  EXPECT_EQ(outcome.out, std::string("a\0b\n-- x"));
  EXPECT_THAT(outcome.err, HasSubstr("e"));
}

TEST_F(RunTest, TheJobsArgumentsAreNotRead) {
  const Outcome outcome =
      Tidemark({"run", "--private", "--", "printf", "%s|", "--json", "-o", "--", "[a,b]", "{}"});
  EXPECT_EQ(outcome.out, "--json|-o|--|[a,b]|{}|");
}

TEST_F(RunTest, WithoutDashesTheCommandBeginsAtItsFirstWord) {
  EXPECT_EQ(Tidemark({"run", "--private", "printf", "%s|", "-o", "x"}).out, "-o|x|");
}

TEST_F(RunTest, NoCommandIsWrongUsage) {
  const Outcome outcome = Tidemark({"run"});
  EXPECT_EQ(outcome.exit_code, kUsage);
  EXPECT_THAT(outcome.err, HasSubstr("tidemark run -- python train.py"));
}

TEST_F(RunTest, SignalsReachTheJobAndItsAnswerCounts) {
  const pid_t pid = Start(Arguments("trap 'exit 7' TERM; touch $FAKE_DIRECTORY/up; "
                                    "while :; do sleep 0.05; done"),
                          "one");
  ASSERT_TRUE(WaitForFile("up"));
  ::kill(pid, SIGTERM);
  EXPECT_EQ(Finish(pid, "one").exit_code, 7);
}

TEST_F(RunTest, TheJobStartsWithTheSignalMaskItWouldHaveHad) {
  EXPECT_EQ(Run("grep SigBlk /proc/self/status").out, "SigBlk:\t0000000000000000\n");
}

TEST_F(RunTest, TheJobInheritsNoFileOfOurs) {
  const std::string script = "exec ls /proc/self/fd";
  const std::string bare = Finish(Start({"-c", script}, "bare", "", "/bin/sh"), "bare").out;
  EXPECT_EQ(Tidemark({"run", "--private", "--", "/bin/sh", "-c", script}).out, bare);
}

TEST_F(RunTest, TheReportAndTheMetricsGoToStandardError) {
  Serve(testing::LeakingSnapshot());
  const Outcome outcome = Run("echo from the job");
  EXPECT_EQ(outcome.out, "from the job\n");
  EXPECT_THAT(outcome.err, HasSubstr("watching; metrics at http://127.0.0.1:9470/metrics\n"));
  EXPECT_THAT(outcome.err, HasSubstr("LEAK: tensors kept, on all 4 ranks (fw_live)"));
  EXPECT_THAT(outcome.err, HasSubstr("model.py:41 forward"));
}

TEST_F(RunTest, QuietPrintsNothingButTrouble) {
  environment_.Set("CUDA_INJECTION64_PATH", "/opt/nsight.so");
  const Outcome outcome = Run("echo $CUDA_INJECTION64_PATH", {"--quiet"});
  EXPECT_EQ(outcome.out, "/opt/nsight.so\n") << "a path that is set already is left alone";
  EXPECT_THAT(outcome.err, HasSubstr("already set to /opt/nsight.so: left alone"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("Tidemark report")));
}

TEST_F(RunTest, FailOnLeakFailsAJobThatEndedWell) {
  Serve(testing::LeakingSnapshot());
  EXPECT_EQ(Run("exit 0", {"--fail-on", "leak"}).exit_code, kLeakFound);
  EXPECT_EQ(Run("exit 3", {"--fail-on", "leak"}).exit_code, 3);
  Serve(testing::SteadySnapshot());
  EXPECT_EQ(Run("exit 0", {"--fail-on", "leak"}).exit_code, 0);
}

TEST_F(RunTest, FailOnLeakDoesNotVouchForWhatItDidNotSee) {
  Serve(testing::EmptySnapshot());
  const Outcome outcome = Run("exit 0", {"--fail-on", "leak"});
  EXPECT_EQ(outcome.exit_code, kNotObserved);
  EXPECT_THAT(outcome.err, HasSubstr("No process of this job was observed."));
}

TEST_F(RunTest, FilesAskedForAreWrittenAndReadBack) {
  Serve(testing::LeakingSnapshot());
  const Outcome outcome =
      Run("exit 3", {"--json", directory_ + "/r.json", "--markdown", directory_ + "/r.md", "-o",
                     directory_ + "/r.tdm", "--tag", "zero_init=on", "--tag", "lr=1e-4"});
  EXPECT_EQ(outcome.exit_code, 3);
  const Json json = Json::parse(ReadAll(directory_ + "/r.json"));
  EXPECT_EQ(json["exit_code"], 3);
  EXPECT_EQ(json["leak"], true);
  EXPECT_EQ(json["ranks"].size(), 4u);
  EXPECT_THAT(ReadAll(directory_ + "/r.md"), HasSubstr("### LEAK: tensors kept"));
  const auto recording = ReadRecording(directory_ + "/r.tdm");
  ASSERT_TRUE(recording.ok()) << recording.error().ToString();
  EXPECT_EQ(recording->tags().at("zero_init"), "on");
  EXPECT_EQ(recording->exit_code(), 3);
  EXPECT_GT(recording->end_unix_ns(), recording->start_unix_ns());
  const Outcome leaks = Tidemark({"leaks", "--from", directory_ + "/r.tdm"});
  EXPECT_EQ(leaks.exit_code, 0);
  EXPECT_THAT(leaks.out, HasSubstr("LEAK: tensors kept, on all 4 ranks"));
}

TEST_F(RunTest, AFileThatCannotBeWrittenIsTrouble) {
  const Outcome outcome = Run("exit 0", {"-o", directory_ + "/no/such/r.tdm"});
  EXPECT_EQ(outcome.exit_code, kBadFile);
  EXPECT_THAT(outcome.err, HasSubstr("no/such/r.tdm: No such file or directory"));
}

TEST_F(RunTest, ATagWithoutAValueIsWrongUsageBeforeTheJobStarts) {
  const Outcome outcome = Run("touch $FAKE_DIRECTORY/ran", {"--tag", "novalue"});
  EXPECT_EQ(outcome.exit_code, kUsage);
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/ran"));
}

TEST_F(RunTest, ADaemonThatCannotStartDoesNotKeepTheJobFromRunning) {
  std::ofstream(directory_ + "/refuse") << "config line 3: no such key";
  const Outcome outcome = Run("exit 4");
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(outcome.err, HasSubstr("start a private daemon: config line 3: no such key"));
  EXPECT_THAT(outcome.err, HasSubstr("the job runs unobserved"));
  EXPECT_EQ(Run("exit 0", {"--fail-on", "leak"}).exit_code, kNotObserved);
}

TEST_F(RunTest, SwitchedOffMeansNothingIsSet) {
  environment_.Set("TIDEMARK", "off");
  const Outcome outcome =
      Run("echo \"[$CUDA_INJECTION64_PATH][$TIDEMARK_RUN][$TIDEMARK_AGENT_SOCKET]\"");
  EXPECT_EQ(outcome.out, "[][][]\n");
  EXPECT_TRUE(DaemonPids().empty());
}

TEST_F(RunTest, RunsAtTheSameTimeShareOneDaemon) {
  std::vector<pid_t> pids;
  for (int i = 0; i < 4; ++i) {
    pids.push_back(Start(Arguments("sleep 0.3"), "run" + std::to_string(i)));
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Finish(pids[static_cast<size_t>(i)], "run" + std::to_string(i)).exit_code, 0);
  }
  EXPECT_EQ(DaemonPids().size(), 1u);
}

TEST_F(RunTest, ThePrivateDaemonOutlivesTheRunForOtherRanks) {
  Run("exit 0");
  Run("exit 0");
  ASSERT_EQ(DaemonPids().size(), 1u);
  EXPECT_EQ(::kill(DaemonPids()[0], 0), 0);
}

TEST_F(RunTest, ADaemonThatDiesIsStartedAgainWhileTheJobRuns) {
  const pid_t pid = Start(
      Arguments("touch $FAKE_DIRECTORY/up; while [ ! -e $FAKE_DIRECTORY/done ]; do sleep 0.05; "
                "done"),
      "one");
  ASSERT_TRUE(WaitForFile("up"));
  ASSERT_EQ(DaemonPids().size(), 1u);
  ::kill(DaemonPids()[0], SIGKILL);
  for (int i = 0; i < 500 && DaemonPids().size() < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::ofstream(directory_ + "/done") << "";
  const Outcome outcome = Finish(pid, "one");
  EXPECT_EQ(DaemonPids().size(), 2u);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("the daemon had to be started again 1 time"));
  EXPECT_THAT(outcome.err, HasSubstr("No leak found."));
}

TEST_F(RunTest, AnInnerRunSharesTheDaemonAndLeavesTheReportToTheOuterOne) {
  const Outcome outcome = Run(std::string("exec ") + TIDEMARK + " run --private -- sh -c 'exit 6'");
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_EQ(DaemonPids().size(), 1u);
  const size_t first = outcome.err.find("Tidemark report");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(outcome.err.find("Tidemark report", first + 1), std::string::npos);
}

TEST_F(RunTest, OnlyLocalRankZeroReports) {
  environment_.Set("PMIX_NAMESPACE", "job7");
  environment_.Set("OMPI_COMM_WORLD_LOCAL_RANK", "1");
  EXPECT_THAT(Run("exit 0").err, Not(HasSubstr("Tidemark report")));
  environment_.Set("OMPI_COMM_WORLD_LOCAL_RANK", "0");
  EXPECT_THAT(Run("exit 0").err, HasSubstr("Tidemark report"));
}

TEST_F(RunTest, AParentThatIgnoresItsChildrenDoesNotHideTheExitCode) {
  const std::string script =
      std::string("trap '' CHLD; exec ") + TIDEMARK + " run --private --quiet -- sh -c 'exit 9'";
  EXPECT_EQ(::system(nullptr), 1);
  std::ofstream(directory_ + "/outer.sh") << script;
  for (const auto& variable : environment_.Strings()) {
    const size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
  const int status = ::system(("sh " + directory_ + "/outer.sh").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 9);
}

TEST_F(RunTest, ACommandWithoutADaemonSaysHowToStartOne) {
  environment_.Set("TIDEMARK_SOCKET", directory_ + "/none.sock");
  for (const char* command : {"ps", "where", "sites", "steps", "leaks", "job", "top", "report"}) {
    const Outcome outcome = Tidemark({command});
    EXPECT_EQ(outcome.exit_code, kNoDaemon) << command;
    EXPECT_EQ(outcome.out, "") << command;
    EXPECT_THAT(outcome.err, HasSubstr("systemctl start tidemarkd")) << command;
    EXPECT_THAT(outcome.err, HasSubstr("tidemark run -- CMD")) << command;
    EXPECT_THAT(outcome.err, HasSubstr("none.sock: No such file or directory")) << command;
  }
}

}  // namespace
}  // namespace tidemark::client
