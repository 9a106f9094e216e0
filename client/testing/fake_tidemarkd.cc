// Stands in for tidemarkd in the tests of `tidemark run`: takes the same flags and serves a
// snapshot made by hand, stamped with the run that the job says it belongs to.
//
//   FAKE_DIRECTORY/starts     a line with its pid for every start
//   FAKE_DIRECTORY/run        TIDEMARK_RUN, written by the job
//   FAKE_DIRECTORY/snapshot   the v1::Snapshot to serve
//   FAKE_DIRECTORY/refuse     where this exists: fails at once with its content as message
//
// Ends itself when nobody has asked anything for a while, so that no test leaves it behind.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include "tidemark/v1/tidemark.grpc.pb.h"

namespace {

using tidemark::v1::Snapshot;

std::string Directory() { return std::getenv("FAKE_DIRECTORY"); }

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

uint64_t Monotonic() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

class Service final : public tidemark::v1::Tidemark::Service {
 public:
  grpc::Status GetSnapshot(grpc::ServerContext*, const tidemark::v1::GetSnapshotRequest*,
                           Snapshot* answer) override {
    last_asked = Monotonic();
    answer->ParseFromString(ReadAll(Directory() + "/snapshot"));
    std::string run = ReadAll(Directory() + "/run");
    run.erase(run.find_last_not_of('\n') + 1);
    for (auto& process : *answer->mutable_processes()) {
      process.mutable_identity()->set_run(run);
      process.set_liveness("exited");
    }
    answer->set_monotonic_ns(Monotonic());
    return grpc::Status::OK;
  }
  std::atomic<uint64_t> last_asked = Monotonic();
};

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    flags[flag] = flag == "--private" || i + 1 == argc ? "" : argv[++i];
  }
  const std::string refusal = ReadAll(Directory() + "/refuse");
  if (!refusal.empty()) {
    std::cerr << refusal << std::endl;
    return 1;
  }
  std::ofstream(Directory() + "/starts", std::ios::app) << ::getpid() << std::endl;

  const std::string socket = flags["--api-socket"];
  ::unlink(socket.c_str());
  Service service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  if (!server) return 1;
  if (::write(std::atoi(flags["--ready-fd"].c_str()), "\n", 1) != 1) return 1;
  while (Monotonic() - service.last_asked < 20'000'000'000) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}
