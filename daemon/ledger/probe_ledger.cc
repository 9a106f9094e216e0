#include "daemon/ledger/probe_ledger.h"

#include <algorithm>
#include <cstdio>

#include "daemon/ledger/blame.h"
#include "daemon/ledger/site_names.h"

namespace tidemark {
namespace {

std::string_view BaseName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

FeatureView StateOf(const BpfProcess& probes) {
  const char* mode =
      probes.mode == BpfMode::kLedger ? "counting every CUDA call" : "second witness";
  switch (probes.state) {
    case BpfAttachState::kOff:
      return {"bpf_cuda", "off", probes.reason};
    case BpfAttachState::kWaiting:
      return {"bpf_cuda", "off", "waiting for libcuda"};
    case BpfAttachState::kAttached:
      return {"bpf_cuda", "on", probes.reason.empty() ? mode : mode + (": " + probes.reason)};
    case BpfAttachState::kFailed:
      return {"bpf_cuda", "unavailable", probes.reason};
    case BpfAttachState::kExited:
      return {"bpf_cuda", "off", "the process ended"};
  }
  return {"bpf_cuda", "off", ""};
}

// Moments that are kept; of the older half, every second one goes when there are more.
constexpr size_t kMostMoments = 64;
constexpr double kShareToBlame = 0.5;

}  // namespace

std::shared_ptr<const SiteInfo> ProbeLedger::NameOf(const std::shared_ptr<const BpfStack>& stack) {
  Name& name = names_[stack.get()];
  if (!name.pending) return name.info;
  name.stack = stack;
  name.pending = false;
  auto info = std::make_shared<SiteInfo>();
  info->truncated = stack->partial;
  std::vector<std::string> modules;
  for (const BpfFrame& frame : stack->frames) {
    FrameView view;
    if (frame.python) {
      view.kind = wire::FrameKind::kPython;
      view.function = frame.function;
      view.file = frame.file;
      view.line = frame.line > 0 ? static_cast<uint32_t>(frame.line) : 0;
    } else {
      view.kind = wire::FrameKind::kNative;
      view.file = frame.module;
      char place[32];
      std::snprintf(place, sizeof(place), "+0x%llx",
                    static_cast<unsigned long long>(frame.offset));  // NOLINT: for %llx
      view.function = (frame.module.empty() ? "?" : std::string(BaseName(frame.module))) + place;
      if (!frame.module.empty() && symbolizer_ != nullptr) {
        // A return address may lie behind the end of the caller.
        const std::shared_ptr<const Symbol> symbol =
            symbolizer_->Find(pid_, frame.module, frame.build_id, frame.offset - 1);
        if (symbol == nullptr) {
          name.pending = true;
        } else if (!symbol->function.empty()) {
          view.function = symbol->function;
          if (symbol->line > 0) {
            view.file = symbol->file;
            view.line = symbol->line;
          }
        }
      }
    }
    info->frames.push_back(std::move(view));
    modules.push_back(frame.module);
  }
  info->id = SiteIdOf(info->frames);
  info->blamed_frame = BlamedFrame(info->frames, modules);
  info->own_account = OwnAccount(info->frames, modules);
  name.info = std::move(info);
  return name.info;
}

void ProbeLedger::Update(const BpfProcess& probes, const DeviceMap& devices, int only_device) {
  auto device_of = [&](MemoryClass memory_class, int ordinal) {
    if (!OnDevice(memory_class)) return -1;
    return ordinal < 0 ? only_device : devices.ToNode(ordinal);
  };
  state_ = StateOf(probes);
  totals_.clear();
  for (const BpfTotal& row : probes.totals) {
    ClassTotal total;
    total.memory_class = row.memory_class;
    total.device = device_of(row.memory_class, row.device);
    total.witness = Witness::kBpf;
    total.live_bytes = static_cast<int64_t>(row.live_bytes);
    total.peak_bytes = static_cast<int64_t>(row.peak_bytes);
    total.allocated_bytes = row.allocated_bytes;
    total.freed_bytes = row.freed_bytes;
    total.allocations = row.allocated_count;
    total.frees = row.freed_count;
    totals_.push_back(total);
  }
  entry_points_.clear();
  for (const BpfEntryPoint& row : probes.entry_points) {
    entry_points_.push_back({std::string(wire::ToString(row.entry_point)), Witness::kBpf, row.calls,
                             row.failed_calls, row.requested_bytes});
  }
  losses_.clear();
  for (const BpfLoss& loss : probes.losses) {
    losses_.push_back({"bpf_" + std::string(loss.cause), loss.count, 0});
  }
  if (probes.before_attach_frees > 0) {
    losses_.push_back({"bpf_freed_from_before_attach", probes.before_attach_frees, 0});
  }
  auto sites = std::make_shared<SiteList>();
  for (const BpfSite& row : probes.sites) {
    auto site = std::make_shared<SiteView>();
    site->info = NameOf(row.stack);
    site->memory_class = row.memory_class;
    site->device = device_of(row.memory_class, -1);
    site->witness = Witness::kBpf;
    site->live = {static_cast<int64_t>(row.live_bytes), static_cast<int64_t>(row.live_count)};
    site->allocated_bytes = row.allocated_bytes;
    site->freed_bytes = row.allocated_bytes - row.live_bytes;
    site->allocated_count = row.allocated_count;
    site->min_block_bytes = row.min_block_bytes;
    site->max_block_bytes = row.max_block_bytes;
    sites->push_back(std::move(site));
  }
  sites_ = std::move(sites);
}

ProbeLedger::Moment ProbeLedger::Now(int64_t monotonic_ns) const {
  Moment moment;
  moment.monotonic_ns = monotonic_ns;
  for (const auto& site : *sites_) {
    moment.live[{site->memory_class, site->info->id}] += site->live.bytes;
  }
  return moment;
}

void ProbeLedger::KeepGrowth(int64_t monotonic_ns) {
  if (!moments_.empty() && monotonic_ns - moments_.back().monotonic_ns < moment_spacing_ns_) return;
  if (moments_.size() >= kMostMoments) {
    for (size_t i = 1; i < kMostMoments / 2; ++i) moments_[i] = std::move(moments_[2 * i]);
    moments_.resize(kMostMoments / 2);
    moment_spacing_ns_ *= 2;
  }
  moments_.push_back(Now(monotonic_ns));
}

void ProbeLedger::Blame(int64_t monotonic_ns, detect::Verdict* verdict) const {
  using detect::VerdictState;
  const bool grows =
      verdict->state == VerdictState::kSuspect || verdict->state == VerdictState::kConfirmed;
  if (!grows || verdict->site || verdict->slope.per_unit <= 0 || moments_.empty()) return;
  // The last moment before the growth began, or the first there is.
  const Moment* then = &moments_.front();
  for (const Moment& moment : moments_) {
    if (moment.monotonic_ns <= verdict->since_ns) then = &moment;
  }
  const Moment now = Now(monotonic_ns);
  detect::SiteBlame worst;
  int64_t grown_in_all = 0;
  for (const auto& [key, live] : now.live) {
    if (key.first != verdict->memory_class) continue;
    const auto before = then->live.find(key);
    const int64_t grown = live - (before == then->live.end() ? 0 : before->second);
    grown_in_all += grown;
    if (grown <= worst.retained_bytes) continue;
    worst.site_id = key.second;
    worst.retained_bytes = grown;
  }
  if (worst.retained_bytes <= 0 || grown_in_all <= 0) return;
  worst.share_of_slope =
      std::min(1.0, static_cast<double>(worst.retained_bytes) / static_cast<double>(grown_in_all));
  if (worst.share_of_slope < kShareToBlame) return;
  worst.bytes_per_unit = worst.share_of_slope * verdict->slope.per_unit;
  verdict->site = worst;
  verdict->evidence.push_back("one call site, seen by eBPF, holds " +
                              std::to_string(worst.retained_bytes) + " of the " +
                              std::to_string(grown_in_all) + " bytes by which all sites grew");
}

}  // namespace tidemark
