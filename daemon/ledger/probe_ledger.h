// What the probes (daemon/source/bpf) know of one process, in the words of node_snapshot.h.
//
// Names of call sites are kept by stack, which the source shares as long as the process is watched.
// Owned and used by the tick thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "daemon/identity/device_map.h"
#include "daemon/snapshot/node_snapshot.h"
#include "daemon/source/agent/symbolizer.h"
#include "daemon/source/bpf/bpf_source.h"

namespace tidemark {

class ProbeLedger {
 public:
  ProbeLedger(pid_t pid, Symbolizer* symbolizer) : pid_(pid), symbolizer_(symbolizer) {}

  // `only_device`: where probes cannot know the device, the process's only one; -1 = it is not
  // known either.
  void Update(const BpfProcess& probes, const DeviceMap& devices, int only_device);

  const std::vector<ClassTotal>& totals() const { return totals_; }
  const std::vector<EntryPointView>& entry_points() const { return entry_points_; }
  const std::vector<LossView>& losses() const { return losses_; }
  const FeatureView& state() const { return state_; }
  const std::shared_ptr<const SiteList>& sites() const { return sites_; }

 private:
  struct Name {
    std::shared_ptr<const BpfStack> stack;  // keeps the key from being reused
    std::shared_ptr<const SiteInfo> info;
    bool pending = true;
  };

  std::shared_ptr<const SiteInfo> NameOf(const std::shared_ptr<const BpfStack>& stack);

  const pid_t pid_;
  Symbolizer* const symbolizer_;
  std::map<const BpfStack*, Name> names_;
  std::vector<ClassTotal> totals_;
  std::vector<EntryPointView> entry_points_;
  std::vector<LossView> losses_;
  FeatureView state_;
  std::shared_ptr<const SiteList> sites_ = std::make_shared<SiteList>();
};

}  // namespace tidemark
