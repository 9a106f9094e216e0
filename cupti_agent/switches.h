// What may be switched off, and how: read once, at injection.
//
//   TIDEMARK=off                       nothing at all: nothing patched, no thread, no region
//   /etc/tidemark/off                  the same, for every process of the node that starts later
//   TIDEMARK_TAPS=cupti,framework      only these taps (cupti, framework, steps; none)
//   TIDEMARK_REGION_BYTES=N            cap of the region
//   TIDEMARK_SAMPLING_BYTES=N          mean bytes between two sampled stacks; 1 = every allocation
//   TIDEMARK_MAX_RECORDS_PER_SECOND=N  activity records above this rate are switched off; 0 = never
#pragma once

#include <cstdint>

namespace tidemark::agent {

struct Switches {
  bool off = false;
  uint32_t taps = 0;  // wire::TapMask
  uint64_t region_bytes = 0;
  uint64_t sampling_interval_bytes = 0;
  uint64_t max_records_per_second = 0;
};

using GetEnv = const char* (*)(const char* name);

// `off_file` is /etc/tidemark/off except in tests.
Switches ReadSwitches(GetEnv get, const char* off_file);

}  // namespace tidemark::agent
