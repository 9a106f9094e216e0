// tidemark where --reconcile: what each tool says about the same process, and why they disagree.
#include <algorithm>
#include <optional>

#include "client/commands/render.h"
#include "client/rank_view.h"
#include "client/table.h"
#include "client/units.h"

namespace tidemark::client {
namespace {

struct ToolFigure {
  std::string tool;
  std::optional<int64_t> bytes;  // absent: cannot be had here
  std::string why;               // what it counts and what it leaves out
};

std::optional<int64_t> PeakBytes(const v1::Process& process, const std::string& side) {
  std::optional<int64_t> sum;
  for (const v1::Peak& peak : process.peaks()) {
    if (peak.side() == side) sum = sum.value_or(0) + peak.peak_bytes();
  }
  return sum;
}

const v1::Device* FindDevice(const v1::Snapshot& snapshot, int index) {
  for (const v1::Device& device : snapshot.devices()) {
    if (device.index() == index) return &device;
  }
  return nullptr;
}

void AddGpuFigures(const v1::Snapshot& snapshot, const v1::Process& process,
                   std::vector<ToolFigure>& figures) {
  for (const v1::Waterfall& waterfall : process.waterfalls()) {
    const std::string gpu = "GPU " + std::to_string(waterfall.device());
    const bool own = waterfall.figure_known() && !waterfall.device_wide();
    figures.push_back(
        {"nvidia-smi, process on " + gpu,
         own ? std::optional<int64_t>(waterfall.figure_bytes()) : std::nullopt,
         own ? "all the driver holds for it: context, modules and cache too; not pinned or managed"
             : "no figure of one process here: " + Printable(waterfall.figure_source())});
    if (const v1::Device* device = FindDevice(snapshot, waterfall.device())) {
      figures.push_back({"nvidia-smi, " + gpu, device->used_bytes(),
                         "every process on the GPU, and those that cannot be seen"});
      figures.push_back({"DCGM FB_USED, " + gpu, device->used_bytes(),
                         "device-wide like nvidia-smi; FB_RESERVED is apart: " +
                             FormatBytes(device->reserved_bytes())});
    }
  }
}

void AddTorchFigures(const v1::Process& process, std::vector<ToolFigure>& figures) {
  const auto live = LiveBytes(process, "fw_live");
  const auto cache = LiveBytes(process, "fw_cache");
  if (!live) {
    figures.push_back({"torch memory_allocated", std::nullopt,
                       "no framework allocator was seen in this process"});
    return;
  }
  figures.push_back({"torch memory_allocated", live, "live blocks of the caching allocator only"});
  figures.push_back({"torch memory_reserved",
                     cache ? std::optional<int64_t>(*live + *cache) : std::nullopt,
                     "allocated + what the allocator caches; not context, NCCL or raw CUDA"});
  figures.push_back({"torch max_memory_allocated", PeakBytes(process, "framework"),
                     "its peak since the start (torch's can be reset by the job)"});
}

void AddHostFigures(const v1::Snapshot& snapshot, const v1::Process& process,
                    std::vector<ToolFigure>& figures) {
  const v1::HostMemory& host = process.host();
  if (host.known()) {
    figures.push_back({"psutil rss, top RES", host.rss_bytes(),
                       "anon + file + shmem; shared pages count in every process"});
    figures.push_back({"psutil rss without file and shmem", host.anon_bytes(),
                       "the process's own pages: what a leak on the host moves"});
    figures.push_back(
        {"cgroup memory.current",
         host.cgroup_current_bytes() >= 0 ? std::optional<int64_t>(host.cgroup_current_bytes())
                                          : std::nullopt,
         host.cgroup_current_bytes() >= 0
             ? "the whole container with page cache and kernel; not the driver's pages"
             : "the process is in no memory cgroup of its own"});
  }
  if (const auto pinned = LiveBytes(process, "pinned")) {
    figures.push_back({"CUDA pinned", pinned, "lies in shmem of rss; in no GPU figure"});
  }
  const v1::NodeMemory& node = snapshot.memory();
  if (node.total_bytes() > 0) {
    figures.push_back({"free, used", node.total_bytes() - node.available_bytes(),
                       "every process of the node; page cache counts as available"});
  }
}

std::vector<ToolFigure> FiguresOf(const v1::Snapshot& snapshot, const v1::Process& process) {
  std::vector<ToolFigure> figures;
  AddGpuFigures(snapshot, process, figures);
  AddTorchFigures(process, figures);
  AddHostFigures(snapshot, process, figures);
  return figures;
}

// "1 call and 4 MiB more than eBPF", the larger witness first.
std::string MoreText(int64_t calls, int64_t bytes) {
  const bool agent = calls != 0 ? calls > 0 : bytes > 0;
  const int64_t sign = agent ? 1 : -1;
  return std::string(agent ? "the agent" : "eBPF") + " counted " + std::to_string(sign * calls) +
         " calls and " + FormatBytes(sign * bytes) + " more than " + (agent ? "eBPF" : "the agent");
}

}  // namespace

bool WitnessesDisagree(const v1::Process& process) {
  return std::any_of(process.witness_differences().begin(), process.witness_differences().end(),
                     [](const auto& row) { return row.calls() != 0 || row.bytes() != 0; });
}

std::string WitnessText(const v1::Process& process) {
  if (process.witness_differences().empty()) return "";
  uint64_t agreed_calls = 0;
  int agreed_points = 0;
  std::string text;
  for (const v1::WitnessDifference& row : process.witness_differences()) {
    if (row.calls() == 0 && row.bytes() == 0) {
      agreed_calls += row.compared_calls();
      agreed_points += 1;
      continue;
    }
    text += "  " + ProcessName(process) + " " + Printable(row.entry_point()) + ": " +
            MoreText(row.calls(), row.bytes()) + " (in the last minute " +
            std::to_string(row.calls_last_minute()) + " calls, " +
            FormatBytes(row.bytes_last_minute()) + ")\n";
  }
  if (!text.empty()) {
    text +=
        "    more by the agent: calls while the probes were off, or in a copy of libcuda that was "
        "mapped later\n    more by eBPF: calls that CUPTI does not report: in a forked child, or "
        "while it was disabled\n";
  }
  if (agreed_points > 0) {
    text += "  " + ProcessName(process) + ": agent and eBPF agree on " + FormatCount(agreed_calls) +
            " calls of " + std::to_string(agreed_points) +
            " entry points, call for call and byte for "
            "byte\n";
  }
  return text;
}

std::string ReconcileText(const v1::Snapshot& snapshot, const Ink& ink) {
  std::string text;
  for (const v1::Process* process : ByRank(snapshot)) {
    if (!text.empty()) text += "\n";
    text += ink.Bold(ProcessName(*process)) + "\n";
    Table table({{"tool"}, {"says", Align::kRight}, {"because it counts"}});
    for (const ToolFigure& figure : FiguresOf(snapshot, *process)) {
      table.Add({figure.tool, figure.bytes ? FormatBytes(*figure.bytes) : "-", figure.why});
    }
    text += table.Text(2) + WitnessText(*process);
  }
  return text;
}

Json ReconcileJson(const v1::Snapshot& snapshot) {
  Json processes = Json::array();
  for (const v1::Process* process : ByRank(snapshot)) {
    Json figures = Json::array();
    for (const ToolFigure& figure : FiguresOf(snapshot, *process)) {
      figures.push_back({{"tool", figure.tool},
                         {"bytes", figure.bytes ? Json(*figure.bytes) : Json(nullptr)},
                         {"why", figure.why}});
    }
    processes.push_back({{"rank", process->identity().rank()},
                         {"pid", process->pid()},
                         {"figures", std::move(figures)},
                         {"witness_differences", ToJsonArray(process->witness_differences())}});
  }
  return {{"node", snapshot.node()}, {"processes", std::move(processes)}};
}

}  // namespace tidemark::client
