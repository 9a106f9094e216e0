// Writes post-mortems and reads them back.
//
//   tick thread --Offer--> queue --> writer thread: who died? --> ID.partial --rename--> ID.pb
//
// One file a process: written when its device allocation fails, and again when its end is known.
// The oldest go when there are too many, or too many bytes. A full or read-only disk costs the
// post-mortem only: it is counted and said by state(). At start the regions that an earlier daemon
// kept of processes it could not write about any more become post-mortems.
//
// Offer, state, List, Get and Stop are thread-safe. What files say comes from an own directory,
// closed to others, and is still checked as it is read.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "daemon/snapshot/node_snapshot.h"

namespace tidemark::v1 {
class ListPostmortemsResponse;
class Postmortem;
}  // namespace tidemark::v1

namespace tidemark {

struct PostMortemOptions {
  std::filesystem::path directory;  // of the files
  size_t most_files = 64;
  uint64_t cap_bytes = 64ull << 20;
  // Processes of which only a region was kept, each once, at start.
  std::function<std::vector<NodeSnapshot>()> left_over = nullptr;
  // After a file was written.
  std::function<void(const ProcessKey&, uint64_t unix_ns, const std::string& id)> written = nullptr;
};

struct PostMortemState {
  std::string reason;    // why the last one could not be written; empty while all is well
  uint64_t written = 0;  // files
  uint64_t lost = 0;     // post-mortems that could not be written, or came too fast
};

class PostMortems {
 public:
  using Sees = std::function<bool(uid_t)>;
  static constexpr size_t kMostWaiting = 16;  // snapshots

  explicit PostMortems(PostMortemOptions options);
  ~PostMortems();  // stops
  PostMortems(const PostMortems&) = delete;
  PostMortems& operator=(const PostMortems&) = delete;

  // Returns at once.
  void Offer(std::shared_ptr<const NodeSnapshot> snapshot);
  // Writes what was offered, at most two seconds long.
  void Stop();

  PostMortemState state() const;
  // Latest first; only of the uids that `sees` allows.
  void List(const Sees& sees, v1::ListPostmortemsResponse* out) const;
  // Fails when there is none of that id, for this caller.
  Result<void> Get(const std::string& id, const Sees& sees, v1::Postmortem* out) const;

 private:
  class Writer;
  std::shared_ptr<Writer> writer_;  // with the thread, which may outlive this on a hung disk
};

}  // namespace tidemark
