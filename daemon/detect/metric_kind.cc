#include "daemon/detect/metric_kind.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string>

namespace tidemark::detect {
namespace {

struct Rule {
  std::initializer_list<std::string_view> all;  // every one occurs in the name
  MetricKind kind;
};

// The first rule that fits decides, so the special comes before the general.
const Rule kRules[] = {
    {{"error"}, MetricKind::kErrors},
    {{"fail"}, MetricKind::kErrors},
    {{"token"}, MetricKind::kWork},
    {{"seq_len"}, MetricKind::kWork},
    {{"sequence_length"}, MetricKind::kWork},
    {{"batch_size"}, MetricKind::kWork},
    {{"request"}, MetricKind::kWork},
    {{"fd_count"}, MetricKind::kHandles},
    {{"open_fds"}, MetricKind::kHandles},
    {{"handle"}, MetricKind::kHandles},
    {{"_count"}, MetricKind::kHandles},
    {{"plus_swap"}, MetricKind::kAnonPlusSwap},
    {{"minus_lazyfree"}, MetricKind::kAnonNotLazyFree},
    {{"lru_minus_anon"}, MetricKind::kNodeResidual},
    {{"node_residual"}, MetricKind::kNodeResidual},
    {{"lazyfree"}, MetricKind::kLazyFree},
    {{"heap"}, MetricKind::kHeapLive},
    {{"malloc"}, MetricKind::kHeapLive},
    {{"cgroup", "anon"}, MetricKind::kContainerAnon},
    {{"cgroup", "file"}, MetricKind::kPageCache},
    {{"container_memory_rss"}, MetricKind::kContainerAnon},
    {{"container_memory_cache"}, MetricKind::kPageCache},
    {{"page_cache"}, MetricKind::kPageCache},
    {{"host_file"}, MetricKind::kPageCache},
    {{"cgroup"}, MetricKind::kContainerAll},
    {{"container_memory"}, MetricKind::kContainerAll},
    {{"shm"}, MetricKind::kSharedMemory},
    {{"tmpfs"}, MetricKind::kSharedMemory},
    {{"pinned"}, MetricKind::kPinned},
    {{"vmpin"}, MetricKind::kPinned},
    {{"locked"}, MetricKind::kPinned},
    {{"registered"}, MetricKind::kPinned},
    {{"proc_used"}, MetricKind::kDeviceProcess},
    {{"dev_used"}, MetricKind::kDeviceWide},
    {{"dcgm"}, MetricKind::kDeviceWide},
    {{"device_used"}, MetricKind::kDeviceWide},
    {{"reserved"}, MetricKind::kDeviceReserved},
    {{"gpu", "live"}, MetricKind::kDeviceLive},
    {{"fw_live"}, MetricKind::kDeviceLive},
    {{"allocated"}, MetricKind::kDeviceLive},
    {{"gpu"}, MetricKind::kDeviceProcess},
    {{"rss"}, MetricKind::kResident},
    {{"resident"}, MetricKind::kResident},
    {{"pss"}, MetricKind::kResident},
    {{"uss"}, MetricKind::kResident},
    {{"anon"}, MetricKind::kAnon},
};

std::string Lower(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

}  // namespace

MetricKind KindOfMetric(std::string_view name) {
  const std::string lower = Lower(name);
  for (const Rule& rule : kRules) {
    const bool fits = std::all_of(rule.all.begin(), rule.all.end(), [&](std::string_view part) {
      return lower.find(part) != std::string::npos;
    });
    if (fits) return rule.kind;
  }
  return MetricKind::kOther;
}

bool IsCount(MetricKind kind) {
  return kind == MetricKind::kErrors || kind == MetricKind::kHandles || kind == MetricKind::kWork;
}

bool MayLeak(MetricKind kind) {
  switch (kind) {
    case MetricKind::kDeviceLive:
    case MetricKind::kDeviceReserved:
    case MetricKind::kDeviceProcess:
    case MetricKind::kAnon:
    case MetricKind::kAnonPlusSwap:
    case MetricKind::kAnonNotLazyFree:
    case MetricKind::kResident:
    case MetricKind::kHeapLive:
    case MetricKind::kContainerAnon:
    case MetricKind::kSharedMemory:
    case MetricKind::kPinned:
    case MetricKind::kNodeResidual:
    case MetricKind::kHandles:
    case MetricKind::kOther:
      return true;
    case MetricKind::kDeviceWide:
    case MetricKind::kContainerAll:
    case MetricKind::kPageCache:
    case MetricKind::kLazyFree:
    case MetricKind::kErrors:
    case MetricKind::kWork:
      return false;
  }
  return false;
}

Cause CauseOfGrowth(MetricKind kind) {
  switch (kind) {
    case MetricKind::kDeviceLive:
      return Cause::kTensorsKept;
    case MetricKind::kDeviceReserved:
    case MetricKind::kDeviceProcess:
    case MetricKind::kOther:
      return Cause::kUnclassifiedGrowth;
    case MetricKind::kDeviceWide:
      return Cause::kForeignGrowth;
    case MetricKind::kAnon:
    case MetricKind::kAnonPlusSwap:
    case MetricKind::kAnonNotLazyFree:
    case MetricKind::kResident:
    case MetricKind::kHeapLive:
    case MetricKind::kContainerAnon:
      return Cause::kAnonLeak;
    case MetricKind::kContainerAll:
    case MetricKind::kPageCache:
      return Cause::kPageCache;
    case MetricKind::kLazyFree:
      return Cause::kLazyFree;
    case MetricKind::kSharedMemory:
      return Cause::kSharedMemoryLeftovers;
    case MetricKind::kPinned:
      return Cause::kPinnedGrowth;
    case MetricKind::kNodeResidual:
      return Cause::kDeadOwnerOrphans;
    case MetricKind::kErrors:
      return Cause::kPinFailure;
    case MetricKind::kHandles:
      return Cause::kHandleLeak;
    case MetricKind::kWork:
      return Cause::kWorkloadGrowth;
  }
  return Cause::kUnclassifiedGrowth;
}

double BytesPerUnit(std::string_view name) {
  return Lower(name).find("dcgm_fi_dev_fb") != std::string::npos ? 1024.0 * 1024.0 : 1.0;
}

}  // namespace tidemark::detect
