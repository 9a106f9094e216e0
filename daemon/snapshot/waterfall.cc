#include "daemon/snapshot/waterfall.h"

#include <algorithm>
#include <array>
#include <map>

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

// What an event that makes the driver take memory is called; empty for the others. The more telling
// has the higher rank: setting up a communicator loads modules, raising a limit does not.
struct EventName {
  std::string name;
  int rank = 0;
};

EventName NameOfEvent(const EventView& event) {
  constexpr int kLimitStackSize = 0;  // CU_LIMIT_STACK_SIZE
  constexpr int kLimitPrintf = 1;
  constexpr int kLimitHeap = 2;
  if (event.type == "limit_raised") {
    if (event.code == kLimitStackSize) return {"stack limit", 4};
    if (event.code == kLimitPrintf) return {"printf buffer limit", 4};
    if (event.code == kLimitHeap) return {"device heap limit", 4};
    return {"limit " + std::to_string(event.code), 4};
  }
  if (event.type == "communicator") return {"communicator", 3};
  if (event.type == "graph") return {"graph", 2};
  if (event.type == "module_loaded") return {"module load", 1};
  return {};
}

bool HoldsSegments(MemoryClass memory_class) {
  return memory_class == MemoryClass::kDevice || memory_class == MemoryClass::kPool ||
         memory_class == MemoryClass::kVmm;
}

// What had already taken memory when the context could first be measured, and is in its figure.
std::string NoteOfContext(const std::deque<EventView>& events) {
  std::map<std::string, int> before;
  for (const EventView& event : events) {
    const EventName name = NameOfEvent(event);
    if (name.rank > 0) ++before[name.name];
  }
  std::string note;
  for (const auto& [name, times] : before) {
    note += (note.empty() ? "with what came before it could be measured: " : ", ") + name;
    if (times > 1) note += " (" + std::to_string(times) + ")";
  }
  return note;
}

void AddTo(std::string* note, std::string_view name, int64_t bytes) {
  if (!note->empty()) *note += "; ";
  note->append(name).append(": ").append(detect::FormatBytes(static_cast<double>(bytes)));
}

}  // namespace

int64_t WaterfallTracker::TrackedBytes(const std::vector<ClassTotal>& totals, int device) {
  int64_t bytes = 0;
  for (const MemoryClass memory_class : kInFigure) bytes += Live(totals, memory_class, device);
  return bytes;
}

uint64_t WaterfallTracker::TrackedCalls(const std::vector<ClassTotal>& totals, int device) {
  uint64_t calls = 0;
  for (const ClassTotal& total : totals) {
    if (total.device != device || total.witness == Witness::kTorch) continue;
    calls += total.allocations + total.frees;
  }
  return calls;
}

std::vector<WaterfallLine> WaterfallTracker::KnownLines(const Look& look) const {
  const int64_t fw_live = Live(look.totals, MemoryClass::kFwLive, device_);
  const int64_t fw_cache = Live(look.totals, MemoryClass::kFwCache, device_);
  // The allocator's segments come out of one of these; which one depends on its settings. What a
  // library holds on its own account is not the allocator's.
  int64_t reserved = fw_live + fw_cache;
  std::vector<WaterfallLine> lines;
  for (const MemoryClass memory_class : kInFigure) {
    int64_t bytes = Live(look.totals, memory_class, device_);
    std::string note;
    int64_t accounts = 0;
    for (const OwnAccountBytes& account : look.accounts) {
      if (account.memory_class != memory_class || account.device != device_) continue;
      accounts += account.bytes;
      AddTo(&note, account.name, account.bytes);
    }
    if (HoldsSegments(memory_class)) {
      const int64_t taken =
          std::clamp<int64_t>(reserved, 0, std::max<int64_t>(bytes - accounts, 0));
      bytes -= taken;
      reserved -= taken;
      if (memory_class == MemoryClass::kVmm && taken > 0) {
        AddTo(&note, "without expandable segments, which are fw_live and fw_cache", taken);
      }
    }
    lines.push_back({memory_class, bytes, std::move(note)});
  }
  lines.push_back({MemoryClass::kFwLive, fw_live, ""});
  lines.push_back({MemoryClass::kFwCache, fw_cache, ""});
  if (look.observer_device_bytes != 0) {
    lines.push_back({MemoryClass::kObserver, look.observer_device_bytes, ""});
  }
  return lines;
}

Waterfall WaterfallTracker::Update(const DeviceFigure& figure, const Look& look,
                                   const std::deque<EventView>& events) {
  Waterfall fall;
  fall.device = device_;
  fall.figure_known = figure.bytes.has_value() && !figure.device_wide;
  fall.device_wide = figure.device_wide;
  fall.figure_source = figure.source;

  std::vector<WaterfallLine> lines = KnownLines(look);
  int64_t known = 0;
  for (const WaterfallLine& line : lines) known += line.bytes;

  if (fall.figure_known) {
    const int64_t rest = *figure.bytes - known;
    LearnContext(rest, look, events);
    lines.push_back({MemoryClass::kContext, *context_, context_note_});
    const int64_t unattributed = rest - *context_;
    if (look.quiet) NameChange(unattributed, look, events);
    lines.push_back({MemoryClass::kUnattributed, unattributed, RisesNote()});
    fall.figure_bytes = *figure.bytes;
  } else if (figure.bytes) {
    lines.push_back({MemoryClass::kUnattributed, *figure.bytes - known,
                     "the figure is the whole device's: contexts and every other process on it"});
    fall.figure_bytes = *figure.bytes;
  } else {
    fall.figure_bytes = known;
  }
  std::erase_if(lines, [](const WaterfallLine& line) {
    return line.bytes == 0 && line.note.empty() && line.memory_class != MemoryClass::kUnattributed;
  });
  fall.lines = std::move(lines);
  return fall;
}

void WaterfallTracker::LearnContext(int64_t rest, const Look& look,
                                    const std::deque<EventView>& events) {
  if (first_unix_ns_ == 0) first_unix_ns_ = look.unix_ns;
  if (context_final_) return;
  if (!look.quiet) {
    if (!context_) context_ = rest;  // to begin with: no rise is named before a quiet look
    return;
  }
  int64_t smallest = rest;
  // A context under construction shows a figure that is still rising, and half a context would be
  // the smallest for ever. Whoever has allocated has a whole one; before that, of two looks in a
  // row the larger counts.
  const bool whole = first_rest_.has_value() || TrackedCalls(look.totals, device_) > 0;
  if (!whole) {
    first_rest_ = rest;
  } else {
    if (first_rest_ && !learned_ && TrackedCalls(look.totals, device_) == 0) {
      smallest = std::max(*first_rest_, rest);
    }
    if (learned_) smallest = std::min(*context_, smallest);
    if (!learned_ || smallest < *context_) context_note_ = NoteOfContext(events);
    learned_ = true;
  }
  // What moves between context and unattributed is no rise of the latter.
  if (seen_quiet_) named_unattributed_ += *context_ - smallest;
  seen_quiet_ = true;
  context_ = smallest;
  context_final_ = learned_ && look.unix_ns - first_unix_ns_ >= kContextWindowNs;
}

void WaterfallTracker::NameChange(int64_t unattributed, const Look& look,
                                  const std::deque<EventView>& events) {
  const uint64_t calls = TrackedCalls(look.totals, device_);
  const int64_t change = unattributed - named_unattributed_;
  if (change >= kGrainBytes) {
    EventName best;
    // The device's figure is a second old at most, and so is what the events coincide with.
    const uint64_t since = named_until_unix_ns_ - std::min(named_until_unix_ns_, 2 * kSecond);
    for (auto event = events.rbegin(); event != events.rend() && event->unix_ns >= since; ++event) {
      EventName name = NameOfEvent(*event);
      if (name.rank > best.rank) best = std::move(name);
    }
    if (best.rank == 0) {
      best.name =
          calls != calls_ ? "rounding and pool reserves of new allocations" : "no event seen";
    }
    const auto same = std::find_if(rises_.begin(), rises_.end(),
                                   [&](const auto& rise) { return rise.first == best.name; });
    if (same != rises_.end()) {
      same->second += change;
    } else if (rises_.size() < kMostRises) {
      rises_.emplace_back(best.name, change);
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
  calls_ = calls;
  named_until_unix_ns_ = look.unix_ns;
}

std::string WaterfallTracker::RisesNote() const {
  std::string note;
  for (const auto& [name, bytes] : rises_) AddTo(&note, name, bytes);
  return note;
}

}  // namespace tidemark
