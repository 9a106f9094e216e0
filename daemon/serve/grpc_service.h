// The RPCs of tidemark.v1.Tidemark. Every request is checked against who asks; handlers run on
// gRPC's threads and never block: what may take time goes through the control queue.
#pragma once

#include <grpcpp/grpcpp.h>

#include "daemon/serve/control.h"
#include "daemon/serve/control_queue.h"
#include "daemon/serve/grpc_tcp.h"
#include "daemon/serve/history_calls.h"
#include "daemon/serve/peer.h"
#include "daemon/serve/serve_counters.h"
#include "daemon/serve/watch_list.h"
#include "tidemark/v1/tidemark.grpc.pb.h"

namespace tidemark::serve {

// Snapshots go out as ready bytes, so these two are raw; requests are parsed by hand.
using GrpcServiceBase = v1::Tidemark::WithRawCallbackMethod_GetSnapshot<
    v1::Tidemark::WithRawCallbackMethod_WatchSnapshots<
        v1::Tidemark::WithCallbackMethod_ListHolders<v1::Tidemark::WithCallbackMethod_Detach<
            v1::Tidemark::WithCallbackMethod_ReleaseGpu<v1::Tidemark::WithCallbackMethod_QueryRange<
                v1::Tidemark::WithCallbackMethod_Diff<v1::Tidemark::WithCallbackMethod_Export<
                    v1::Tidemark::WithCallbackMethod_ListPostmortems<
                        v1::Tidemark::WithCallbackMethod_GetPostmortem<
                            v1::Tidemark::Service>>>>>>>>>>;

class GrpcService final : public GrpcServiceBase {
 public:
  static constexpr int kDefaultHolders = 64;
  static constexpr int kMaxHolders = 65536;

  GrpcService(const SnapshotHub& hub, Control& control, const PeerPolicy& peers,
              const HistoryCalls& past, ServeCounters& counters, SnapshotViews& views,
              WatchList& watches, const GrpcTcp& tcp)
      : hub_(hub),
        control_(control),
        peers_(peers),
        past_(past),
        counters_(counters),
        views_(views),
        watches_(watches),
        tcp_(tcp) {}

  // Before the first request.
  void SetTcpPort(uint16_t port) { tcp_port_ = port; }

  grpc::ServerUnaryReactor* GetSnapshot(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchSnapshots(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* ListHolders(grpc::CallbackServerContext* context,
                                        const v1::ListHoldersRequest* request,
                                        v1::ListHoldersResponse* response) override;
  grpc::ServerUnaryReactor* Detach(grpc::CallbackServerContext* context,
                                   const v1::DetachRequest* request,
                                   v1::DetachResponse* response) override;
  grpc::ServerUnaryReactor* ReleaseGpu(grpc::CallbackServerContext* context,
                                       const v1::ReleaseGpuRequest* request,
                                       v1::ReleaseGpuResponse* response) override;
  grpc::ServerUnaryReactor* QueryRange(grpc::CallbackServerContext* context,
                                       const v1::QueryRangeRequest* request,
                                       v1::QueryRangeResponse* response) override;
  grpc::ServerUnaryReactor* Diff(grpc::CallbackServerContext* context,
                                 const v1::DiffRequest* request,
                                 v1::DiffResponse* response) override;
  grpc::ServerWriteReactor<v1::ExportChunk>* Export(grpc::CallbackServerContext* context,
                                                    const v1::ExportRequest* request) override;
  grpc::ServerUnaryReactor* ListPostmortems(grpc::CallbackServerContext* context,
                                            const v1::ListPostmortemsRequest* request,
                                            v1::ListPostmortemsResponse* response) override;
  grpc::ServerUnaryReactor* GetPostmortem(grpc::CallbackServerContext* context,
                                          const v1::GetPostmortemRequest* request,
                                          v1::Postmortem* response) override;

 private:
  // Counts the request and finds out who sent it.
  Result<Viewer> Admit(const grpc::CallbackServerContext& context);
  grpc::Status Refuse(Refusal cause, grpc::StatusCode code, const std::string& message);
  grpc::Status RefuseRemote();
  // OK when `viewer` may act on `pid`.
  grpc::Status MayTouch(const Viewer& viewer, pid_t pid);
  // Runs `act` on the queue and finishes the call with what it returns.
  grpc::ServerUnaryReactor* Enqueue(ControlQueue* queue, grpc::CallbackServerContext* context,
                                    std::function<grpc::Status()> act);
  // For questions to the past: whoever asks for `call` with its rights and its deadline.
  grpc::ServerUnaryReactor* AskPast(
      grpc::CallbackServerContext* context,
      std::function<QueryStatus(const Viewer&, std::chrono::steady_clock::time_point)> call);
  grpc::Status ToStatus(const QueryStatus& status);

  const SnapshotHub& hub_;
  Control& control_;
  const PeerPolicy& peers_;
  const HistoryCalls& past_;
  ServeCounters& counters_;
  SnapshotViews& views_;
  WatchList& watches_;
  const GrpcTcp tcp_;
  uint16_t tcp_port_ = 0;
  ControlQueue queue_;       // acts: within a second each
  ControlQueue past_queue_;  // questions to the past, which may take as long as their callers wait
};

}  // namespace tidemark::serve
