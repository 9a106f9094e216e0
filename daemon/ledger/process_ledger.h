// What one process holds, put together from what its agent's region says: totals by class, sites
// with names, steps, phases, events. Turns rows (wire/region.h) into the words of node_snapshot.h.
//
// What did not change since the last tick is kept and shared with the next snapshot. Owned and used
// by the tick thread. The region's copy is bounded and settled, its values are still the job's
// word.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/detect/process_judge.h"
#include "daemon/identity/device_map.h"
#include "daemon/ledger/records_check.h"
#include "daemon/snapshot/node_snapshot.h"
#include "daemon/source/agent/agent_source.h"
#include "daemon/source/agent/symbolizer.h"

namespace tidemark {

// What a row's bytes are called and who vouches for them; nullopt for a second count of the same
// bytes (activity records) and for what this daemon does not know.
std::optional<std::pair<MemoryClass, Witness>> ClassOf(uint8_t layer, uint8_t kind);

class ProcessLedger : public detect::SiteTable {
 public:
  ProcessLedger(pid_t pid, Symbolizer* symbolizer) : pid_(pid), symbolizer_(symbolizer) {}

  // Takes over what the last refresh of the region found. `new_agent`: the region is another one
  // than last time, so nothing that was derived from the old one holds.
  void Update(const RegionCopy& region, const RegionChanges& changes, const DeviceMap& devices,
              bool new_agent);

  // Writes everything but identity, host memory, waterfalls and verdicts.
  void Fill(const RegionCopy& region, ProcessSnapshot* process) const;

  // Totals by class as of now, from a copy that may be newer than the last Update.
  static std::vector<ClassTotal> Totals(const RegionCopy& region, const DeviceMap& devices);

  // What libraries hold on their own account, as of the last Update.
  std::vector<OwnAccountBytes> OwnAccounts() const;

  // Rows of the region that are booked under a site id.
  std::vector<uint32_t> RowsOfSite(uint64_t site_id) const;

  // Steps that finished with the last Update, for the judge.
  const std::vector<detect::StepPoint>& new_steps() const { return new_steps_; }
  // Whether the sites can explain what grows: no table overflowed, and most bytes have a stack.
  bool SitesAreComplete(const RegionCopy& region) const;
  // Events so far by type.
  uint64_t EventCount(wire::EventType type) const;
  const std::deque<EventView>& events() const { return events_; }

  // detect::SiteTable: the region's own rows.
  size_t size() const override;
  detect::SitePoint At(size_t row) const override;

 private:
  void UpdateSites(const RegionCopy& region, const std::vector<uint32_t>& changed);
  void UpdateSteps(const RegionCopy& region, const std::vector<wire::StepRow>& steps);
  void UpdateEvents(const RegionCopy& region, const std::vector<wire::EventRow>& events);
  std::array<BytesAndCount, wire::kMomentCount> AtMoments(const RegionCopy& region,
                                                          const wire::SiteRow& row,
                                                          uint8_t* may_move) const;
  std::shared_ptr<const SiteView> MakeView(const RegionCopy& region, const wire::SiteRow& row,
                                           std::shared_ptr<const SiteInfo> info,
                                           uint8_t* may_move) const;
  void NameSites(const RegionCopy& region);
  // Moments that came or moved on since the last call, a bit each.
  uint8_t MovedMoments(const RegionCopy& region);

  struct Site {
    std::shared_ptr<const SiteInfo> info;
    std::shared_ptr<const SiteView> view;  // null: never allocated from
    bool pending = false;                  // a name may get better
    bool changed = false;
    uint8_t may_move = 0;  // by wire::Moment: moving on, it changes what an unchanged row means
  };

  const pid_t pid_;
  Symbolizer* const symbolizer_;
  DeviceMap devices_;
  const RegionCopy* region_ = nullptr;  // of the last Update; read by the judge in the same tick
  std::vector<Site> sites_;             // by row
  std::shared_ptr<const SiteList> site_list_ = std::make_shared<SiteList>();
  std::shared_ptr<const StepList> steps_ = std::make_shared<StepList>();
  std::vector<detect::StepPoint> new_steps_;
  std::deque<EventView> events_;
  std::array<uint64_t, 16> event_counts_ = {};
  std::vector<uint32_t> peak_epochs_;  // by peak group
  std::array<uint32_t, wire::kMomentCount> moment_epochs_ = {};
  uint64_t names_answered_ = 0;
  size_t pending_sites_ = 0;
  int64_t named_bytes_ = 0;
  uint64_t unnamed_sites_ = 0;
  uint64_t steps_missed_ = 0;
  uint64_t events_missed_ = 0;
  uint64_t torn_rows_ = 0;
  std::vector<ClassTotal> before_attach_;
  RecordsCheck records_;
};

}  // namespace tidemark
