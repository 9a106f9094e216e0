// The history's file as its writer uses it: opens, mends, writes and prunes. Write-ahead log with a
// full sync at each commit, so that a commit that has returned survives a power cut.
//
// Owned by the history's writer thread; readers have connections of their own (history_reader.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/store/history_rows.h"
#include "daemon/store/history_sampler.h"
#include "daemon/store/sqlite.h"

namespace tidemark {

class HistoryDatabase {
 public:
  // Smaller caps would hold next to nothing.
  static constexpr uint64_t kSmallestCap = 16ull << 20;

  // Bytes on disk stay below `cap_bytes`, the log included.
  HistoryDatabase(std::filesystem::path path, uint64_t cap_bytes);

  // Opens or makes the file. One that is damaged or of a newer daemon is renamed to NAME.damaged or
  // NAME.newer, over an earlier one, and a new one made; set_aside() counts it.
  Result<void> Open();
  bool is_open() const { return db_ != nullptr; }
  // Whether Open may help: the file is damaged, gone or another one, or the disk failed otherwise
  // than by being full.
  bool WantsOpen() const { return db_ == nullptr || broken_ || !SameFile(); }
  // Of the file that is open: another number means another file, with other row ids.
  int64_t file_id() const { return file_id_; }
  uint64_t set_aside() const { return set_aside_; }
  // Of the last one: what was wrong with it and where it is now.
  const std::string& why_set_aside() const { return why_set_aside_; }

  HistorySampler::Known KnownOf(const ProcessKey& key);

  // Writes all that the sampler has not written yet, and prunes what is too old by `now_ms` or does
  // not fit: one transaction. On failure nothing of it has happened.
  Result<void> Write(HistorySampler* sampler, uint64_t now_ms);

  // Bytes of the database and its log on disk.
  uint64_t BytesOnDisk() const;
  uint64_t chunks_pruned() const { return chunks_pruned_; }

 private:
  Result<void> TryOpen();
  Result<void> SetUp();
  void SetAside(const std::string& why);
  bool WriteAll(HistorySampler* sampler, uint64_t now_ms);
  bool WriteTrack(HistorySampler::Track* track);
  bool WriteChunk(int64_t process, HistoryChunk* chunk);
  bool WriteSites(const HistorySampler& sampler, uint64_t now_ms);
  bool PruneOld(uint64_t now_ms);
  bool PruneToCap();
  Error Failed(const std::string& tried);
  // Whether the path still leads to the file that is open.
  bool SameFile() const;

  const std::filesystem::path path_;
  const int64_t log_bytes_;  // of the cap, left for the write-ahead log
  const int64_t cap_pages_;
  std::unique_ptr<Sqlite> db_;
  ino_t inode_ = 0;  // of what is open
  int64_t file_id_ = 0;
  bool broken_ = false;
  bool damaged_ = false;
  bool newer_ = false;
  bool tight_ = false;              // the last write met the cap: make more room before the next
  std::vector<int64_t*> assigned_;  // row ids given in the transaction under way
  uint64_t set_aside_ = 0;
  std::string why_set_aside_;
  uint64_t chunks_pruned_ = 0;
  uint64_t pruned_ms_ = 0;
};

}  // namespace tidemark
