#include "client/site_view.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "client/terminal.h"
#include "client/units.h"

namespace tidemark::client {
namespace {

std::string BaseName(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

const v1::Frame* BlamedFrame(const v1::Site& site) {
  const int blamed = site.blamed_frame();
  if (blamed < 0 || blamed >= site.frames_size()) return nullptr;
  return &site.frames(blamed);
}

}  // namespace

std::string FrameText(const v1::Frame& frame) {
  const std::string file = Printable(BaseName(frame.file()));
  const std::string function = Printable(frame.function());
  if (frame.kind() == "python") {
    return file + (frame.line() > 0 ? ":" + std::to_string(frame.line()) : "") + " " + function;
  }
  if (function.empty()) return file;
  if (file.empty() || function.rfind(file + "+", 0) == 0) return function;
  return function + " (" + file + ")";
}

std::string SiteText(const v1::Site& site) {
  const v1::Frame* frame = BlamedFrame(site);
  return frame == nullptr ? "(no stack)" : FrameText(*frame);
}

std::string SiteTextWithCallee(const v1::Site& site) {
  const std::string text = SiteText(site);
  if (BlamedFrame(site) == nullptr || site.blamed_frame() == 0) return text;
  return text + ", through " + FrameText(site.frames(site.blamed_frame() - 1));
}

bool AnyFrameContains(const v1::Site& site, const std::string& text) {
  return std::any_of(site.frames().begin(), site.frames().end(), [&](const v1::Frame& frame) {
    return frame.function().find(text) != std::string::npos ||
           (frame.file() + ":" + std::to_string(frame.line())).find(text) != std::string::npos;
  });
}

std::optional<At> AtFromText(const std::string& text) {
  if (text == "now" || text == "exit") return At::kNow;
  if (text == "load") return At::kLoad;
  if (text == "peak") return At::kPeak;
  if (text == "last-step") return At::kLastStep;
  return std::nullopt;
}

v1::BytesAndCount BytesAt(const v1::Site& site, At at) {
  switch (at) {
    case At::kNow:
      return site.live();
    case At::kLoad:
      return site.at_load();
    case At::kPeak:
      return site.at_peak();
    case At::kLastStep:
      return site.at_last_step();
  }
  return {};
}

std::vector<SiteRow> FoldSites(const std::vector<const v1::Process*>& processes, At at) {
  using Key = std::tuple<uint64_t, std::string, std::string, int64_t, int64_t>;
  std::map<Key, SiteRow> rows;
  for (const v1::Process* process : processes) {
    for (const v1::Site& site : process->sites()) {
      const v1::BytesAndCount held = BytesAt(site, at);
      if (held.bytes() == 0 && held.count() == 0) continue;
      SiteRow& row =
          rows[Key(site.id(), site.memory_class(), site.witness(), held.bytes(), held.count())];
      if (row.site == nullptr) row.site = &site;
      row.each = held;
      // A rank with several devices may hold the same site on each.
      if (row.processes.empty() || row.processes.back() != process)
        row.processes.push_back(process);
    }
  }
  std::vector<SiteRow> sorted;
  for (auto& [key, row] : rows) sorted.push_back(std::move(row));
  std::stable_sort(sorted.begin(), sorted.end(), [](const SiteRow& a, const SiteRow& b) {
    return a.each.bytes() > b.each.bytes();
  });
  return sorted;
}

bool IsFrameworkClass(const std::string& memory_class) {
  return memory_class == "fw_live" || memory_class == "fw_host";
}

std::string BlocksText(const v1::Site& site, const v1::BytesAndCount& held) {
  const std::string text =
      FormatBlocks(held.count(), site.min_block_bytes(), site.max_block_bytes());
  return site.estimated() ? "about " + text : text;
}

std::string AgeText(const v1::Site& site) {
  if (site.first_step() == 0 && site.last_step() == 0) return "load";
  int oldest = -1;
  int youngest = -1;
  for (int c = 0; c < site.cohort_bytes_size(); ++c) {
    if (site.cohort_bytes(c) <= 0) continue;
    if (oldest < 0) oldest = c;
    youngest = c;
  }
  if (oldest < 0) return "";
  const uint32_t shift = std::min<uint32_t>(site.cohort_shift(), 48);
  const uint64_t first = std::max(static_cast<uint64_t>(oldest) << shift, site.first_step());
  const uint64_t last =
      std::min(((static_cast<uint64_t>(youngest) + 1) << shift) - 1, site.last_step());
  if (first >= last) return "step " + FormatCount(first);
  return "steps " + FormatCount(first) + "-" + FormatCount(last);
}

bool GrowsByAge(const v1::Site& site, uint64_t steps) {
  const uint32_t shift = std::min<uint32_t>(site.cohort_shift(), 48);
  const int cohorts = std::min<int>(site.cohort_bytes_size(), static_cast<int>(steps >> shift) + 1);
  if (cohorts < 4) return false;
  // The first cohort holds what loading made; the rest is alive nearly everywhere only where every
  // generation leaves something behind.
  int alive = 0;
  for (int c = 1; c < cohorts; ++c) alive += site.cohort_bytes(c) > 0 ? 1 : 0;
  return alive * 4 >= (cohorts - 1) * 3;
}

const v1::Site* FindSite(const v1::Process& process, uint64_t id, const std::string& memory_class) {
  const v1::Site* found = nullptr;
  for (const v1::Site& site : process.sites()) {
    if (site.id() != id) continue;
    if (!memory_class.empty() && site.memory_class() == memory_class) return &site;
    if (found == nullptr) found = &site;
  }
  return found;
}

}  // namespace tidemark::client
