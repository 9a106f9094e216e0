// `tidemark top` on a terminal: ncurses draws what TopView says. Snapshots come on a thread of
// their own, which connects again when the daemon goes away.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "client/connection.h"

namespace tidemark::client {

struct TopFeed {
  std::function<Result<Connection>()> connect;
  v1::GetSnapshotRequest request;
  std::function<void(v1::Snapshot&)> choose;  // drops what was not asked for
  double interval_seconds = 1;
};

// Until the reader quits. `first` is a connection that works; it is taken over. False, with nothing
// drawn and nothing taken, where standard input and output are no terminal that ncurses knows.
bool RunTopScreen(Connection* first, const TopFeed& feed);

}  // namespace tidemark::client
