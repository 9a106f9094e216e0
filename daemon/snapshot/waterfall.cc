#include "daemon/snapshot/waterfall.h"

#include <algorithm>
#include <array>

#include "daemon/detect/verdict.h"

namespace tidemark {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kContextWindowNs = 10 * kSecond;
// The driver hands out 2 MiB at a time: two figures closer than that are the same.
constexpr int64_t kGrainBytes = 2ll << 20;
constexpr size_t kMostRises = 8;

// Classes that the device's figure of a process contains. Managed memory adds nothing there, IPC
// imports belong to the exporter.
constexpr std::array kInFigure = {MemoryClass::kDevice, MemoryClass::kPool, MemoryClass::kVmm,
                                  MemoryClass::kArray, MemoryClass::kGraph};

int64_t Live(const std::vector<ClassTotal>& totals, MemoryClass memory_class, int device) {
  int64_t bytes = 0;
  for (const ClassTotal& total : totals) {
    if (total.memory_class == memory_class && total.device == device) bytes += total.live_bytes;
  }
  return bytes;
}

// What an event that makes the driver take memory is called; empty for the others.
std::string NameOfEvent(const EventView& event) {
  constexpr int kLimitStackSize = 0;  // CU_LIMIT_STACK_SIZE
  constexpr int kLimitPrintf = 1;
  constexpr int kLimitHeap = 2;
  if (event.type == "limit_raised") {
    if (event.code == kLimitStackSize) return "stack limit";
    if (event.code == kLimitPrintf) return "printf buffer limit";
    if (event.code == kLimitHeap) return "device heap limit";
    return "limit " + std::to_string(event.code);
  }
  if (event.type == "module_loaded") return "module load";
  if (event.type == "communicator") return "communicator";
  if (event.type == "graph") return "graph";
  return {};
}

}  // namespace

int64_t WaterfallTracker::TrackedBytes(const std::vector<ClassTotal>& totals, int device) {
  int64_t bytes = 0;
  for (const MemoryClass memory_class : kInFigure) bytes += Live(totals, memory_class, device);
  return bytes;
}

Waterfall WaterfallTracker::Update(const DeviceFigure& figure,
                                   const std::vector<ClassTotal>& totals,
                                   int64_t observer_device_bytes, bool quiet, uint64_t now_unix_ns,
                                   const std::deque<EventView>& events) {
  Waterfall fall;
  fall.device = device_;
  fall.figure_known = figure.bytes.has_value() && !figure.device_wide;
  fall.device_wide = figure.device_wide;
  fall.figure_source = figure.source;

  const int64_t fw_live = Live(totals, MemoryClass::kFwLive, device_);
  const int64_t fw_cache = Live(totals, MemoryClass::kFwCache, device_);
  // The allocator's segments come out of one of these; which one depends on its settings.
  int64_t reserved = fw_live + fw_cache;
  std::vector<WaterfallLine> lines;
  for (const MemoryClass memory_class : kInFigure) {
    int64_t bytes = Live(totals, memory_class, device_);
    const bool holds_segments = memory_class == MemoryClass::kDevice ||
                                memory_class == MemoryClass::kPool ||
                                memory_class == MemoryClass::kVmm;
    if (holds_segments) {
      const int64_t taken = std::clamp<int64_t>(reserved, 0, std::max<int64_t>(bytes, 0));
      bytes -= taken;
      reserved -= taken;
    }
    lines.push_back({memory_class, bytes, ""});
  }
  lines.push_back({MemoryClass::kFwLive, fw_live, ""});
  lines.push_back({MemoryClass::kFwCache, fw_cache, ""});
  if (observer_device_bytes != 0) {
    lines.push_back({MemoryClass::kObserver, observer_device_bytes, ""});
  }
  int64_t known = 0;
  for (const WaterfallLine& line : lines) known += line.bytes;

  if (fall.figure_known) {
    const int64_t rest = *figure.bytes - known;
    LearnContext(rest, quiet, now_unix_ns);
    lines.push_back({MemoryClass::kContext, *context_, ""});
    const int64_t unattributed = rest - *context_;
    if (quiet) NameChange(unattributed, totals, now_unix_ns, events);
    lines.push_back({MemoryClass::kUnattributed, unattributed, Note()});
    fall.figure_bytes = *figure.bytes;
  } else if (figure.bytes) {
    lines.push_back({MemoryClass::kUnattributed, *figure.bytes - known,
                     "the figure is the whole device's: contexts and every other process on it"});
    fall.figure_bytes = *figure.bytes;
  } else {
    fall.figure_bytes = known;
  }
  std::erase_if(lines, [](const WaterfallLine& line) {
    return line.bytes == 0 && line.memory_class != MemoryClass::kUnattributed;
  });
  fall.lines = std::move(lines);
  return fall;
}

void WaterfallTracker::LearnContext(int64_t rest, bool quiet, uint64_t now_unix_ns) {
  if (first_unix_ns_ == 0) first_unix_ns_ = now_unix_ns;
  if (context_final_) return;
  if (!quiet) {
    if (!context_) context_ = rest;  // to begin with
    return;
  }
  // A context under construction shows a figure that is still rising, and half a context would be
  // the smallest for ever: so of two looks in a row the larger counts.
  int64_t smallest = rest;
  if (last_rest_) {
    smallest = std::max(*last_rest_, rest);
    if (paired_) smallest = std::min(*context_, smallest);
    paired_ = true;
  }
  // What moves between context and unattributed is no rise of the latter.
  if (context_) named_unattributed_ += *context_ - smallest;
  context_ = smallest;
  last_rest_ = rest;
  context_final_ = paired_ && now_unix_ns - first_unix_ns_ >= kContextWindowNs;
}

void WaterfallTracker::NameChange(int64_t unattributed, const std::vector<ClassTotal>& totals,
                                  uint64_t now_unix_ns, const std::deque<EventView>& events) {
  uint64_t allocations = 0;
  for (const ClassTotal& total : totals) {
    if (total.device == device_ && total.witness != Witness::kTorch) {
      allocations += total.allocations;
    }
  }
  const int64_t change = unattributed - named_unattributed_;
  if (change >= kGrainBytes) {
    std::string name;
    // The device's figure is a second old at most, and so is what the events coincide with.
    const uint64_t since = named_until_unix_ns_ - std::min(named_until_unix_ns_, 2 * kSecond);
    for (auto event = events.rbegin(); event != events.rend() && event->unix_ns >= since; ++event) {
      name = NameOfEvent(*event);
      if (!name.empty()) break;
    }
    if (name.empty()) {
      name = allocations != allocations_ ? "rounding and pool reserves of new allocations"
                                         : "no event seen";
    }
    const auto same = std::find_if(rises_.begin(), rises_.end(),
                                   [&](const auto& rise) { return rise.first == name; });
    if (same != rises_.end()) {
      same->second += change;
    } else if (rises_.size() < kMostRises) {
      rises_.emplace_back(name, change);
    }
    named_unattributed_ = unattributed;
  } else if (change <= -kGrainBytes) {
    // What rose last is what falls first.
    int64_t fallen = -change;
    while (fallen > 0 && !rises_.empty()) {
      const int64_t taken = std::min(fallen, rises_.back().second);
      rises_.back().second -= taken;
      fallen -= taken;
      if (rises_.back().second == 0) rises_.pop_back();
    }
    named_unattributed_ = unattributed;
  }
  allocations_ = allocations;
  named_until_unix_ns_ = now_unix_ns;
}

std::string WaterfallTracker::Note() const {
  std::string note;
  for (const auto& [name, bytes] : rises_) {
    if (!note.empty()) note += "; ";
    note += name + ": " + detect::FormatBytes(static_cast<double>(bytes));
  }
  return note;
}

}  // namespace tidemark
