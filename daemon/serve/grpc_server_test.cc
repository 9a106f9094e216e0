// The gRPC side through real clients on a real socket, as root and as somebody else.
#include <gmock/gmock.h>
#include <grp.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "daemon/serve/server.h"
#include "daemon/serve/testing_peer.h"
#include "daemon/serve/testing_snapshot.h"
#include "daemon/serve/unix_listener.h"
#include "tidemark/v1/tidemark.grpc.pb.h"

namespace tidemark::serve {
namespace {

using grpc::StatusCode;
using ::testing::ElementsAre;
using testing::kStranger;
using namespace std::chrono_literals;

std::vector<int> Pids(const v1::Snapshot& snapshot) {
  std::vector<int> pids;
  for (const v1::Process& process : snapshot.processes()) pids.push_back(process.pid());
  return pids;
}

class GrpcServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tidemark-serve-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    directory_ = pattern;
    chmod(pattern, 0755);
    socket_ = directory_ + "/api.sock";
  }

  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  void StartServer(const std::string& group = "tidemark-no-such-group") {
    server_ = std::make_unique<Server>(
        hub_, control_,
        ServerOptions{
            .api_socket = socket_, .api_group = group, .http_port = 0, .version = "1.2.3"});
    const Result<void> started = server_->Start();
    ASSERT_TRUE(started.ok()) << started.error().ToString();
  }

  // Two processes of root, one of the stranger.
  void PublishThree(uint64_t sequence = 1) {
    NodeSnapshot node = testing::MakeNode(3, 4, sequence);
    node.processes[0].identity.uid = 0;
    node.processes[1].identity.uid = 0;
    node.processes[2].identity.uid = kStranger;
    hub_.Publish(testing::Share(std::move(node)));
  }

  std::shared_ptr<grpc::Channel> Channel() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
    return grpc::CreateCustomChannel("unix:" + socket_, grpc::InsecureChannelCredentials(),
                                     arguments);
  }
  std::unique_ptr<v1::Tidemark::Stub> Client() { return v1::Tidemark::NewStub(Channel()); }

  std::unique_ptr<v1::Tidemark::Stub> ClientAs(uid_t uid, gid_t gid) {
    UniqueFd fd = testing::ConnectUnixAs(uid, gid, socket_);
    EXPECT_TRUE(fd.valid());
    return v1::Tidemark::NewStub(grpc::CreateInsecureChannelFromFd("stranger", fd.Release()));
  }

  static grpc::Status Get(v1::Tidemark::Stub& client, v1::Snapshot* out,
                          const v1::GetSnapshotRequest& request = {}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 5s);
    return client.GetSnapshot(&context, request, out);
  }

  SnapshotHub hub_;
  testing::FakeControl control_;
  std::string directory_, socket_;
  std::unique_ptr<Server> server_;
};

TEST_F(GrpcServerTest, SaysUnavailableUntilTheFirstTick) {
  StartServer();
  v1::Snapshot snapshot;
  EXPECT_EQ(Get(*Client(), &snapshot).error_code(), StatusCode::UNAVAILABLE);
  PublishThree();
  EXPECT_TRUE(Get(*Client(), &snapshot).ok());
}

TEST_F(GrpcServerTest, RootSeesEveryProcessAndWhereTheMetricsAre) {
  PublishThree();
  StartServer();
  v1::Snapshot snapshot;
  const grpc::Status status = Get(*Client(), &snapshot);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(Pids(snapshot), ElementsAre(1000, 1001, 1002));
  EXPECT_EQ(snapshot.daemon_version(), "1.2.3");
  EXPECT_EQ(snapshot.metrics_url(),
            "http://127.0.0.1:" + std::to_string(server_->BoundHttpPort()) + "/metrics");
}

TEST_F(GrpcServerTest, AnotherUserSeesOnlyItsOwnProcesses) {
  PublishThree();
  StartServer();
  const auto stranger = ClientAs(kStranger, kStranger);
  v1::Snapshot snapshot;
  const grpc::Status status = Get(*stranger, &snapshot);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(Pids(snapshot), ElementsAre(1002));

  v1::GetSnapshotRequest request;
  request.add_pids(1000);
  ASSERT_TRUE(Get(*stranger, &snapshot, request).ok());
  EXPECT_EQ(snapshot.processes_size(), 0);
  EXPECT_EQ(snapshot.node(), "node-7");
}

TEST_F(GrpcServerTest, UsersAreToldApartWhenTheirConnectionsComeAndGo) {
  PublishThree();
  StartServer();
  for (int round = 0; round < 20; ++round) {
    v1::Snapshot seen;
    ASSERT_TRUE(Get(*ClientAs(kStranger, kStranger), &seen).ok());
    ASSERT_THAT(Pids(seen), ElementsAre(1002)) << round;
    ASSERT_TRUE(Get(*Client(), &seen).ok());
    ASSERT_EQ(seen.processes_size(), 3) << round;
    ASSERT_TRUE(Get(*ClientAs(kStranger + 1, kStranger), &seen).ok());
    ASSERT_EQ(seen.processes_size(), 0) << round;
  }
}

TEST_F(GrpcServerTest, AMemberOfTheGroupSeesEveryProcess) {
  PublishThree();
  const group* daemon_group = getgrnam("daemon");
  ASSERT_NE(daemon_group, nullptr);
  StartServer("daemon");
  v1::Snapshot snapshot;
  ASSERT_TRUE(Get(*ClientAs(kStranger, daemon_group->gr_gid), &snapshot).ok());
  EXPECT_EQ(snapshot.processes_size(), 3);
  struct stat info {};
  ASSERT_EQ(stat(socket_.c_str(), &info), 0);
  EXPECT_EQ(info.st_gid, daemon_group->gr_gid);
  EXPECT_EQ(info.st_mode & 0777, 0666u);
}

TEST_F(GrpcServerTest, AnotherUserMayNotTouchWhatIsNotItsOwn) {
  PublishThree();
  StartServer();
  const auto stranger = ClientAs(kStranger, kStranger);
  v1::DetachRequest detach;
  v1::DetachResponse detached;
  detach.set_pid(1000);
  {
    grpc::ClientContext context;
    EXPECT_EQ(stranger->Detach(&context, detach, &detached).error_code(),
              StatusCode::PERMISSION_DENIED);
  }
  {
    grpc::ClientContext context;
    v1::ListHoldersRequest request;
    request.set_pid(1000);
    v1::ListHoldersResponse response;
    EXPECT_EQ(stranger->ListHolders(&context, request, &response).error_code(),
              StatusCode::PERMISSION_DENIED);
  }
  {
    grpc::ClientContext context;
    v1::ReleaseGpuResponse response;
    EXPECT_EQ(stranger->ReleaseGpu(&context, {}, &response).error_code(),
              StatusCode::PERMISSION_DENIED);
  }
  EXPECT_TRUE(control_.detached.empty());
  EXPECT_FALSE(control_.released);

  detach.clear_pid();
  detach.set_all(true);
  grpc::ClientContext context;
  ASSERT_TRUE(stranger->Detach(&context, detach, &detached).ok());
  EXPECT_THAT(detached.detached_pids(), ElementsAre(1002));
  EXPECT_THAT(control_.detached, ElementsAre(1002));
}

TEST_F(GrpcServerTest, DetachSaysWhatItCannotDo) {
  PublishThree();
  StartServer();
  control_.without_agent = 1001;
  const auto client = Client();
  const auto code = [&](int pid, bool all) {
    grpc::ClientContext context;
    v1::DetachRequest request;
    request.set_pid(pid);
    request.set_all(all);
    v1::DetachResponse response;
    return client->Detach(&context, request, &response).error_code();
  };
  EXPECT_EQ(code(1000, false), StatusCode::OK);
  EXPECT_EQ(code(1001, false), StatusCode::NOT_FOUND);
  EXPECT_EQ(code(4242, false), StatusCode::NOT_FOUND);
  EXPECT_EQ(code(0, false), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(1000, true), StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcServerTest, ListsHoldersUpToTheNumberAskedFor) {
  PublishThree();
  StartServer();
  const auto client = Client();
  v1::ListHoldersRequest request;
  request.set_pid(1000);
  request.set_site_id(77);
  v1::ListHoldersResponse response;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(client->ListHolders(&context, request, &response).ok());
    ASSERT_EQ(response.blocks_size(), 64);
    EXPECT_EQ(response.blocks_total(), 100u);
    EXPECT_EQ(response.blocks(1).address(), 0x2000u);
    EXPECT_EQ(response.blocks(1).bytes(), 77u);
    EXPECT_EQ(response.blocks(1).step(), 1u);
  }
  for (const int bad : {-1, 65537}) {
    grpc::ClientContext context;
    request.set_max_addresses(bad);
    EXPECT_EQ(client->ListHolders(&context, request, &response).error_code(),
              StatusCode::INVALID_ARGUMENT);
  }
}

TEST_F(GrpcServerTest, ReleasesAndReopensTheGpu) {
  PublishThree();
  StartServer();
  const auto client = Client();
  v1::ReleaseGpuRequest request;
  v1::ReleaseGpuResponse response;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(client->ReleaseGpu(&context, request, &response).ok());
    EXPECT_TRUE(response.released());
    EXPECT_TRUE(control_.released);
  }
  grpc::ClientContext context;
  request.set_resume(true);
  ASSERT_TRUE(client->ReleaseGpu(&context, request, &response).ok());
  EXPECT_FALSE(response.released());
  EXPECT_FALSE(control_.released);
}

TEST_F(GrpcServerTest, RefusesNegativeLimits) {
  PublishThree();
  StartServer();
  v1::GetSnapshotRequest request;
  request.set_max_sites(-1);
  v1::Snapshot snapshot;
  EXPECT_EQ(Get(*Client(), &snapshot, request).error_code(), StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext context;
  const auto watch = Client()->WatchSnapshots(&context, request);
  EXPECT_FALSE(watch->Read(&snapshot));
  EXPECT_EQ(watch->Finish().error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcServerTest, GivesUpACallWhoseDeadlinePasses) {
  PublishThree();
  StartServer();
  control_.hold = 300ms;
  v1::ListHoldersRequest request;
  request.set_pid(1000);
  v1::ListHoldersResponse response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 50ms);
  EXPECT_EQ(Client()->ListHolders(&context, request, &response).error_code(),
            StatusCode::DEADLINE_EXCEEDED);
  v1::Snapshot snapshot;
  EXPECT_TRUE(Get(*Client(), &snapshot).ok());
}

TEST_F(GrpcServerTest, WatchSendsEachSnapshotUntilCancelled) {
  PublishThree(1);
  StartServer();
  const auto client = Client();
  grpc::ClientContext context;
  const auto watch = client->WatchSnapshots(&context, {});
  v1::Snapshot snapshot;
  for (uint64_t sequence = 1; sequence <= 4; ++sequence) {
    ASSERT_TRUE(watch->Read(&snapshot));
    EXPECT_EQ(snapshot.sequence(), sequence);
    EXPECT_EQ(snapshot.processes_size(), 3);
    PublishThree(sequence + 1);
  }
  context.TryCancel();
  while (watch->Read(&snapshot)) {
  }
  EXPECT_EQ(watch->Finish().error_code(), StatusCode::CANCELLED);
}

TEST_F(GrpcServerTest, WatchObeysTheUidRule) {
  PublishThree();
  StartServer();
  const auto stranger = ClientAs(kStranger, kStranger);
  grpc::ClientContext context;
  const auto watch = stranger->WatchSnapshots(&context, {});
  v1::Snapshot snapshot;
  ASSERT_TRUE(watch->Read(&snapshot));
  EXPECT_THAT(Pids(snapshot), ElementsAre(1002));
  context.TryCancel();
}

TEST_F(GrpcServerTest, ASlowReaderGetsTheLatestNotTheBacklog) {
  hub_.Publish(testing::Share(testing::MakeNode(2, 2000, 1)));  // more than any window holds
  StartServer();
  const auto client = Client();
  grpc::ClientContext context;
  const auto watch = client->WatchSnapshots(&context, {});
  v1::Snapshot snapshot;
  ASSERT_TRUE(watch->Read(&snapshot));
  for (uint64_t sequence = 2; sequence <= 40; ++sequence) {
    hub_.Publish(testing::Share(testing::MakeNode(2, 2000, sequence)));
    std::this_thread::sleep_for(10ms);
  }
  int reads = 0;
  do {
    ASSERT_TRUE(watch->Read(&snapshot));
    ++reads;
  } while (snapshot.sequence() < 40);
  EXPECT_LT(reads, 10);
  context.TryCancel();
}

TEST_F(GrpcServerTest, ServesAHundredWatchersAtOnce) {
  PublishThree(1);
  StartServer();
  struct Watcher {
    std::unique_ptr<v1::Tidemark::Stub> client;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::Snapshot>> stream;
  };
  std::vector<std::unique_ptr<Watcher>> watchers;
  for (int i = 0; i < 100; ++i) {
    auto watcher = std::make_unique<Watcher>();
    watcher->client = Client();
    watcher->stream = watcher->client->WatchSnapshots(&watcher->context, {});
    watchers.push_back(std::move(watcher));
  }
  v1::Snapshot snapshot;
  for (const auto& watcher : watchers) {
    ASSERT_TRUE(watcher->stream->Read(&snapshot));
    EXPECT_EQ(snapshot.sequence(), 1u);
  }
  PublishThree(2);
  for (const auto& watcher : watchers) {
    ASSERT_TRUE(watcher->stream->Read(&snapshot));
    EXPECT_EQ(snapshot.sequence(), 2u);
  }
  const auto start = std::chrono::steady_clock::now();
  server_->Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
  for (const auto& watcher : watchers) {
    while (watcher->stream->Read(&snapshot)) {
    }
    EXPECT_EQ(watcher->stream->Finish().error_code(), StatusCode::UNAVAILABLE);
  }
}

TEST_F(GrpcServerTest, AUserWithTooManyConnectionsIsRefusedAndOthersAreNot) {
  PublishThree();
  StartServer();
  std::vector<UniqueFd> open = testing::ConnectManyUnixAs(kStranger, kStranger, socket_,
                                                          UnixListener::kMaxConnectionsOfUid + 20);
  ASSERT_FALSE(open.empty());
  v1::Snapshot snapshot;
  EXPECT_TRUE(Get(*Client(), &snapshot).ok());
  EXPECT_TRUE(Get(*ClientAs(kStranger + 1, kStranger), &snapshot).ok());
  EXPECT_EQ(Get(*ClientAs(kStranger, kStranger), &snapshot).error_code(), StatusCode::UNAVAILABLE);
  open.clear();
  for (int attempt = 0; attempt < 50; ++attempt) {
    if (Get(*ClientAs(kStranger, kStranger), &snapshot).ok()) return;
    std::this_thread::sleep_for(20ms);
  }
  FAIL() << "closed connections still count";
}

TEST_F(GrpcServerTest, GarbageOnTheSocketLeavesItAlive) {
  PublishThree();
  StartServer();
  std::mt19937 random(7);
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  int round = 0;
  for (const UniqueFd& fd : testing::ConnectManyUnixAs(kStranger, kStranger, socket_, 100)) {
    ++round;
    std::string bytes = round % 2 == 0 ? "" : preface;
    const size_t length = random() % 4096;
    for (size_t i = 0; i < length; ++i) bytes.push_back(static_cast<char>(random()));
    (void)!send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  ASSERT_EQ(round, 100);
  v1::Snapshot snapshot;
  EXPECT_TRUE(Get(*Client(), &snapshot).ok());
}

TEST_F(GrpcServerTest, RefusesARequestOfAbsurdSize) {
  PublishThree();
  StartServer();
  v1::GetSnapshotRequest request;
  for (int i = 0; i < 100'000; ++i) request.add_pids(1'000'000 + i);
  v1::Snapshot snapshot;
  EXPECT_EQ(Get(*Client(), &snapshot, request).error_code(), StatusCode::RESOURCE_EXHAUSTED);
}

// Calls a method that this test has no generated code for.
grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& request, std::string* response) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 5s);
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  void* tag = nullptr;
  bool ok = false;
  const auto stream = stub.PrepareCall(&context, method, &queue);
  stream->StartCall(&tag);
  queue.Next(&tag, &ok);
  stream->WriteLast(grpc::ByteBuffer(&slice, 1), {}, &tag);
  queue.Next(&tag, &ok);
  grpc::ByteBuffer answer;
  stream->Read(&answer, &tag);
  queue.Next(&tag, &ok);
  if (ok) {
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(answer.Dump(&slices).ok());
    for (const grpc::Slice& part : slices) {
      response->append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
  }
  grpc::Status status;
  stream->Finish(&status, &tag);
  queue.Next(&tag, &ok);
  return status;
}

TEST_F(GrpcServerTest, ReflectionNamesTheService) {
  StartServer();
  std::string response;
  // ServerReflectionRequest{list_services: "*"}
  const grpc::Status status =
      CallRaw(Channel(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
              std::string("\x3a\x01*", 3), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_NE(response.find("tidemark.v1.Tidemark"), std::string::npos);
  EXPECT_NE(response.find("grpc.health.v1.Health"), std::string::npos);
}

TEST_F(GrpcServerTest, HealthFollowsTheTick) {
  StartServer();
  const auto health = [&](const std::string& service) {
    std::string request;
    if (!service.empty()) {
      request = std::string("\x0a", 1) + static_cast<char>(service.size()) + service;
    }
    std::string response;
    const grpc::Status status =
        CallRaw(Channel(), "/grpc.health.v1.Health/Check", request, &response);
    return status.ok() ? response : status.error_message();
  };
  const std::string serving("\x08\x01", 2), not_serving("\x08\x02", 2);
  EXPECT_EQ(health(""), not_serving);
  PublishThree();
  for (int i = 0; i < 100 && health("") != serving; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(health(""), serving);
  EXPECT_EQ(health("tidemark.v1.Tidemark"), serving);
  NodeSnapshot old = testing::MakeNode(1, 1, 2);
  old.monotonic_ns -= 60'000'000'000u;
  hub_.Publish(testing::Share(std::move(old)));
  for (int i = 0; i < 100 && health("") == serving; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(health(""), not_serving);
}

TEST_F(GrpcServerTest, ReplacesASocketThatADeadDaemonLeft) {
  {
    const UniqueFd left(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket_.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(bind(left.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  PublishThree();
  StartServer();
  v1::Snapshot snapshot;
  EXPECT_TRUE(Get(*Client(), &snapshot).ok());
}

TEST_F(GrpcServerTest, RefusesASocketThatAnotherDaemonServes) {
  StartServer();
  Server second(hub_, control_, {.api_socket = socket_, .http = false});
  const Result<void> started = second.Start();
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().ToString(), ::testing::HasSubstr("another tidemarkd serves it"));
}

TEST_F(GrpcServerTest, NeverUnlinksWhatIsNoSocket) {
  std::ofstream(socket_) << "precious";
  Server server(hub_, control_, {.api_socket = socket_, .http = false});
  EXPECT_FALSE(server.Start().ok());
  EXPECT_TRUE(std::filesystem::is_regular_file(socket_));
}

TEST_F(GrpcServerTest, SaysWhatIsWrongWithThePath) {
  for (const std::string& path : {directory_ + "/none/api.sock", std::string(200, 'x')}) {
    Server server(hub_, control_, {.api_socket = path, .http = false});
    const Result<void> started = server.Start();
    ASSERT_FALSE(started.ok());
    EXPECT_THAT(started.error().ToString(), ::testing::HasSubstr("listen on " + path));
  }
}

TEST_F(GrpcServerTest, StopsWithinTwoSecondsWhileAnActIsUnderWay) {
  PublishThree();
  StartServer();
  control_.hold = 1000ms;
  std::thread caller([this] {
    v1::ListHoldersRequest request;
    request.set_pid(1000);
    v1::ListHoldersResponse response;
    grpc::ClientContext context;
    (void)Client()->ListHolders(&context, request, &response);
  });
  std::this_thread::sleep_for(100ms);
  const auto start = std::chrono::steady_clock::now();
  server_->Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
  EXPECT_FALSE(std::filesystem::exists(socket_));
  caller.join();
}

TEST_F(GrpcServerTest, SurvivesAHubThatClosesFirst) {
  PublishThree();
  StartServer();
  hub_.Close();
  v1::Snapshot snapshot;
  EXPECT_TRUE(Get(*Client(), &snapshot).ok());
}

}  // namespace
}  // namespace tidemark::serve
