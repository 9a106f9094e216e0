// The past of the node: what snapshots held, kept in a capped SQLite file in the state directory.
//
//   tick thread --Offer--> queue --> writer thread: sampler --> database, every kFlushEvery
//
// A slow or hung disk blocks the writer thread only: snapshots that find the queue full are dropped
// and counted. A full, read-only or damaged disk costs history only: it is said by state(), tried
// again at every flush, and a damaged file is set aside and begun anew. A crash at any moment loses
// at most what came after the last flush.
//
// Offer, state and Stop are thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "daemon/snapshot/node_snapshot.h"

namespace tidemark {

struct HistoryOptions {
  std::filesystem::path directory;  // of history.db
  uint64_t cap_bytes = 256ull << 20;
};

struct HistoryState {
  bool works = false;
  std::string reason;           // why not; empty while it works or has not been tried
  uint64_t lost_snapshots = 0;  // dropped because the writer was too slow
  uint64_t lost_rows = 0;       // dropped because the disk did not take them in time
  uint64_t failed_writes = 0;
  uint64_t set_aside = 0;  // files that were damaged, or of a newer daemon
  uint64_t bytes_on_disk = 0;
  // Grows whenever the file is another one than before; readers open theirs again.
  uint64_t generation = 0;
};

class History {
 public:
  static constexpr std::chrono::seconds kFlushEvery{5};
  static constexpr size_t kMostWaiting = 32;  // snapshots

  explicit History(HistoryOptions options);
  ~History();  // stops
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // Returns at once.
  void Offer(std::shared_ptr<const NodeSnapshot> snapshot);
  // A post-mortem of this process was written under `name`.
  void NotePostMortem(const ProcessKey& key, uint64_t unix_ns, std::string name);

  // Writes what was offered so far, now; comes back when that is done or `deadline` has come, and
  // never after a second.
  void Flush(std::chrono::steady_clock::time_point deadline);

  HistoryState state() const;
  // A reader met damage: the writer looks for itself at its next flush.
  void SuspectDamage();
  std::filesystem::path path() const;

  // Writes what was offered. Waits for the disk for at most two seconds.
  void Stop();

 private:
  class Writer;
  // Shared with the thread, which may outlive this object when the disk hangs for ever.
  std::shared_ptr<Writer> writer_;
};

}  // namespace tidemark
