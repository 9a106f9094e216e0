// A Perfetto trace: a group of tracks a process, with a counter a class and device, its steps and
// phases as slices, and what happened as instants. Times are those of the wall clock.
#include <algorithm>
#include <map>
#include <tuple>

#include "daemon/serve/export_stacks.h"
#include "export/perfetto.pb.h"

namespace tidemark::exports {
namespace {

constexpr uint32_t kSequence = 1;

class TraceWriter {
 public:
  uint64_t ProcessTrack(const v1::ProcessRef& process) {
    const auto key = std::tuple(process.boot_id(), process.pid(), process.start_time_ticks());
    const auto [at, is_new] = processes_.try_emplace(key, next_);
    if (!is_new) return at->second;
    perfetto::TrackDescriptor* track = Descriptor();
    track->mutable_process()->set_pid(process.pid());
    track->mutable_process()->set_process_name(ProcessName(process));
    return at->second;
  }

  uint64_t Track(uint64_t parent, const std::string& name, bool counter = false) {
    const auto [at, is_new] = tracks_.try_emplace({parent, name}, next_);
    if (!is_new) return at->second;
    perfetto::TrackDescriptor* track = Descriptor();
    track->set_parent_uuid(parent);
    track->set_name(name);
    if (counter) {
      track->mutable_counter()->set_unit(perfetto::CounterDescriptor::UNIT_SIZE_BYTES);
    }
    return at->second;
  }

  perfetto::TrackEvent* Event(uint64_t unix_ns, uint64_t track, perfetto::TrackEvent::Type type) {
    perfetto::TracePacket* packet = Packet();
    packet->set_timestamp(unix_ns);
    perfetto::TrackEvent* event = packet->mutable_track_event();
    event->set_type(type);
    event->set_track_uuid(track);
    return event;
  }

  std::string Text() const { return trace_.SerializeAsString(); }

 private:
  perfetto::TracePacket* Packet() {
    perfetto::TracePacket* packet = trace_.add_packet();
    packet->set_trusted_packet_sequence_id(kSequence);
    return packet;
  }
  perfetto::TrackDescriptor* Descriptor() {
    perfetto::TrackDescriptor* track = Packet()->mutable_track_descriptor();
    track->set_uuid(next_++);
    return track;
  }

  perfetto::Trace trace_;
  uint64_t next_ = 1;
  std::map<std::tuple<std::string, int32_t, uint64_t>, uint64_t> processes_;
  std::map<std::pair<uint64_t, std::string>, uint64_t> tracks_;
};

std::string CounterName(const v1::Series& line) {
  const std::string where = line.device() >= 0 ? "device " + std::to_string(line.device()) : "host";
  return line.memory_class() + ", " + where;
}

void AddCounter(const v1::Series& line, TraceWriter* trace) {
  const uint64_t track = trace->Track(trace->ProcessTrack(line.process()), CounterName(line), true);
  for (int i = 0; i < line.unix_ns_size(); ++i) {
    trace->Event(line.unix_ns(i), track, perfetto::TrackEvent::COUNTER)
        ->set_counter_value(line.mean_bytes(i));
  }
}

// A slice ends with its step and begins where the step before it ended.
void AddSteps(const v1::Series& line, TraceWriter* trace) {
  const uint64_t track = trace->Track(trace->ProcessTrack(line.process()), "steps");
  const int points = std::min({line.unix_ns_size(), line.steps_size(), line.min_bytes_size(),
                               line.mean_bytes_size(), line.max_bytes_size()});
  for (int i = 1; i < points; ++i) {
    const uint64_t first = line.steps(i - 1) + 1;
    const uint64_t last = line.steps(i);
    perfetto::TrackEvent* event =
        trace->Event(line.unix_ns(i - 1), track, perfetto::TrackEvent::SLICE_BEGIN);
    event->set_name(first == last ? "step " + std::to_string(last)
                                  : "steps " + std::to_string(first) + "-" + std::to_string(last));
    for (const auto& [name, bytes] : {std::pair("floor_bytes", line.min_bytes(i)),
                                      {"end_bytes", line.mean_bytes(i)},
                                      {"peak_bytes", line.max_bytes(i)}}) {
      perfetto::DebugAnnotation* note = event->add_debug_annotations();
      note->set_name(line.memory_class() + "_" + name);
      note->set_int_value(bytes);
    }
    trace->Event(line.unix_ns(i), track, perfetto::TrackEvent::SLICE_END);
  }
}

void AddMark(const v1::HistoryMark& mark, uint64_t end_unix_ns, TraceWriter* trace) {
  const uint64_t process = trace->ProcessTrack(mark.process());
  if (mark.kind() == "phase") {
    const uint64_t track = trace->Track(process, "phases");
    trace->Event(mark.start_unix_ns(), track, perfetto::TrackEvent::SLICE_BEGIN)
        ->set_name(mark.text());
    const uint64_t end = mark.end_unix_ns() != 0 ? mark.end_unix_ns() : end_unix_ns;
    trace->Event(std::max(end, mark.start_unix_ns()), track, perfetto::TrackEvent::SLICE_END);
    return;
  }
  const bool verdict = mark.kind() == "verdict";
  perfetto::TrackEvent* event =
      trace->Event(mark.start_unix_ns(), trace->Track(process, verdict ? "alerts" : "events"),
                   perfetto::TrackEvent::INSTANT);
  event->add_categories(mark.kind());
  event->set_name(mark.text().empty() ? mark.kind() : mark.kind() + ": " + mark.text());
  if (!verdict) return;
  perfetto::DebugAnnotation* note = event->add_debug_annotations();
  note->set_name("state");
  note->set_string_value(mark.verdict().state());
}

}  // namespace

std::string WritePerfetto(const Input& input) {
  TraceWriter trace;
  uint64_t end_unix_ns = 0;
  for (const v1::Series& line : input.series) {
    if (line.unix_ns_size() > 0) {
      end_unix_ns = std::max(end_unix_ns, line.unix_ns(line.unix_ns_size() - 1));
    }
    if (line.site_id() == 0) AddCounter(line, &trace);
  }
  // Steps are told by every series that is aligned to them: one a process draws the slices.
  std::map<uint64_t, const v1::Series*> drawn;
  for (const v1::Series& line : input.steps) {
    const v1::Series*& chosen = drawn[trace.ProcessTrack(line.process())];
    if (chosen == nullptr || line.memory_class() == "fw_live") chosen = &line;
    if (line.unix_ns_size() > 0) {
      end_unix_ns = std::max(end_unix_ns, line.unix_ns(line.unix_ns_size() - 1));
    }
  }
  for (const auto& [process, line] : drawn) AddSteps(*line, &trace);
  for (const v1::HistoryMark& mark : input.marks) AddMark(mark, end_unix_ns, &trace);
  return trace.Text();
}

}  // namespace tidemark::exports
