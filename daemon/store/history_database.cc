#include "daemon/store/history_database.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <system_error>

#include "base/unique_fd.h"
#include "daemon/store/history_schema.h"

namespace tidemark {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr uint64_t kPruneEveryMs = 60'000;
constexpr uint64_t kKeepNamelessProcessMs = 24ull * 3600 * 1000;
constexpr int64_t kMostMarks = 100'000;
// Rows deleted at a time: what is deleted goes through the log first, and the log has its bound.
constexpr int64_t kBatch = 256;

int64_t LogBytes(uint64_t cap_bytes) {
  return static_cast<int64_t>(std::min<uint64_t>(cap_bytes / 4, 16ull << 20));
}

std::string Text(int64_t number) { return std::to_string(number); }

}  // namespace

HistoryDatabase::HistoryDatabase(std::filesystem::path path, uint64_t cap_bytes)
    : path_(std::move(path)),
      log_bytes_(LogBytes(std::max(cap_bytes, kSmallestCap))),
      cap_pages_((static_cast<int64_t>(std::max(cap_bytes, kSmallestCap)) - log_bytes_) /
                 kPageBytes) {}

Error HistoryDatabase::Failed(const std::string& tried) {
  damaged_ = db_->damaged();
  broken_ = db_->error() != SQLITE_FULL && db_->error() != SQLITE_BUSY;
  std::string hint;
  if (db_->error() == SQLITE_FULL || db_->error() == SQLITE_IOERR) hint = "make room on the disk";
  if (db_->error() == SQLITE_READONLY || db_->error() == SQLITE_CANTOPEN) {
    hint = "let the daemon write there, or set state.directory";
  }
  return {tried + " " + path_.string(), db_->message(), hint};
}

Result<void> HistoryDatabase::Open() {
  Result<void> opened = TryOpen();
  if (opened.ok() || !(damaged_ || newer_)) return opened;
  SetAside(opened.error().why);
  return TryOpen();
}

Result<void> HistoryDatabase::TryOpen() {
  db_.reset();
  broken_ = damaged_ = newer_ = false;
  std::error_code error;
  std::filesystem::create_directories(path_.parent_path(), error);
  // Made here for its mode: stacks hold other people's paths. SQLite gives the log the same.
  const UniqueFd made(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!made.valid()) {
    return Error{"open " + path_.string(), std::generic_category().message(errno),
                 "let the daemon write there, or set state.directory"};
  }
  struct stat status = {};
  if (::fstat(made.get(), &status) == 0) inode_ = status.st_ino;
  db_ = std::make_unique<Sqlite>(path_.string(), SQLITE_OPEN_READWRITE);
  Result<void> set_up = db_->ok() ? SetUp() : Failed("open");
  if (!set_up.ok()) db_.reset();
  return set_up;
}

Result<void> HistoryDatabase::SetUp() {
  const bool configured =
      db_->Run("PRAGMA busy_timeout = 1000; PRAGMA auto_vacuum = INCREMENTAL;") &&
      db_->Run("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;") &&
      db_->Run("PRAGMA cache_size = -2048; PRAGMA temp_store = MEMORY;") &&
      db_->Run("PRAGMA wal_autocheckpoint = " + Text(log_bytes_ / 4 / kPageBytes) +
               "; PRAGMA journal_size_limit = " + Text(log_bytes_ / 2) +
               "; PRAGMA max_page_count = " + Text(cap_pages_) + ";");
  if (!configured) return Failed("open");
  {
    Statement check(*db_, "PRAGMA quick_check(1)");
    if (!check.Next()) return Failed("check");
    if (check.Bytes(0) != "ok") {
      damaged_ = true;
      return Error{"check " + path_.string(), std::string(check.Bytes(0)), ""};
    }
  }
  const Result<void> migrated = MigrateHistory(db_.get());
  if (migrated.ok()) {
    file_id_ = db_->Number("PRAGMA application_id");
    if (file_id_ != 0) return {};
    file_id_ = static_cast<int64_t>(std::random_device()() >> 1 | 1);
    return db_->Run("PRAGMA application_id = " + Text(file_id_)) ? Result<void>() : Failed("open");
  }
  const Error why = Failed("open");
  newer_ = db_->Number("PRAGMA user_version") > kHistorySchema;
  return newer_ ? migrated : why;
}

void HistoryDatabase::SetAside(const std::string& why) {
  const std::string aside = path_.string() + (newer_ ? ".newer" : ".damaged");
  std::error_code ignored;
  // A log belongs to its database: beside a new one it would be applied to it.
  for (const char* part : {"", "-wal", "-shm"}) {
    std::filesystem::remove(aside + part, ignored);
    std::filesystem::rename(path_.string() + part, aside + part, ignored);
  }
  ++set_aside_;
  why_set_aside_ = why + "; it is kept as " + aside;
}

HistorySampler::Known HistoryDatabase::KnownOf(const ProcessKey& key) {
  HistorySampler::Known known;
  if (db_ == nullptr) return known;
  Statement process(*db_,
                    "SELECT id FROM process WHERE boot_id = ? AND pid = ? AND "
                    "start_time_ticks = ?");
  process.Bind(key.boot_id).Bind(key.pid).Bind(static_cast<int64_t>(key.start_time_ticks));
  if (!process.Next()) return known;
  const int64_t row = process.Int(0);
  Statement steps(*db_,
                  "SELECT data FROM chunk WHERE process = ? AND kind = 2 ORDER BY id DESC LIMIT 1");
  if (steps.Bind(row).Next()) {
    const auto none = [](const SeriesKey&) { return false; };
    const std::optional<SampleBlock> block = SampleBlock::Decode(steps.Bytes(0), none);
    if (block && !block->empty()) known.last_step = block->steps().back();
  }
  Statement events(*db_, "SELECT max(start_ms) FROM mark WHERE process = ? AND kind = 'event'");
  if (events.Bind(row).Next()) known.last_event_ms = static_cast<uint64_t>(events.Int(0));
  return known;
}

Result<void> HistoryDatabase::Write(HistorySampler* sampler, uint64_t now_ms) {
  if (db_ == nullptr) return Error{"write " + path_.string(), "it is not open", ""};
  assigned_.clear();
  if (db_->Run("BEGIN IMMEDIATE") && WriteAll(sampler, now_ms) && db_->Run("COMMIT")) {
    tight_ = false;
    sampler->Written();
    return {};
  }
  const Error why = Failed("write");
  tight_ = db_->error() == SQLITE_FULL;
  db_->Run("ROLLBACK");
  for (int64_t* row : assigned_) *row = 0;
  return why;
}

bool HistoryDatabase::WriteAll(HistorySampler* sampler, uint64_t now_ms) {
  // First, so that there is room for the rest.
  if (!PruneToCap()) return false;
  for (auto& [key, track] : sampler->tracks()) {
    if (!WriteTrack(track.get())) return false;
  }
  if (!WriteSites(*sampler, now_ms)) return false;
  // A clock that was set back must not stop the pruning until it has caught up.
  if (now_ms >= pruned_ms_ && now_ms - pruned_ms_ < kPruneEveryMs) return true;
  pruned_ms_ = now_ms;
  return PruneOld(now_ms);
}

bool HistoryDatabase::WriteTrack(HistorySampler::Track* track) {
  if (track->dirty || track->row == 0) {
    const HistoryProcess& process = track->process;
    Statement upsert(
        *db_,
        "INSERT INTO process (boot_id, pid, start_time_ticks, uid, rank, training_job, reference,"
        " first_ms, ended_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (boot_id, pid, start_time_ticks) DO UPDATE SET uid = excluded.uid,"
        " rank = excluded.rank, training_job = excluded.training_job,"
        " reference = excluded.reference, ended_ms = excluded.ended_ms RETURNING id");
    upsert.Bind(process.key.boot_id)
        .Bind(process.key.pid)
        .Bind(static_cast<int64_t>(process.key.start_time_ticks))
        .Bind(process.uid)
        .Bind(process.rank)
        .Bind(process.training_job)
        .BindBlob(process.reference)
        .Bind(static_cast<int64_t>(process.first_ms))
        .Bind(static_cast<int64_t>(process.ended_ms));
    if (!upsert.Next()) return false;
    if (track->row == 0) assigned_.push_back(&track->row);
    track->row = upsert.Int(0);
  }
  for (HistoryChunk& chunk : track->closed) {
    if (!WriteChunk(track->row, &chunk)) return false;
  }
  for (HistoryChunk* chunk : {&track->fine, &track->coarse, &track->steps}) {
    if (!WriteChunk(track->row, chunk)) return false;
  }
  Statement mark(*db_,
                 "INSERT INTO mark (process, kind, key, start_ms, end_ms, message)"
                 " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (process, kind, key) DO UPDATE SET"
                 " start_ms = excluded.start_ms, end_ms = excluded.end_ms,"
                 " message = excluded.message");
  for (const HistoryMarkRow& row : track->marks) {
    mark.Bind(track->row)
        .Bind(row.kind)
        .Bind(row.key)
        .Bind(static_cast<int64_t>(row.start_ms))
        .Bind(static_cast<int64_t>(row.end_ms))
        .BindBlob(row.message);
    if (!mark.Run()) return false;
    mark.Reset();
  }
  return true;
}

bool HistoryDatabase::WriteChunk(int64_t process, HistoryChunk* chunk) {
  if (!chunk->dirty || chunk->block.empty()) return true;
  const std::string data = chunk->block.Encode();
  // An open chunk is written over and over under the same id, which is also its age.
  Statement insert(*db_,
                   "INSERT OR REPLACE INTO chunk (id, process, kind, start_ms, end_ms, first_step,"
                   " last_step, data) VALUES (nullif(?, 0), ?, ?, ?, ?, ?, ?, ?)");
  insert.Bind(chunk->row)
      .Bind(process)
      .Bind(static_cast<int64_t>(chunk->kind))
      .Bind(static_cast<int64_t>(chunk->block.times().front()))
      .Bind(static_cast<int64_t>(chunk->block.times().back()))
      .Bind(static_cast<int64_t>(chunk->block.steps().front()))
      .Bind(static_cast<int64_t>(chunk->block.steps().back()))
      .BindBlob(data);
  if (!insert.Run()) return false;
  if (chunk->row != 0) return true;
  chunk->row = sqlite3_last_insert_rowid(db_->get());
  assigned_.push_back(&chunk->row);
  return true;
}

bool HistoryDatabase::WriteSites(const HistorySampler& sampler, uint64_t now_ms) {
  Statement insert(*db_, "INSERT OR REPLACE INTO site (id, last_ms, message) VALUES (?, ?, ?)");
  for (const auto& [id, message] : sampler.new_sites()) {
    insert.Bind(static_cast<int64_t>(id)).Bind(static_cast<int64_t>(now_ms)).BindBlob(message);
    if (!insert.Run()) return false;
    insert.Reset();
  }
  return true;
}

bool HistoryDatabase::PruneOld(uint64_t now_ms) {
  const auto before = [now_ms](uint64_t keep) {
    return Text(static_cast<int64_t>(now_ms > keep ? now_ms - keep : 0));
  };
  const std::string fine = before(static_cast<uint64_t>(kKeepFine.count()));
  const std::string coarse = before(static_cast<uint64_t>(kKeepCoarse.count()));
  for (const std::string& old : {"kind = 0 AND end_ms < " + fine, "kind = 1 AND end_ms < " + coarse,
                                 "kind = 2 AND end_ms < " + coarse}) {
    if (!db_->Run("DELETE FROM chunk WHERE id IN (SELECT id FROM chunk WHERE " + old + " LIMIT " +
                  Text(2 * kBatch) + ")")) {
      return false;
    }
    chunks_pruned_ += static_cast<uint64_t>(sqlite3_changes(db_->get()));
  }
  return db_->Run("DELETE FROM mark WHERE start_ms < " + coarse +
                  " OR id <= (SELECT max(id) FROM mark) - " + Text(kMostMarks)) &&
         db_->Run("DELETE FROM site WHERE last_ms < " + coarse) &&
         db_->Run("DELETE FROM process WHERE first_ms < " + before(kKeepNamelessProcessMs) +
                  " AND id NOT IN (SELECT process FROM chunk)"
                  " AND id NOT IN (SELECT process FROM mark)");
}

// The oldest by id: the order of writing, whatever the clock said.
bool HistoryDatabase::PruneToCap() {
  const auto used = [this] {
    return db_->Number("PRAGMA page_count") - db_->Number("PRAGMA freelist_count");
  };
  const int64_t most = tight_ ? cap_pages_ / 2 : cap_pages_ - cap_pages_ / 10;
  if (used() > most) {
    // To somewhat less, so that this does not happen at every write.
    for (int round = 0; round < 16 && used() > most - cap_pages_ / 20; ++round) {
      if (!db_->Run("DELETE FROM chunk WHERE id IN (SELECT id FROM chunk ORDER BY id LIMIT " +
                    Text(kBatch) + ")")) {
        return false;
      }
      const int deleted = sqlite3_changes(db_->get());
      chunks_pruned_ += static_cast<uint64_t>(deleted);
      if (deleted > 0) continue;
      if (!db_->Run("DELETE FROM mark WHERE id IN (SELECT id FROM mark ORDER BY id LIMIT " +
                    Text(kBatch) + ")")) {
        return false;
      }
      if (sqlite3_changes(db_->get()) == 0) break;
    }
  }
  // A cap that was lowered: the file itself has to become smaller.
  const int64_t over = db_->Number("PRAGMA page_count") - cap_pages_;
  if (over <= 0) return true;
  return db_->Run("PRAGMA incremental_vacuum(" + Text(std::min<int64_t>(over, 1024)) + ")") &&
         db_->Run("PRAGMA max_page_count = " + Text(cap_pages_));
}

bool HistoryDatabase::SameFile() const {
  struct stat status = {};
  return ::stat(path_.c_str(), &status) == 0 && status.st_ino == inode_;
}

uint64_t HistoryDatabase::BytesOnDisk() const {
  uint64_t bytes = 0;
  for (const char* part : {"", "-wal", "-shm"}) {
    struct stat status = {};
    if (::stat((path_.string() + part).c_str(), &status) == 0) {
      bytes += static_cast<uint64_t>(status.st_size);
    }
  }
  return bytes;
}

}  // namespace tidemark
