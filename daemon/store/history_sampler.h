// Turns snapshots into history: chunks of samples a process, and marks. It keeps what the disk does
// not have yet, within bounds: what does not fit any more is counted as lost.
//
// Owned and used by the history's writer thread. No I/O.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/snapshot/node_snapshot.h"
#include "daemon/store/history_rows.h"

namespace tidemark {

class HistorySampler {
 public:
  static constexpr size_t kRowsOfChunk = 60;  // a minute, or ten
  static constexpr size_t kStepsOfChunk = 512;
  static constexpr size_t kSitesOfProcess = 64;     // largest live first
  static constexpr size_t kMostWaitingChunks = 16;  // of a process, beside the three open ones
  static constexpr size_t kMostWaitingMarks = 256;  // of a process

  // What the database already has of a process that was seen before the daemon was started.
  struct Known {
    uint64_t last_step = 0;
    uint64_t last_event_ms = 0;
  };

  struct Track {
    HistoryProcess process;
    bool dirty = true;  // `process` differs from the database
    int64_t row = 0;    // in the database; 0 = not there yet
    HistoryChunk fine{ChunkKind::kFine, 0, false, {}};
    HistoryChunk coarse{ChunkKind::kCoarse, 0, false, {}};
    HistoryChunk steps{ChunkKind::kSteps, 0, false, {}};
    std::deque<HistoryChunk> closed;  // full, not written yet
    std::deque<HistoryMarkRow> marks;

    uint64_t last_step = 0;
    uint64_t last_event_ms = 0;
    std::map<std::pair<MemoryClass, int>, std::pair<detect::VerdictState, detect::Cause>> verdicts;
    std::map<std::string, uint64_t> phases;  // key of its mark -> end
    std::set<SeriesKey> classes;             // every one seen so far: absent now means zero
    bool ended = false;
    uint64_t seen = 0;  // sequence of the snapshot that had it last

    struct Sum {
      int64_t min = 0;
      double sum = 0;
      int64_t max = 0;
      int64_t count = 0;
    };
    uint64_t bucket = 0;  // of the coarse chunk's latest row: ms / kCoarseMs
    std::vector<std::pair<SeriesKey, Sum>> sums;
  };

  // `known` is asked once for each process that turns up.
  explicit HistorySampler(std::function<Known(const ProcessKey&)> known)
      : known_(std::move(known)) {}

  void Absorb(const NodeSnapshot& snapshot);
  // Beside what snapshots tell, such as a post-mortem that was written.
  void Note(const ProcessKey& key, HistoryMarkRow mark);

  std::map<ProcessKey, std::unique_ptr<Track>>& tracks() { return tracks_; }
  // Frames of sites that have samples, by id: serialised v1::Site.
  const std::map<uint64_t, std::string>& new_sites() const { return new_sites_; }

  // Everything that is open has been written: lets go of what ended and what was closed.
  void Written();
  // The database is another, empty one: everything still here is to be written anew.
  void Forget();

  // Rows that were dropped before they could be written.
  uint64_t lost_rows() const { return lost_rows_; }

 private:
  Track& TrackOf(const ProcessSnapshot& process, const NodeSnapshot& snapshot);
  Track& NodeTrack(const NodeSnapshot& snapshot);
  void AddRow(Track* track, uint64_t now_ms, std::vector<std::pair<SeriesKey, int64_t>> values,
              const SiteList* sites);
  void AddSites(Track* track, const SiteList& sites);
  void TakeSteps(Track* track, const ProcessSnapshot& process, const NodeSnapshot& snapshot);
  void TakeMarks(Track* track, const ProcessSnapshot& process, const NodeSnapshot& snapshot);
  void Mark(Track* track, HistoryMarkRow mark);
  void Close(Track* track, HistoryChunk* chunk);
  void CloseAll(Track* track);

  const std::function<Known(const ProcessKey&)> known_;
  uint64_t sequence_ = 0;  // of the latest snapshot
  std::map<ProcessKey, std::unique_ptr<Track>> tracks_;
  std::map<uint64_t, std::string> new_sites_;
  std::map<uint64_t, uint64_t> sites_told_;  // id -> the bucket in which it was last handed over
  uint64_t lost_rows_ = 0;
};

// The bytes of a process by class and device, as a chart stacks them: the waterfall's lines where
// there is one, else what one witness counts. Public for its test.
std::vector<std::pair<SeriesKey, int64_t>> BytesByClass(const ProcessSnapshot& process);

}  // namespace tidemark
