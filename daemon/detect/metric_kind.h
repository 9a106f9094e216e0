// What a metric of a foreign file measures, by its name, and so what its growth can mean.
#pragma once

#include <cstdint>
#include <string_view>

#include "daemon/detect/cause.h"

namespace tidemark::detect {

enum class MetricKind : uint8_t {
  kDeviceLive,       // bytes live at the driver or in the framework
  kDeviceReserved,   // by the framework's allocator
  kDeviceProcess,    // the device's figure for the process
  kDeviceWide,       // the device's own figure: neighbours count too
  kAnon,             // anonymous memory of a process
  kAnonPlusSwap,     // ... with what was swapped out: takes the place of kAnon
  kAnonNotLazyFree,  // ... without lazily freed pages: takes the place of kAnon
  kResident,         // RSS, PSS, USS
  kHeapLive,         // the allocator's in-use bytes
  kContainerAnon,
  kContainerAll,  // page cache counts too
  kPageCache,
  kLazyFree,
  kSharedMemory,  // tmpfs, /dev/shm
  kPinned,        // page-locked host memory
  kNodeResidual,  // what no process accounts for
  kErrors,        // a count of failed calls
  kHandles,       // a count of open handles
  kWork,          // the size of a step's work: tokens, batch, sequence length
  kOther,
};

MetricKind KindOfMetric(std::string_view name);

bool IsCount(MetricKind kind);
// Whether growth of it alone may be called a leak.
bool MayLeak(MetricKind kind);
// The cause of steady growth when nothing else is known.
Cause CauseOfGrowth(MetricKind kind);
// Bytes per unit of the metric: DCGM counts in MiB.
double BytesPerUnit(std::string_view name);

}  // namespace tidemark::detect
