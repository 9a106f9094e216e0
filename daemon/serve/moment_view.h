// What processes held at a moment, by class and by site: of the present snapshot, of a moment that
// it remembers, or of history.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/serve/peer.h"
#include "daemon/snapshot/node_snapshot.h"
#include "daemon/store/history_reader.h"

namespace tidemark::v1 {
class DiffSide;
class Moment;
}  // namespace tidemark::v1

namespace tidemark::serve {

struct ProcessMoment {
  const ProcessSnapshot* process = nullptr;  // lives as long as its snapshot
  std::map<SeriesKey, int64_t> classes;
  std::map<SeriesKey, BytesAndCount> sites;
};

struct MomentView {
  uint64_t unix_ns = 0;  // of the samples; of the snapshot where the moment is relative
  std::vector<ProcessMoment> processes;
  std::vector<std::string> notes;  // what is not known of this moment
  // The only classes that are known of a moment which agents remember; empty: all. Beside those of
  // the waterfall there is "driver_device" at each moment: all that the driver handed out.
  std::set<std::string> known_classes;
};

// kInvalid for a moment that does not exist, kNotFound when `side` selects nothing, and what
// history answers for a moment in time. `history` may be null.
QueryStatus ViewMoment(const NodeSnapshot& snapshot, const v1::DiffSide& side,
                       const HistoryReader* history, const QueryContext& context, MomentView* out);

// The site as the present snapshot knows it; null when it is gone.
const SiteView* FindSite(const ProcessSnapshot& process, const SeriesKey& key);

}  // namespace tidemark::serve
