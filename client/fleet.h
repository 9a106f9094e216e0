// Many nodes at once: each daemon is asked in parallel, and a node that does not answer is a row,
// not a failure. Nothing is kept between calls: across nodes and time it is Prometheus that scales.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/command_line.h"
#include "client/targets.h"

namespace tidemark::client {

// --targets and its like, beside SourceOptions.
struct FleetOptions {
  std::string targets;
  std::string targets_file;
  std::string prometheus;
  int port = kApiPort;
  double timeout_seconds = 5;
  std::string tls_ca;
  std::string tls_certificate;
  std::string tls_key;

  void AddTo(CLI::App& command);
  bool given() const { return !targets.empty() || !targets_file.empty() || !prometheus.empty(); }
};

// One node's answer, or why there is none.
struct NodeAnswer {
  Target target;
  std::string error;  // empty = it answered
  v1::Snapshot snapshot;
};

// In the order of the targets. Each node has `timeout` from when it is asked; 64 are asked at a
// time.
std::vector<NodeAnswer> AskNodes(const std::vector<Target>& targets, const FleetOptions& options,
                                 const v1::GetSnapshotRequest& request);

// The processes of all nodes as one snapshot that has no node's name.
v1::Snapshot Merge(const std::vector<NodeAnswer>& answers);

// A row a node: who answered, with which ranks, and who did not and why.
std::string NodesText(const std::vector<NodeAnswer>& answers, const Ink& ink);
Json NodesJson(const std::vector<NodeAnswer>& answers);

// What the renderer makes of all nodes.
enum class FleetView {
  kMerged,  // of one snapshot: ranks of a job side by side, wherever they run
  kByNode   // of each node's, under its name: pids and devices are a node's own
};
// Reads the nodes that were asked for, else what LoadAndPrint reads. kNoDaemon when no node
// answers.
int LoadAndPrintFleet(Context& context, const SourceOptions& source, const FleetOptions& fleet,
                      const v1::GetSnapshotRequest& request, FleetView view,
                      const Renderer& renderer);

}  // namespace tidemark::client
