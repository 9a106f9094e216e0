// NodeSnapshot as the public message. What the daemon serves, what it writes as a post-mortem and
// what a recording holds all come through here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/snapshot/node_snapshot.h"

namespace tidemark::v1 {
class Process;
class ProcessRef;
class Site;
class Snapshot;
class Verdict;
}  // namespace tidemark::v1

namespace tidemark::serve {

struct ProtoOptions {
  std::vector<pid_t> pids = {};  // empty = all
  size_t max_sites = 0;          // per process, largest live first; 0 = all
  size_t max_steps = 0;          // per process, latest; 0 = all
  bool omit_sites = false;
  bool omit_steps = false;
};

// Processes for which `visible` is false are left out without a trace.
void ToProto(const NodeSnapshot& snapshot, const ProtoOptions& options,
             const std::function<bool(const ProcessSnapshot&)>& visible, v1::Snapshot* out);

void ToProto(const ProcessSnapshot& process, const ProtoOptions& options, v1::Process* out);
void ToProto(const ProcessSnapshot& process, v1::ProcessRef* out);
void ToProto(const SiteView& site, v1::Site* out);
void ToProto(const detect::Verdict& verdict, v1::Verdict* out);

}  // namespace tidemark::serve
