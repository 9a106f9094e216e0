// Keeps the regions of processes that ended: the raw state beside the post-mortem, for questions
// that nobody thought of in time.
//
// A thread of its own copies the used parts of the memfd into a sparse file, renames it into place
// and closes the memfd, so that the memory is free again within seconds, whatever the disk does to
// the thread. Oldest files go when the folder grows over its cap. Start, Keep and Stop belong to
// one thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/result.h"
#include "daemon/source/agent/region_reader.h"

namespace tidemark {

class RegionStore {
 public:
  RegionStore(std::filesystem::path directory, uint64_t cap_bytes);
  ~RegionStore();
  RegionStore(const RegionStore&) = delete;
  RegionStore& operator=(const RegionStore&) = delete;

  // Makes the folder. Without one that can be written, regions are let go without a copy.
  Result<void> Start();
  // Finishes what was handed over; at most a few seconds' worth.
  void Stop();

  // Takes the region over. `name` becomes NAME.region. A region that finds too many waiting is let
  // go at once and counted.
  void Keep(std::string name, std::unique_ptr<RegionReader> region);

  uint64_t kept() const;
  uint64_t lost() const;

 private:
  void Run();
  bool Write(const std::string& name, const RegionReader& region) const;
  void Prune() const;

  const std::filesystem::path directory_;
  const uint64_t cap_bytes_;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::deque<std::pair<std::string, std::unique_ptr<RegionReader>>> waiting_;
  uint64_t kept_ = 0;
  uint64_t lost_ = 0;
};

}  // namespace tidemark
