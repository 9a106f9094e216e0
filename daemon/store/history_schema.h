// The tables of history and how older ones become the present ones.
#pragma once

#include "base/result.h"
#include "daemon/store/sqlite.h"

namespace tidemark {

inline constexpr int kHistorySchema = 2;

// Brings the database to kHistorySchema, an empty one too. Fails when it is of a newer daemon, or
// as the disk does; then nothing has changed.
Result<void> MigrateHistory(Sqlite* db);

}  // namespace tidemark
