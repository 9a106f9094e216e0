// The daemon that `tidemark run` watches with: the node's where one runs, else a private one, of
// which there is one per user and node however many ranks or runs start at once.
//
//   run                      directory (0700)                tidemarkd --private
//    | flock(lock) ------------->|                                  |
//    | somebody accepts on api.sock? then use it, unlock            |
//    | else spawn, in a session of its own, output to tidemarkd.log |
//    |------------------------------------------------------------->|
//    |        one byte on the ready pipe, or end of file            |
//    |<-------------------------------------------------------------|
//    | unlock                    |                                  |
//
// A private daemon ends itself when it has been idle; nobody here stops it, because other ranks may
// use it.
#pragma once

#include <string>

#include "base/result.h"
#include "client/environment.h"

namespace tidemark::client {

struct DaemonEndpoint {
  std::string api_socket;
  std::string agent_socket;
  bool is_private = false;
  bool started = false;  // by this call
};

class DaemonLocator {
 public:
  // `asked` is --socket (may be empty); `daemon` is the path of tidemarkd; `only_private` passes
  // over the node's daemon.
  DaemonLocator(std::string asked, bool only_private, Environment environment, uid_t uid,
                std::string daemon);

  // Finds a daemon or starts a private one. Waits for another caller that is starting one; at most
  // about half a minute in all.
  Result<DaemonEndpoint> FindOrStart() const;

 private:
  Result<DaemonEndpoint> StartPrivate(const std::string& directory) const;

  std::string asked_;
  bool only_private_;
  Environment environment_;
  uid_t uid_;
  std::string daemon_;
};

}  // namespace tidemark::client
