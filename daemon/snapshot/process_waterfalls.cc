#include "daemon/snapshot/process_waterfalls.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace tidemark {
namespace {

std::set<int> DevicesOf(const std::vector<ClassTotal>& totals) {
  std::set<int> devices;
  for (const ClassTotal& total : totals) {
    if (total.device >= 0) devices.insert(total.device);
  }
  return devices;
}

}  // namespace

std::vector<int> DevicesHeldBy(pid_t pid, const NvmlSample* nvml) {
  std::vector<int> devices;
  if (nvml == nullptr) return devices;
  for (const NvmlDevice& device : nvml->devices) {
    const bool held = std::any_of(device.processes.begin(), device.processes.end(),
                                  [&](const auto& holder) { return holder.first == pid; });
    if (held) devices.push_back(device.view.index);
  }
  return devices;
}

DeviceFigure ProcessWaterfalls::FigureOf(int device, const NvmlSample* nvml) const {
  DeviceFigure figure;
  if (nvml == nullptr || nvml->state.state != "on") {
    figure.source = nvml == nullptr ? "NVML has not answered yet" : "nvml: " + nvml->state.reason;
    return figure;
  }
  if (device < 0 || static_cast<size_t>(device) >= nvml->devices.size()) {
    figure.source = "nvml: no device " + std::to_string(device);
    return figure;
  }
  const NvmlDevice& row = nvml->devices[static_cast<size_t>(device)];
  int64_t bytes = 0;
  bool found = false;
  for (const auto& [pid, used] : row.processes) {
    if (pid != pid_ || used < 0) continue;
    bytes += used;  // once for each MIG instance
    found = true;
  }
  if (found) {
    figure.bytes = bytes;
    figure.source = "nvml";
    return figure;
  }
  // Blind to this pid: another pid namespace, a driver without the call, or no context yet.
  figure.device_wide = true;
  figure.bytes = row.view.used_bytes;
  figure.source = row.processes_known ? "nvml does not list pid " + std::to_string(pid_) +
                                            " (another pid namespace?): the whole device's figure"
                                      : "nvml: " + row.why + ": the whole device's figure";
  return figure;
}

void ProcessWaterfalls::Update(const NvmlSample* nvml, const Witnesses& witnesses,
                               const std::deque<EventView>& events) {
  std::set<int> devices = DevicesOf(witnesses.totals);
  for (const int device : DevicesHeldBy(pid_, nvml)) devices.insert(device);
  const std::vector<Waterfall> last = std::exchange(waterfalls_, {});
  for (const int device : devices) {
    const DeviceFigure figure = FigureOf(device, nvml);
    const auto known = std::find_if(last.begin(), last.end(), [&](const Waterfall& fall) {
      return fall.device == device && fall.figure_known;
    });
    if (figure.device_wide && known != last.end()) {
      // A process on its way out loses its context before it is gone. What it had last is the
      // better answer than the bytes of others; of one that reset the device, nothing is left.
      if (WaterfallTracker::TrackedBytes(witnesses.totals, device) > 0) {
        waterfalls_.push_back(*known);
        waterfalls_.back().figure_source = "nvml lists it no more: its last figure";
      } else {
        trackers_.erase(device);
      }
      continue;
    }
    WaterfallTracker::Look look;
    look.totals = witnesses.totals;
    look.accounts = witnesses.accounts;
    look.quiet = WaterfallTracker::TrackedCalls(witnesses.before, device) ==
                 WaterfallTracker::TrackedCalls(witnesses.totals, device);
    if (device == *devices.begin()) look.observer_device_bytes = witnesses.observer_device_bytes;
    look.unix_ns = witnesses.unix_ns;
    auto tracker = trackers_.try_emplace(device, device).first;
    waterfalls_.push_back(tracker->second.Update(figure, look, events));
  }
}

void ProcessWaterfalls::DescribeEnded(const Witnesses& witnesses,
                                      const std::deque<EventView>& events) {
  if (!waterfalls_.empty()) return;
  WaterfallTracker::Look look;
  look.totals = witnesses.totals;
  look.accounts = witnesses.accounts;
  look.unix_ns = witnesses.unix_ns;
  DeviceFigure figure;
  figure.source = "it ended before the device was asked";
  for (const int device : DevicesOf(witnesses.totals)) {
    waterfalls_.push_back(WaterfallTracker(device).Update(figure, look, events));
  }
}

}  // namespace tidemark
