#include "daemon/store/history_schema.h"

#include <array>
#include <string>

namespace tidemark {
namespace {

// One a version, in order; each brings the database from the version before it. What is here has
// been released: never change one, add the next.
constexpr std::array<const char*, kHistorySchema> kMigrations = {
    // 1: processes, their samples, what happened to them, and the frames of sites.
    "CREATE TABLE process ("
    "  id INTEGER PRIMARY KEY, boot_id TEXT NOT NULL, pid INTEGER NOT NULL,"
    "  start_time_ticks INTEGER NOT NULL, uid INTEGER NOT NULL, rank INTEGER NOT NULL,"
    "  training_job TEXT NOT NULL, reference BLOB NOT NULL, first_ms INTEGER NOT NULL,"
    "  ended_ms INTEGER NOT NULL, UNIQUE (boot_id, pid, start_time_ticks));"
    "CREATE TABLE chunk ("
    "  id INTEGER PRIMARY KEY, process INTEGER NOT NULL, kind INTEGER NOT NULL,"
    "  start_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL, data BLOB NOT NULL);"
    "CREATE INDEX chunk_of_process ON chunk (process, kind, start_ms);"
    "CREATE INDEX chunk_by_age ON chunk (kind, end_ms);"
    "CREATE TABLE mark ("
    "  id INTEGER PRIMARY KEY, process INTEGER NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,"
    "  start_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL, message BLOB NOT NULL,"
    "  UNIQUE (process, kind, key));"
    "CREATE INDEX mark_by_time ON mark (start_ms);"
    "CREATE TABLE site (id INTEGER PRIMARY KEY, last_ms INTEGER NOT NULL, message BLOB NOT NULL);",
    // 2: chunks of steps know their steps, so that a range of steps reads only what it needs. Those
    // of version 1 may hold any: they are looked into.
    "ALTER TABLE chunk ADD COLUMN first_step INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE chunk ADD COLUMN last_step INTEGER NOT NULL DEFAULT 9223372036854775807;",
};

}  // namespace

Result<void> MigrateHistory(Sqlite* db) {
  const int64_t version = db->Number("PRAGMA user_version", -1);
  const Error failed{"open the history", db->message(), ""};
  if (version < 0) return failed;
  if (version > kHistorySchema) {
    return Error{"open the history",
                 "it was written by a newer tidemarkd (version " + std::to_string(version) +
                     ", this one knows " + std::to_string(kHistorySchema) + ")",
                 ""};
  }
  for (int64_t next = version; next < kHistorySchema; ++next) {
    // In one transaction with the version, so that a crash leaves the one or the other.
    const std::string sql = std::string("BEGIN IMMEDIATE;") +
                            kMigrations[static_cast<size_t>(next)] +
                            "PRAGMA user_version = " + std::to_string(next + 1) + "; COMMIT;";
    if (db->Run(sql)) continue;
    const Error why{"open the history", db->message(), ""};
    db->Run("ROLLBACK");
    return why;
  }
  return {};
}

}  // namespace tidemark
