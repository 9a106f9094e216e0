// Names native frames, off the tick's path: the tick asks, goes on with "module+0x123", and finds
// the name at a later tick.
//
// A thread of its own reads the modules, through the process's own root while the process is there,
// and afterwards from the daemon's root where the file of the same path has the same build id.
// Names are kept by build id, so that sixteen ranks of one job read each library once.
// Find and answered may be called from any thread.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>

#include "base/proc_root.h"
#include "daemon/source/agent/symbol_reader.h"

namespace tidemark {

class Symbolizer {
 public:
  explicit Symbolizer(ProcRoot root);
  ~Symbolizer();
  Symbolizer(const Symbolizer&) = delete;
  Symbolizer& operator=(const Symbolizer&) = delete;

  void Start();
  void Stop();

  // The name of `address` (ELF virtual address) in the module that `pid` maps as `path`. Null while
  // it is being looked up; a Symbol without a function when there is none to be had.
  std::shared_ptr<const Symbol> Find(pid_t pid, const std::string& path,
                                     const std::string& build_id, uint64_t address);

  // Grows when questions were answered.
  uint64_t answered() const;

 private:
  struct Module {
    pid_t pid = 0;  // the last one that asked
    std::string path;
    std::string build_id;
    std::unordered_map<uint64_t, std::shared_ptr<const Symbol>> symbols;  // null = asked for
    std::set<uint64_t> wanted;
  };

  void Run();

  const ProcRoot root_;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::map<std::string, Module> modules_;  // by build id, else by path
  std::deque<std::string> queue_;          // keys of modules with wanted addresses
  size_t kept_ = 0;
  uint64_t answered_ = 0;
  const std::shared_ptr<const Symbol> unknown_ = std::make_shared<Symbol>();
};

}  // namespace tidemark
