#include "client/commands/holders.h"

#include <cinttypes>
#include <cstdio>

#include "client/rank_view.h"
#include "client/units.h"
#include "client/verdict_view.h"

namespace tidemark::client {
namespace {

struct Target {
  const v1::Process* process = nullptr;
  const v1::Site* site = nullptr;
};

const v1::Site* LargestSite(const v1::Process& process, const SitesView& view) {
  const v1::Site* largest = nullptr;
  for (const v1::Site& site : process.sites()) {
    if (!view.under.empty() && !AnyFrameContains(site, view.under)) continue;
    if (!view.memory_class.empty() && site.memory_class() != view.memory_class) continue;
    if (largest == nullptr || site.live().bytes() > largest->live().bytes()) largest = &site;
  }
  return largest;
}

// The site asked for, else the blamed one of the worst verdict, else the largest; on the first
// living process that has it.
Target ChooseTarget(const v1::Snapshot& snapshot, const SitesView& view) {
  const std::vector<const v1::Process*> processes = ByRank(snapshot);
  uint64_t id = view.site_id;
  if (id == 0 && view.under.empty() && view.memory_class.empty()) {
    for (const VerdictGroup& group : GroupVerdicts(processes)) {
      if (group.weight > Weight::kSuspect || group.verdict->site_id() == 0) continue;
      id = group.verdict->site_id();
      break;
    }
  }
  Target best;
  for (const v1::Process* process : processes) {
    if (IsDead(*process)) continue;
    const v1::Site* site =
        id != 0 ? FindSite(*process, id, view.memory_class) : LargestSite(*process, view);
    if (site == nullptr) continue;
    if (best.site == nullptr || site->live().bytes() > best.site->live().bytes()) {
      best = {process, site};
    }
  }
  return best;
}

}  // namespace

std::string HoldersSnippet(const v1::Process& process, const v1::Site& site,
                           const v1::ListHoldersResponse& blocks) {
  std::string text = "# Who holds what " + SiteText(site) + " allocated (" + ProcessName(process) +
                     ", pid " + std::to_string(process.pid()) +
                     "): " + FormatCount(blocks.blocks_total()) + " live blocks, the oldest " +
                     FormatCount(static_cast<uint64_t>(blocks.blocks_size())) +
                     " below.\n"
                     "# Run this inside that process: in a debugger, a signal handler, or a\n"
                     "# callback between two steps. It only reads.\n"
                     "import gc, types\n"
                     "blocks = {  # address: (bytes, step of birth)\n";
  for (const auto& block : blocks.blocks()) {
    char line[96];
    std::snprintf(line, sizeof(line), "    0x%" PRIx64 ": (%" PRIu64 ", %" PRIu64 "),\n",
                  block.address(), block.bytes(), block.step());
    text += line;
  }
  text += R"py(}
def storage(o):
    try:
        s = o.untyped_storage() if hasattr(o, "untyped_storage") else o.storage()
        return s.data_ptr()
    except Exception:
        return None
def name(o):
    t = type(o).__name__
    if isinstance(o, dict) and "__name__" in o: return "module " + str(o["__name__"])
    if isinstance(o, types.FrameType):
        return f"frame {o.f_code.co_name} {o.f_code.co_filename}:{o.f_lineno}"
    return f"{t} of {len(o)}" if isinstance(o, (dict, list, tuple, set)) else t
def key(holder, o):
    if isinstance(holder, dict):
        return next((f"[{k!r}]" for k, v in holder.items() if v is o), "")
    if isinstance(holder, (list, tuple)):
        return next((f"[{i}]" for i, v in enumerate(holder) if v is o), "")
    return next((f".{k}" for k, v in getattr(holder, "__dict__", {}).items() if v is o), "")
everything = gc.get_objects()
own = {id(everything), id(globals()), id(blocks)}
import torch
tensors = [o for o in everything if issubclass(type(o), torch.Tensor)]
found = [(t, storage(t)) for t in tensors]
found = [(t, a) for t, a in found if a in blocks]
own |= {id(tensors), id(found)} | {id(p) for p in found}
for tensor, address in found:
    print(f"{address:#x} {blocks[address][0]} bytes, born in step {blocks[address][1]}:"
          f" tensor {tuple(tensor.shape)} {tensor.dtype}")
    o, seen = tensor, {id(tensor)}
    for depth in range(8):
        holders = [h for h in gc.get_referrers(o)
                   if id(h) not in own | seen and not isinstance(h, types.FrameType)]
        if not holders: break
        h = holders[0]
        print("  " * (depth + 1) + f"held by {name(h)}{key(h, o)}"
              + (f" (and {len(holders) - 1} others)" if len(holders) > 1 else ""))
        seen.add(id(h)); o = h
print(f"{len({a for _, a in found})} of {len(blocks)} blocks are held by Python tensors;"
      " the rest by C++ (autograd graph, communicator, allocator)")
)py";
  return text;
}

int PrintHolders(Context& context, const SourceOptions& source, const SitesView& view) {
  if (!source.from.empty()) {
    return Fail(context,
                {"find holders in " + source.from, "a recording keeps no addresses",
                 "run it while the job lives, without --from"},
                kUsage);
  }
  Result<Connection> connection = source.Connect(context);
  if (!connection) return Fail(context, connection.error(), kNoDaemon);
  v1::GetSnapshotRequest request;
  request.set_omit_steps(true);
  Result<v1::Snapshot> snapshot = connection->GetSnapshot(request);
  if (!snapshot) return Fail(context, snapshot.error(), kNoDaemon);
  source.Choose(*snapshot);

  const Target target = ChooseTarget(*snapshot, view);
  if (target.site == nullptr) {
    return Fail(context,
                {"find holders", "no living process has such a site", "see `tidemark sites`"},
                kRefused);
  }
  v1::ListHoldersRequest holders;
  holders.set_pid(target.process->pid());
  holders.set_site_id(target.site->id());
  const Result<v1::ListHoldersResponse> blocks = connection->ListHolders(holders);
  if (!blocks) {
    return Fail(context, blocks.error(), connection->refused() ? kRefused : kNoDaemon);
  }
  if (source.json) {
    context.out << JsonText({{"pid", target.process->pid()},
                             {"rank", target.process->identity().rank()},
                             {"site", ToJson(*target.site)},
                             {"holders", ToJson(*blocks)},
                             {"snippet", HoldersSnippet(*target.process, *target.site, *blocks)}});
  } else {
    context.out << HoldersSnippet(*target.process, *target.site, *blocks);
  }
  return kOk;
}

}  // namespace tidemark::client
