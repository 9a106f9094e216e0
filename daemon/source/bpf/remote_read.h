// Reading another process's memory through the decoders that the injected library uses on its own.
//
// Those decoders (cupti_agent/stack: line tables, strings, layouts) read through one function,
// agent::SafeRead. Here it reads the process that the innermost RemoteMemory of the calling thread
// names, and nothing where there is none.
#pragma once

#include <sys/types.h>

namespace tidemark {

class RemoteMemory {
 public:
  explicit RemoteMemory(pid_t pid);
  ~RemoteMemory();
  RemoteMemory(const RemoteMemory&) = delete;
  RemoteMemory& operator=(const RemoteMemory&) = delete;

 private:
  pid_t outer_;
};

}  // namespace tidemark
