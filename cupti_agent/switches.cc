#include "cupti_agent/switches.h"

#include <strings.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "wire/handshake.h"
#include "wire/region.h"

namespace tidemark::agent {
namespace {

constexpr uint64_t kDefaultSamplingBytes = 1 << 20;
constexpr uint64_t kDefaultRecordsPerSecond = 2000;

// A number that does not parse is as if it were not set: a typing error must not change a job.
uint64_t NumberOr(const char* text, uint64_t otherwise) {
  if (text == nullptr || *text < '0' || *text > '9') return otherwise;
  char* end = nullptr;
  const unsigned long long value = strtoull(text, &end, 10);
  return *end == '\0' ? value : otherwise;
}

// One name of a comma-separated list; the rest of the list is returned, null at its end.
const char* NextName(const char* list, std::string_view* name) {
  const char* comma = strchr(list, ',');
  *name = comma == nullptr ? std::string_view(list)
                           : std::string_view(list, static_cast<size_t>(comma - list));
  return comma == nullptr ? nullptr : comma + 1;
}

uint32_t ParseTaps(const char* list) {
  uint32_t taps = 0;
  while (list != nullptr) {
    std::string_view name;
    list = NextName(list, &name);
    if (name == "cupti") taps |= wire::kTapCupti;
    if (name == "framework") taps |= wire::kTapFramework;
    if (name == "steps") taps |= wire::kTapSteps;
    if (name == "all") taps |= wire::kTapAll;
  }
  return taps;
}

bool SaysOff(const char* text) {
  return text != nullptr && (strcasecmp(text, "off") == 0 || strcmp(text, "0") == 0);
}

}  // namespace

Switches ReadSwitches(GetEnv get, const char* off_file) {
  Switches switches;
  switches.off = SaysOff(get("TIDEMARK")) || access(off_file, F_OK) == 0;
  const char* taps = get("TIDEMARK_TAPS");
  switches.taps = taps == nullptr ? static_cast<uint32_t>(wire::kTapAll) : ParseTaps(taps);
  switches.region_bytes = NumberOr(get("TIDEMARK_REGION_BYTES"), wire::kDefaultRegionBytes);
  switches.sampling_interval_bytes =
      NumberOr(get("TIDEMARK_SAMPLING_BYTES"), kDefaultSamplingBytes);
  switches.max_records_per_second =
      NumberOr(get("TIDEMARK_MAX_RECORDS_PER_SECOND"), kDefaultRecordsPerSecond);
  return switches;
}

}  // namespace tidemark::agent
