// A program under test control: started with pipes on its standard streams. For tests.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace tidemark {

// What the program says of one class.
struct ToldTotal {
  uint64_t live_bytes = 0, live_count = 0, allocated_bytes = 0, allocated_count = 0;
  uint64_t failed_calls = 0;
};

class Target {
 public:
  explicit Target(const std::vector<std::string>& command) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    if (posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    input_ = fdopen(to[1], "w");
    output_ = fdopen(from[0], "r");
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  ~Target() { Quit(); }

  pid_t pid() const { return pid_; }

  std::string ReadLine() {
    char line[4096];
    if (!fgets(line, sizeof(line), output_)) return "(end)";
    std::string text = line;
    if (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }
  bool WaitReady() { return ReadLine() == "ready"; }
  void Say(const std::string& line) {
    fprintf(input_, "%s\n", line.c_str());
    fflush(input_);
  }

  // Runs the scenario and returns what the program says must be so.
  std::map<std::string, ToldTotal> Go() {
    Say("go");
    std::map<std::string, ToldTotal> told;
    for (std::string line = ReadLine(); line != "done" && line != "(end)"; line = ReadLine()) {
      std::istringstream words(line);
      std::string name;
      ToldTotal total;
      words >> name >> total.live_bytes >> total.live_count >> total.allocated_bytes >>
          total.allocated_count >> total.failed_calls;
      told[name] = total;
    }
    return told;
  }

  void Kill() { kill(pid_, SIGKILL); }

  // Lets the program end; its wait status.
  int Quit() {
    if (pid_ <= 0) return -1;
    fclose(input_);
    int status = 0;
    waitpid(pid_, &status, 0);
    fclose(output_);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  FILE* input_ = nullptr;
  FILE* output_ = nullptr;
};

}  // namespace tidemark
