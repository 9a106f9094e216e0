// tidemark where: the waterfall, which adds up to the device's own figure, and the host's memory.
#include <algorithm>
#include <array>
#include <memory>

#include "client/commands/commands.h"
#include "client/commands/render.h"
#include "client/rank_view.h"
#include "client/table.h"
#include "client/units.h"

namespace tidemark::client {
namespace {

struct ClassMeaning {
  const char* memory_class;
  const char* meaning;
};

constexpr std::array<ClassMeaning, 13> kMeanings = {{
    {"context", "CUDA context and modules"},
    {"fw_live", "live tensors"},
    {"fw_cache", "kept by the framework's allocator, not live"},
    {"device", "cuMemAlloc outside the framework"},
    {"pool", "stream-ordered pools"},
    {"vmm", "cuMemCreate outside the framework"},
    {"managed", "managed"},
    {"array", "CUDA arrays"},
    {"graph", "CUDA graphs"},
    {"ipc", "imported from another process"},
    {"observer", "Tidemark's own"},
    {"before_attach", "allocated before Tidemark was there"},
    {"unattributed", "nobody asked for it by a call that can be seen"},
}};

std::string Meaning(const v1::WaterfallLine& line) {
  if (!line.note().empty()) return Printable(line.note());
  for (const ClassMeaning& known : kMeanings) {
    if (line.memory_class() == known.memory_class) return known.meaning;
  }
  return "";
}

std::string WaterfallText(const v1::Process& process, const v1::Waterfall& waterfall,
                          const Ink& ink) {
  std::string text = ink.Bold(ProcessName(process)) + ", GPU " + std::to_string(waterfall.device());
  if (IsDead(process)) text += ", " + LivenessText(process) + ": its last state";
  if (!waterfall.figure_known()) {
    text += waterfall.device_wide() ? "; no figure of this process, only the whole device's"
                                    : "; no device figure";
    if (!waterfall.figure_source().empty())
      text += " (" + Printable(waterfall.figure_source()) + ")";
  }
  text += "\n";

  Table table({{"", Align::kRight}, {""}, {""}});
  int64_t sum = 0;
  for (const v1::WaterfallLine& line : waterfall.lines()) {
    sum += line.bytes();
    if (line.bytes() == 0 && line.note().empty() && line.memory_class() != "unattributed") continue;
    table.Add({FormatBytes(line.bytes()), line.memory_class(), Meaning(line)});
  }
  if (waterfall.figure_known()) {
    table.Add({FormatBytes(waterfall.figure_bytes()), "= figure",
               (waterfall.device_wide() ? "the whole device, " : "this process, ") +
                   std::string("by ") + Printable(waterfall.figure_source())});
    if (sum != waterfall.figure_bytes()) {
      table.Add({FormatBytes(waterfall.figure_bytes() - sum), "off", "the lines do not add up"});
    }
  } else {
    table.Add({FormatBytes(sum), "= known"});
  }
  return text + table.Text(2);
}

std::string HostText(const v1::Process& process) {
  const v1::HostMemory& host = process.host();
  if (!host.known()) return "  host: not known\n";
  Table table({{"", Align::kRight}, {""}, {""}});
  const auto add = [&](int64_t bytes, const char* name, const std::string& meaning) {
    if (bytes > 0) table.Add({FormatBytes(bytes), name, meaning});
  };
  add(host.anon_bytes(), "anon", "heap, stacks, CPU tensors");
  add(host.file_bytes(), "file", "mapped libraries and files");
  add(host.shmem_bytes(), "shmem", "shared memory, and what cudaHostAlloc pins");
  table.Add({FormatBytes(host.rss_bytes()), "= rss", "peak " + FormatBytes(host.peak_rss_bytes())});
  add(host.swap_bytes(), "swap", "besides");
  const auto beside = [&](const char* memory_class, const char* meaning) {
    if (const auto bytes = LiveBytes(process, memory_class)) add(*bytes, memory_class, meaning);
  };
  beside("pinned", "within: allocated by CUDA, page-locked");
  beside("registered", "within: the job's own memory, registered with CUDA");
  beside("pinned_other", "within: RDMA and io_uring");
  beside("fw_host", "within anon: CPU tensors");
  add(process.observer_host_bytes(), "observer", "Tidemark's own");
  if (host.cgroup_current_bytes() >= 0) {
    table.Add({FormatBytes(host.cgroup_current_bytes()), "cgroup",
               host.cgroup_limit_bytes() >= 0
                   ? "of " + FormatBytes(host.cgroup_limit_bytes()) + " allowed"
                   : "no limit"});
  }
  return "  host\n" + table.Text(2);
}

struct Options {
  SourceOptions source;
  bool reconcile = false;
  bool torch = false;
};

int Run(Context& context, const Options& options) {
  v1::GetSnapshotRequest request;
  request.set_omit_sites(true);
  request.set_omit_steps(true);
  Renderer renderer{WhereText, WhereJson};
  if (options.reconcile) renderer = {ReconcileText, ReconcileJson};
  if (options.torch) renderer = {TorchSummaryText, TorchSummaryJson};
  return LoadAndPrint(context, options.source, request, renderer);
}

}  // namespace

std::string WhereText(const v1::Snapshot& snapshot, const Ink& ink) {
  std::string text;
  for (const v1::Process* process : ByRank(snapshot)) {
    if (!text.empty()) text += "\n";
    if (process->waterfalls().empty()) {
      text += ink.Bold(ProcessName(*process)) + ", no GPU context";
      if (IsDead(*process)) text += ", " + LivenessText(*process) + ": its last state";
      text += "\n";
    }
    for (const v1::Waterfall& waterfall : process->waterfalls()) {
      text += WaterfallText(*process, waterfall, ink);
    }
    if (!process->observed()) {
      text += "  not observed: " + Printable(process->not_observed_reason()) + "\n";
    }
    text += HostText(*process);
  }
  const v1::NodeMemory& node = snapshot.memory();
  if (node.total_bytes() > 0) {
    Table table({{"", Align::kRight}, {""}, {""}});
    int64_t attributed = 0;
    for (const v1::Process& process : snapshot.processes()) {
      // The dead hold nothing any more, and what is swapped out is not in this memory.
      if (!IsDead(process)) attributed += process.host().anon_bytes();
    }
    table.Add({FormatBytes(node.total_bytes()), "total"});
    table.Add({FormatBytes(attributed), "anon", "of the processes above"});
    table.Add({FormatBytes(node.shmem_bytes()), "shmem"});
    table.Add({FormatBytes(node.page_cache_bytes()), "page cache", "given back when needed"});
    table.Add({FormatBytes(node.kernel_bytes()), "kernel"});
    table.Add({FormatBytes(node.free_bytes()), "free"});
    table.Add({FormatBytes(node.total_bytes() - attributed - node.shmem_bytes() -
                           node.page_cache_bytes() - node.kernel_bytes() - node.free_bytes()),
               "residual", "other processes and what cannot be seen"});
    text += "\n" + ink.Bold("node " + Printable(snapshot.node())) + "\n" + table.Text(2);
  }
  return text;
}

Json WhereJson(const v1::Snapshot& snapshot) {
  Json processes = Json::array();
  for (const v1::Process* process : ByRank(snapshot)) {
    processes.push_back({{"rank", process->identity().rank()},
                         {"pid", process->pid()},
                         {"training_job", process->identity().training_job()},
                         {"liveness", process->liveness()},
                         {"observed", process->observed()},
                         {"not_observed_reason", process->not_observed_reason()},
                         {"waterfalls", ToJsonArray(process->waterfalls())},
                         {"totals", ToJsonArray(process->totals())},
                         {"host", ToJson(process->host())},
                         {"observer_host_bytes", process->observer_host_bytes()}});
  }
  return {{"node", snapshot.node()},
          {"memory", ToJson(snapshot.memory())},
          {"devices", ToJsonArray(snapshot.devices())},
          {"processes", std::move(processes)}};
}

void AddWhere(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      line.Add("where", "Where all the memory is: a waterfall that adds up to the device's figure",
               [options](Context& context) { return Run(context, *options); });
  options->source.AddTo(*command);
  CLI::Option* reconcile = command->add_flag(
      "--reconcile", options->reconcile,
      "nvidia-smi, DCGM, torch, free, psutil and cgroup side by side, and why each differs");
  command
      ->add_flag("--torch", options->torch,
                 "The rows of torch.cuda.memory_summary() that can be seen from outside")
      ->excludes(reconcile);
}

}  // namespace tidemark::client
