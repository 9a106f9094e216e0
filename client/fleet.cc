#include "client/fleet.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>

#include "client/rank_view.h"
#include "client/table.h"
#include "client/units.h"
#include "tidemark/v1/tidemark.grpc.pb.h"

namespace tidemark::client {
namespace {

constexpr size_t kAtATime = 64;

Result<std::string> ReadPem(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error{"read " + path, "it cannot be opened", "give a PEM file"};
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

Result<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFor(const FleetOptions& options) {
  if (options.tls_ca.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  const std::pair<const std::string*, std::string*> files[] = {
      {&options.tls_ca, &ssl.pem_root_certs},
      {&options.tls_certificate, &ssl.pem_cert_chain},
      {&options.tls_key, &ssl.pem_private_key}};
  for (const auto& [path, text] : files) {
    if (path->empty()) continue;
    Result<std::string> read = ReadPem(*path);
    if (!read) return read.error();
    *text = std::move(*read);
  }
  return grpc::SslCredentials(ssl);
}

Result<std::vector<Target>> TargetsOf(const FleetOptions& options) {
  const std::chrono::milliseconds timeout(static_cast<int64_t>(options.timeout_seconds * 1000));
  Result<std::vector<Target>> targets =
      !options.targets.empty() ? ParseTargets(options.targets)
      : !options.targets_file.empty()
          ? ReadTargetsFile(options.targets_file, options.port)
          : TargetsOfPrometheus(options.prometheus, options.port, timeout);
  if (targets && targets->empty()) {
    return Error{"find the nodes", "the list is empty", "as in --targets gpu-1:9471,gpu-2:9471"};
  }
  return targets;
}

void AskOne(const std::shared_ptr<grpc::ChannelCredentials>& credentials,
            const v1::GetSnapshotRequest& request, std::chrono::milliseconds timeout,
            NodeAnswer* node) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // nodes are never behind one
  const auto stub =
      v1::Tidemark::NewStub(grpc::CreateCustomChannel(node->target.Text(), credentials, arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  const grpc::Status status = stub->GetSnapshot(&context, request, &node->snapshot);
  if (status.ok()) return;
  node->snapshot.Clear();
  node->error = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED
                    ? "no answer in time"
                    : Printable(status.error_message());
  if (node->error.empty()) node->error = "the daemon refused";
}

std::vector<const v1::Process*> RanksOf(const v1::Snapshot& snapshot) {
  std::vector<const v1::Process*> ranks;
  for (const v1::Process* process : ByRank(snapshot)) {
    if (IsRank(*process)) ranks.push_back(process);
  }
  return ranks;
}

}  // namespace

void FleetOptions::AddTo(CLI::App& command) {
  CLI::Option* list = command.add_option("--targets", targets,
                                         "Ask these nodes: HOST[:PORT],... (gRPC, port 9471)");
  CLI::Option* file = command.add_option("--targets-file", targets_file,
                                         "Ask the nodes of a Prometheus file_sd file (JSON)");
  CLI::Option* server = command.add_option(
      "--prometheus", prometheus, "Ask the nodes that this Prometheus scrapes: http://...");
  list->excludes(file)->excludes(server);
  file->excludes(server);
  for (const char* other : {"--socket", "--from"}) {
    for (CLI::Option* option : {list, file, server}) option->excludes(command.get_option(other));
  }
  command.add_option("--port", port, "gRPC port of nodes that were found (default 9471)")
      ->check(CLI::Range(1, 65535));
  command.add_option("--timeout", timeout_seconds, "Seconds for each node (default 5)")
      ->check(CLI::Range(0.1, 600.0));
  CLI::Option* ca = command.add_option("--tls-ca", tls_ca, "CA of the nodes' certificates (PEM)")
                        ->envname("TIDEMARK_TLS_CA");
  CLI::Option* certificate =
      command.add_option("--tls-cert", tls_certificate, "This client's certificate (PEM)")
          ->envname("TIDEMARK_TLS_CERT")
          ->needs(ca);
  command.add_option("--tls-key", tls_key, "Its key (PEM)")
      ->envname("TIDEMARK_TLS_KEY")
      ->needs(certificate);
}

std::vector<NodeAnswer> AskNodes(const std::vector<Target>& targets, const FleetOptions& options,
                                 const v1::GetSnapshotRequest& request) {
  std::vector<NodeAnswer> answers(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) answers[i].target = targets[i];
  const auto credentials = CredentialsFor(options);
  if (!credentials) {
    for (NodeAnswer& answer : answers) answer.error = credentials.error().ToString();
    return answers;
  }
  const std::chrono::milliseconds timeout(static_cast<int64_t>(options.timeout_seconds * 1000));
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < std::min(kAtATime, targets.size()); ++i) {
    threads.emplace_back([&] {
      for (size_t mine = next++; mine < answers.size(); mine = next++) {
        AskOne(*credentials, request, timeout, &answers[mine]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

v1::Snapshot Merge(const std::vector<NodeAnswer>& answers) {
  v1::Snapshot merged;
  for (const NodeAnswer& answer : answers) {
    merged.mutable_processes()->MergeFrom(answer.snapshot.processes());
    merged.set_unix_ns(std::max(merged.unix_ns(), answer.snapshot.unix_ns()));
  }
  return merged;
}

std::string NodesText(const std::vector<NodeAnswer>& answers, const Ink& ink) {
  Table table(
      {{"node"}, {"address"}, {"processes", Align::kRight}, {"ranks"}, {"GPU used"}, {"state"}});
  for (const NodeAnswer& answer : answers) {
    if (!answer.error.empty()) {
      table.Add(
          {"-", answer.target.Text(), "-", "-", "-", ink.Red("no answer") + ": " + answer.error});
      continue;
    }
    int64_t used = 0;
    int64_t total = 0;
    for (const v1::Device& device : answer.snapshot.devices()) {
      used += device.used_bytes();
      total += device.total_bytes();
    }
    const auto ranks = RanksOf(answer.snapshot);
    table.Add({Printable(answer.snapshot.node()), answer.target.Text(),
               FormatCount(static_cast<uint64_t>(answer.snapshot.processes_size())),
               ranks.empty() ? "-" : RanksText(ranks),
               total > 0 ? FormatBytes(used) + " of " + FormatBytes(total) : "-", "ok"});
  }
  return table.Text();
}

Json NodesJson(const std::vector<NodeAnswer>& answers) {
  Json nodes = Json::array();
  for (const NodeAnswer& answer : answers) {
    Json node = {{"address", answer.target.Text()}, {"answered", answer.error.empty()}};
    node["node"] = answer.error.empty() ? Json(answer.snapshot.node()) : Json(nullptr);
    node["error"] = answer.error.empty() ? Json(nullptr) : Json(answer.error);
    node["ranks"] = Json::array();
    for (const v1::Process* process : RanksOf(answer.snapshot)) {
      node["ranks"].push_back({{"training_job", process->identity().training_job()},
                               {"rank", process->identity().rank()},
                               {"pid", process->pid()}});
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

int LoadAndPrintFleet(Context& context, const SourceOptions& source, const FleetOptions& fleet,
                      const v1::GetSnapshotRequest& request, FleetView view,
                      const Renderer& renderer) {
  if (!fleet.given()) return LoadAndPrint(context, source, request, renderer);
  const Result<std::vector<Target>> targets = TargetsOf(fleet);
  if (!targets) return Fail(context, targets.error(), kUsage);
  std::vector<NodeAnswer> answers = AskNodes(*targets, fleet, request);
  for (NodeAnswer& answer : answers) source.Choose(answer.snapshot);
  const v1::Snapshot merged = Merge(answers);
  const bool any = std::ranges::any_of(answers, [](const auto& a) { return a.error.empty(); });

  if (source.json) {
    Json json;
    if (view == FleetView::kMerged) {
      json = renderer.json(merged);
      json.erase("node");
    } else {
      json["snapshots"] = Json::array();
      for (const NodeAnswer& answer : answers) {
        if (answer.error.empty()) json["snapshots"].push_back(renderer.json(answer.snapshot));
      }
    }
    json["nodes"] = NodesJson(answers);
    context.out << JsonText(json);
    return any ? kOk : kNoDaemon;
  }
  if (view == FleetView::kMerged) {
    if (any) context.out << renderer.text(merged, context.ink) << "\n";
  } else {
    for (const NodeAnswer& answer : answers) {
      if (answer.snapshot.processes().empty()) continue;
      context.out << context.ink.Bold(Printable(answer.snapshot.node())) << "\n"
                  << renderer.text(answer.snapshot, context.ink) << "\n";
    }
  }
  context.out << NodesText(answers, context.ink);
  return any ? kOk : kNoDaemon;
}

}  // namespace tidemark::client
