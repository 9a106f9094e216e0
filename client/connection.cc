#include "client/connection.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "client/socket_path.h"
#include "tidemark/v1/tidemark.grpc.pb.h"

namespace tidemark::client {
namespace {

constexpr std::chrono::seconds kCommandTimeout{10};
constexpr std::chrono::seconds kExportTimeout{60};

std::string HintFor(grpc::StatusCode code) {
  switch (static_cast<int>(code)) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "see whether tidemarkd still runs: systemctl status tidemarkd";
    case grpc::StatusCode::PERMISSION_DENIED:
      return "join the group tidemark, or act on processes of your own";
    case grpc::StatusCode::UNIMPLEMENTED:
      return "the daemon is older than this command: install the same version of both";
    default:
      return "";
  }
}

std::string WhyOf(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return "the daemon did not answer in time";
  }
  return status.error_message().empty() ? "the daemon refused" : status.error_message();
}

bool Unreachable(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
}

}  // namespace

class Connection::Stub {
 public:
  explicit Stub(const std::string& socket) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);  // a node with many sites exceeds the default 4 MiB
    // A daemon of this node is never behind a proxy, whatever http_proxy says.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    // A Host header that is a socket path is refused by some servers.
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
    stub_ = v1::Tidemark::NewStub(
        grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments));
  }
  v1::Tidemark::Stub* operator->() const { return stub_.get(); }

 private:
  std::unique_ptr<v1::Tidemark::Stub> stub_;
};

Connection::Connection(std::string socket, std::unique_ptr<Stub> stub)
    : socket_(std::move(socket)), stub_(std::move(stub)) {}
Connection::Connection(Connection&&) noexcept = default;
Connection& Connection::operator=(Connection&&) noexcept = default;
Connection::~Connection() = default;

Result<Connection> Connection::Open(const std::vector<std::string>& sockets) {
  std::string why;
  for (const std::string& socket : sockets) {
    const Result<void> answers = ProbeSocket(socket);
    if (answers) return Connection(socket, std::make_unique<Stub>(socket));
    why += (why.empty() ? "" : "; ") + socket + ": " + answers.error().why;
  }
  return Error{"find a daemon", "none answers: " + why,
               "start the node's with `systemctl start tidemarkd`, or watch one job with `tidemark "
               "run -- CMD`"};
}

template <typename Response, typename Call>
Result<Response> Connection::Ask(const std::string& tried, std::chrono::milliseconds timeout,
                                 Call call) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  Response response;
  const grpc::Status status = call(&context, &response);
  refused_ = !status.ok() && !Unreachable(status);
  if (status.ok()) return response;
  return Error{tried + " (" + socket_ + ")", WhyOf(status), HintFor(status.error_code())};
}

Result<v1::Snapshot> Connection::GetSnapshot(const v1::GetSnapshotRequest& request,
                                             std::chrono::milliseconds timeout) {
  return Ask<v1::Snapshot>("read the daemon's snapshot", timeout, [&](auto* context, auto* answer) {
    return (*stub_)->GetSnapshot(context, request, answer);
  });
}

Result<void> Connection::WatchSnapshots(const v1::GetSnapshotRequest& request,
                                        const std::function<bool(const v1::Snapshot&)>& each) {
  grpc::ClientContext context;
  const auto reader = (*stub_)->WatchSnapshots(&context, request);
  v1::Snapshot snapshot;
  while (reader->Read(&snapshot)) {
    if (each(snapshot)) continue;
    context.TryCancel();
    return {};
  }
  const grpc::Status status = reader->Finish();
  refused_ = !status.ok() && !Unreachable(status);
  return Error{"watch the daemon's snapshots (" + socket_ + ")",
               status.ok() ? "the daemon ended the stream" : WhyOf(status),
               HintFor(status.error_code())};
}

Result<v1::ListHoldersResponse> Connection::ListHolders(const v1::ListHoldersRequest& request) {
  return Ask<v1::ListHoldersResponse>(
      "list the live blocks of a site", kCommandTimeout,
      [&](auto* context, auto* answer) { return (*stub_)->ListHolders(context, request, answer); });
}

Result<v1::DetachResponse> Connection::Detach(const v1::DetachRequest& request) {
  return Ask<v1::DetachResponse>(
      request.all() ? "detach every agent" : "detach from pid " + std::to_string(request.pid()),
      kCommandTimeout,
      [&](auto* context, auto* answer) { return (*stub_)->Detach(context, request, answer); });
}

Result<v1::ReleaseGpuResponse> Connection::ReleaseGpu(const v1::ReleaseGpuRequest& request) {
  return Ask<v1::ReleaseGpuResponse>(
      request.resume() ? "open the GPUs again" : "release the GPUs", kCommandTimeout,
      [&](auto* context, auto* answer) { return (*stub_)->ReleaseGpu(context, request, answer); });
}

Result<v1::ListPostmortemsResponse> Connection::ListPostmortems() {
  return Ask<v1::ListPostmortemsResponse>(
      "list the post-mortems", kCommandTimeout, [&](auto* context, auto* answer) {
        return (*stub_)->ListPostmortems(context, v1::ListPostmortemsRequest(), answer);
      });
}

Result<v1::Postmortem> Connection::GetPostmortem(const std::string& id) {
  v1::GetPostmortemRequest request;
  request.set_id(id);
  return Ask<v1::Postmortem>("read post-mortem " + id, kCommandTimeout,
                             [&](auto* context, auto* answer) {
                               return (*stub_)->GetPostmortem(context, request, answer);
                             });
}

Result<v1::QueryRangeResponse> Connection::QueryRange(v1::QueryRangeRequest request) {
  v1::QueryRangeResponse all;
  do {
    Result<v1::QueryRangeResponse> page = Ask<v1::QueryRangeResponse>(
        "read the daemon's history", kCommandTimeout, [&](auto* context, auto* answer) {
          return (*stub_)->QueryRange(context, request, answer);
        });
    if (!page) return page;
    request.set_page_token(page->next_page_token());
    all.MergeFrom(*page);
  } while (!request.page_token().empty());
  all.clear_next_page_token();
  return all;
}

Result<std::string> Connection::Export(const v1::ExportRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kExportTimeout);
  const auto reader = (*stub_)->Export(&context, request);
  std::string file;
  v1::ExportChunk chunk;
  while (reader->Read(&chunk)) file += chunk.data();
  const grpc::Status status = reader->Finish();
  refused_ = !status.ok() && !Unreachable(status);
  if (status.ok()) return file;
  return Error{"export " + request.format() + " (" + socket_ + ")", WhyOf(status),
               HintFor(status.error_code())};
}

}  // namespace tidemark::client
