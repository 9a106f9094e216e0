// Jobs under the real agent, for tests: a daemon's socket that takes the region, a program started
// with the injection set, and the region as a daemon reads it, by pread.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "wire/entry_point.h"
#include "wire/handshake.h"
#include "wire/region.h"

namespace tidemark::agent::testing {

// A copy of a region.
class RegionCopy {
 public:
  explicit RegionCopy(int fd);

  const wire::Header& header() const { return header_; }
  template <typename Row>
  std::vector<Row> Rows(wire::Section section) const;

  // Null when there is no such row.
  std::unique_ptr<wire::TotalsRow> Totals(wire::Layer layer, wire::Kind kind, int16_t device) const;
  wire::FeatureRow Feature(wire::Feature feature) const;
  uint64_t Losses(wire::Loss loss) const { return header_.losses[static_cast<uint32_t>(loss)]; }

 private:
  int fd_;
  wire::Header header_ = {};
};

// A daemon's agent socket. One thread, the test's.
class FakeDaemon {
 public:
  explicit FakeDaemon(const std::string& path);
  ~FakeDaemon();

  const std::string& path() const { return path_; }
  // Waits for an agent, takes its region and accepts it. False after `seconds`.
  bool TakeAgent(double seconds = 10);
  void Command(wire::CommandOp op, uint64_t argument = 0);

  const wire::Hello& hello() const { return hello_; }
  int region_fd() const { return region_.get(); }
  RegionCopy Region() const { return RegionCopy(region_.get()); }

 private:
  std::string path_;
  UniqueFd listener_;
  UniqueFd connection_;
  UniqueFd region_;
  wire::Hello hello_ = {};
};

struct JobResult {
  int exit_code = -1;  // -signal when killed
  std::string out;
  std::string error;
};

// A program with its standard streams in pipes. Ended in the destructor if it still runs.
class Job {
 public:
  // `environment` is added to ours; an empty value unsets.
  Job(const std::vector<std::string>& arguments,
      const std::map<std::string, std::string>& environment);
  ~Job();

  pid_t pid() const { return pid_; }
  // Blocks until the job has written a whole line; empty when it ended.
  std::string ReadLine();
  // An empty line to its standard input.
  void SendLine();
  void Kill(int signal);
  JobResult Wait();

 private:
  pid_t pid_ = -1;
  UniqueFd input_;
  UniqueFd output_;
  UniqueFd error_;
  std::string out_;
};

// The variables that put a job under the agent with `daemon`.
std::map<std::string, std::string> UnderAgent(const FakeDaemon& daemon);
// Those of the same job without it.
std::map<std::string, std::string> WithoutAgent();

std::string TemporaryPath(const std::string& name);

// Repeats `done` until it is true; false after `seconds`.
template <typename Predicate>
bool Eventually(Predicate done, double seconds = 10);

}  // namespace tidemark::agent::testing

#include "cupti_agent/job_test_util_inl.h"
