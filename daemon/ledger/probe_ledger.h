// What the probes (daemon/source/bpf) know of one process, in the words of node_snapshot.h.
//
// Names of call sites are kept by stack, which the source shares as long as the process is watched.
// Owned and used by the tick thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/detect/verdict.h"
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

  // Remembers what each site holds now, from time to time; once a tick where the probes keep the
  // ledger.
  void KeepGrowth(int64_t monotonic_ns);
  // Names the site whose live bytes grew most since `verdict` began to grow, where it explains at
  // least half of the growth and nobody else named one. Without steps a site has no generations:
  // growth is all that tells it.
  void Blame(int64_t monotonic_ns, detect::Verdict* verdict) const;

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

  // What the sites of one moment held.
  struct Moment {
    int64_t monotonic_ns = 0;
    std::map<std::pair<MemoryClass, uint64_t>, int64_t> live;  // by class and site id
  };
  Moment Now(int64_t monotonic_ns) const;

  std::shared_ptr<const SiteInfo> NameOf(const std::shared_ptr<const BpfStack>& stack);

  const pid_t pid_;
  Symbolizer* const symbolizer_;
  std::map<const BpfStack*, Name> names_;
  std::vector<ClassTotal> totals_;
  std::vector<EntryPointView> entry_points_;
  std::vector<LossView> losses_;
  FeatureView state_;
  std::shared_ptr<const SiteList> sites_ = std::make_shared<SiteList>();
  std::vector<Moment> moments_;  // oldest first; thinned when there are many
  int64_t moment_spacing_ns_ = 1'000'000'000;
};

}  // namespace tidemark
