#include "client/top_view.h"

#include <algorithm>
#include <ctime>
#include <set>

#include "client/rank_view.h"
#include "client/table.h"
#include "client/terminal.h"
#include "client/units.h"
#include "client/verdict_view.h"

namespace tidemark::client {
namespace {

constexpr const char* kSortNames[] = {"rank",         "GPU bytes", "device figure", "host bytes",
                                      "pinned bytes", "step",      "growth"};

std::string ClockText(uint64_t unix_ns) {
  const auto seconds = static_cast<time_t>(unix_ns / 1'000'000'000);
  std::tm local = {};
  ::localtime_r(&seconds, &local);
  char text[16];
  std::strftime(text, sizeof(text), "%H:%M:%S", &local);
  return text;
}

int64_t Figure(const v1::Process& process) {
  int64_t bytes = -1;
  for (const v1::Waterfall& waterfall : process.waterfalls()) {
    if (waterfall.figure_known()) bytes = std::max<int64_t>(bytes, 0) + waterfall.figure_bytes();
  }
  return bytes;
}

int64_t HostBytes(const v1::Process& process) {
  return process.host().known() ? process.host().rss_bytes() : -1;
}

std::string BytesOrDash(int64_t bytes) { return bytes < 0 ? "-" : FormatBytes(bytes); }

const v1::Verdict* Worst(const v1::Process& process) {
  const v1::Verdict* worst = nullptr;
  for (const v1::Verdict& verdict : process.verdicts()) {
    if (worst == nullptr || WeightOf(verdict) < WeightOf(*worst)) worst = &verdict;
  }
  return worst;
}

std::string StateText(const v1::Process& process) {
  if (!process.observed()) return "not observed";
  if (IsDead(process)) return LivenessText(process);
  const v1::Verdict* worst = Worst(process);
  if (worst == nullptr) return "-";
  switch (WeightOf(*worst)) {
    case Weight::kLeak:
      return "LEAK " + SlopeText(*worst);
    case Weight::kSuspect:
      return "suspect " + SlopeText(*worst);
    case Weight::kNotice:
      return "notice: " + worst->cause();
    case Weight::kRetracted:
    case Weight::kExplained:
    case Weight::kSilent:
      break;
  }
  return worst->state();
}

Look LookOf(const v1::Process& process) {
  const v1::Verdict* worst = Worst(process);
  if (worst != nullptr && WeightOf(*worst) == Weight::kLeak) return Look::kLeak;
  if (worst != nullptr && WeightOf(*worst) <= Weight::kNotice) return Look::kWarning;
  return !process.observed() || IsDead(process) ? Look::kFaint : Look::kPlain;
}

const char* MomentName(At at) {
  switch (at) {
    case At::kNow:
      return "now";
    case At::kLoad:
      return "at load";
    case At::kPeak:
      return "at the peak";
    case At::kLastStep:
      return "at the last step";
  }
  return "";
}

// At most `columns` wide; UTF-8 is never cut inside a character.
std::string Fit(const std::string& text, size_t columns) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80 && ++width > columns) {
      return text.substr(0, i);
    }
  }
  return text;
}

// The table's lines with the cursor's row in view: the header stays.
void AddTable(const Table& table, const std::vector<Look>& looks, size_t cursor, size_t rows,
              std::vector<TopLine>& lines) {
  if (rows < 2) return;
  const std::string text = table.Text();
  std::vector<std::string> all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    all.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  lines.push_back({all.front(), Look::kHeader});
  const size_t room = rows - 1;
  const size_t first = cursor >= room ? cursor - room + 1 : 0;
  for (size_t i = first; i < looks.size() && i < first + room; ++i) {
    lines.push_back({all[i + 1], i == cursor ? Look::kSelected : looks[i]});
  }
}

}  // namespace

void TopView::Take(v1::Snapshot snapshot) {
  snapshot_ = std::move(snapshot);
  received_ = true;
  trouble_.clear();
  std::set<int32_t> present;
  for (const v1::Process& process : snapshot_.processes()) {
    present.insert(process.pid());
    std::deque<int64_t>& trend = trends_[process.pid()];
    trend.push_back(GpuLiveBytes(process).value_or(std::max<int64_t>(Figure(process), 0)));
    if (trend.size() > kTrend) trend.pop_front();
  }
  std::erase_if(trends_, [&](const auto& entry) { return !present.contains(entry.first); });
}

double TopView::Growth(const v1::Process& process) const {
  const auto trend = trends_.find(process.pid());
  if (trend == trends_.end()) return 0;
  return static_cast<double>(trend->second.back() - trend->second.front());
}

std::vector<const v1::Process*> TopView::Shown() const {
  std::vector<const v1::Process*> processes = ByRank(snapshot_);
  std::erase_if(processes, [&](const v1::Process* process) {
    return !job_.empty() && process->identity().training_job() != job_;
  });
  const auto value = [&](const v1::Process& process) -> double {
    switch (sort_) {
      case Sort::kRank:
        return 0;  // as they are
      case Sort::kGpu:
        return static_cast<double>(GpuLiveBytes(process).value_or(-1));
      case Sort::kFigure:
        return static_cast<double>(Figure(process));
      case Sort::kHost:
        return static_cast<double>(HostBytes(process));
      case Sort::kPinned:
        return static_cast<double>(LiveBytes(process, "pinned").value_or(-1));
      case Sort::kStep:
        return static_cast<double>(process.current_step());
      case Sort::kGrowth:
        return Growth(process);
    }
    return 0;
  };
  // The largest first: that is what one looks for.
  std::ranges::stable_sort(processes,
                           [&](const auto* a, const auto* b) { return value(*a) > value(*b); });
  if (reversed_) std::ranges::reverse(processes);
  return processes;
}

const v1::Process* TopView::Chosen() const {
  for (const v1::Process& process : snapshot_.processes()) {
    if (process.pid() == chosen_pid_) return &process;
  }
  return nullptr;
}

std::vector<SiteRow> TopView::Sites() const {
  const v1::Process* process = Chosen();
  return process == nullptr ? std::vector<SiteRow>() : FoldSites({process}, at_);
}

size_t& TopView::Cursor() {
  switch (page_) {
    case Page::kProcesses:
      return process_cursor_;
    case Page::kSites:
      return site_cursor_;
    case Page::kFrames:
      break;
  }
  return frame_cursor_;
}

size_t TopView::Count() const {
  switch (page_) {
    case Page::kProcesses:
      return Shown().size();
    case Page::kSites:
      return Sites().size();
    case Page::kFrames:
      break;
  }
  const v1::Process* process = Chosen();
  const v1::Site* site = process == nullptr ? nullptr : FindSite(*process, chosen_site_);
  return site == nullptr ? 0 : static_cast<size_t>(site->frames_size());
}

void TopView::Press(TopKey key) {
  constexpr size_t kPage = 10;
  size_t& cursor = Cursor();
  const size_t count = Count();
  const auto move = [&](size_t to) { cursor = count == 0 ? 0 : std::min(to, count - 1); };
  switch (key) {
    case TopKey::kUp:
      return move(cursor > 0 ? cursor - 1 : 0);
    case TopKey::kDown:
      return move(cursor + 1);
    case TopKey::kPageUp:
      return move(cursor > kPage ? cursor - kPage : 0);
    case TopKey::kPageDown:
      return move(cursor + kPage);
    case TopKey::kEnter:
      if (cursor >= count) return;
      if (page_ == Page::kProcesses) {
        chosen_pid_ = Shown()[cursor]->pid();
        site_cursor_ = 0;
        page_ = Page::kSites;
      } else if (page_ == Page::kSites) {
        chosen_site_ = Sites()[cursor].site->id();
        frame_cursor_ = 0;
        page_ = Page::kFrames;
      }
      return;
    case TopKey::kBack:
      page_ = page_ == Page::kFrames ? Page::kSites : Page::kProcesses;
      return;
    case TopKey::kSort:
      sort_ = static_cast<Sort>((static_cast<int>(sort_) + 1) % kSorts);
      return;
    case TopKey::kReverse:
      reversed_ = !reversed_;
      return;
    case TopKey::kJob: {
      std::set<std::string> jobs = {""};
      for (const v1::Process& process : snapshot_.processes()) {
        jobs.insert(process.identity().training_job());
      }
      const auto next = jobs.upper_bound(job_);
      job_ = next == jobs.end() ? "" : *next;
      process_cursor_ = 0;
      return;
    }
    case TopKey::kMoment:
      at_ = static_cast<At>((static_cast<int>(at_) + 1) % 4);
      site_cursor_ = 0;
      return;
  }
}

std::string TopView::Trend(const v1::Process& process) const {
  constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr const char* kAscii[] = {"_", ".", ",", "-", "=", "+", "*", "#"};
  const auto trend = trends_.find(process.pid());
  if (trend == trends_.end()) return "";
  const auto [low, high] = std::ranges::minmax_element(trend->second);
  std::string text;
  for (const int64_t bytes : trend->second) {
    // Noise below a hundredth of what is held is drawn flat.
    const int64_t span = std::max<int64_t>(std::max(*high - *low, *high / 100), 1);
    const auto level = static_cast<size_t>((bytes - *low) * 7 / span);
    text += (unicode_ ? kBlocks : kAscii)[level < 7 ? level : 7];
  }
  return text;
}

void TopView::AddProcesses(std::vector<TopLine>& lines, size_t rows) const {
  const std::vector<const v1::Process*> processes = Shown();
  if (processes.empty()) {
    lines.push_back({received_ ? "No process uses a GPU or belongs to a training job."
                               : "Waiting for the first snapshot ...",
                     Look::kFaint});
    return;
  }
  Table table({{"who"},
               {"job"},
               {"step", Align::kRight},
               {"GPU live", Align::kRight},
               {"device", Align::kRight},
               {"host", Align::kRight},
               {"pinned", Align::kRight},
               {"trend"},
               {"state"}});
  std::vector<Look> looks;
  for (const v1::Process* process : processes) {
    table.Add({Printable(ProcessName(*process)), Printable(process->identity().training_job()),
               process->current_step() > 0 ? FormatCount(process->current_step()) : "-",
               BytesOrDash(GpuLiveBytes(*process).value_or(-1)), BytesOrDash(Figure(*process)),
               BytesOrDash(HostBytes(*process)),
               BytesOrDash(LiveBytes(*process, "pinned").value_or(-1)), Trend(*process),
               Printable(StateText(*process))});
    looks.push_back(LookOf(*process));
  }
  AddTable(table, looks, std::min(process_cursor_, processes.size() - 1), rows, lines);
}

void TopView::AddSites(std::vector<TopLine>& lines, size_t rows) const {
  const v1::Process* process = Chosen();
  const std::vector<SiteRow> sites = Sites();
  lines.push_back({process == nullptr
                       ? "This process is gone."
                       : Printable(ProcessName(*process)) + ": sites " + MomentName(at_),
                   Look::kTitle});
  if (sites.empty()) {
    lines.push_back({std::string("No site holds memory ") + MomentName(at_) + ".", Look::kFaint});
    return;
  }
  Table table({{"held", Align::kRight}, {"count x size"}, {"age"}, {"class"}, {"allocated at"}});
  std::vector<Look> looks;
  for (const SiteRow& row : sites) {
    table.Add({FormatBytes(row.each.bytes()), BlocksText(*row.site, row.each), AgeText(*row.site),
               Printable(row.site->memory_class()), Printable(SiteTextWithCallee(*row.site))});
    const bool blamed = std::ranges::any_of(process->verdicts(), [&](const v1::Verdict& verdict) {
      return WeightOf(verdict) == Weight::kLeak && verdict.site_id() == row.site->id();
    });
    looks.push_back(blamed ? Look::kLeak : Look::kPlain);
  }
  AddTable(table, looks, std::min(site_cursor_, sites.size() - 1), rows - 1, lines);
}

void TopView::AddFrames(std::vector<TopLine>& lines, size_t rows) const {
  const v1::Process* process = Chosen();
  const v1::Site* site = process == nullptr ? nullptr : FindSite(*process, chosen_site_);
  if (site == nullptr) {
    lines.push_back({"This site is gone.", Look::kTitle});
    return;
  }
  lines.push_back({FormatBytes(site->live().bytes()) + " now, allocated at " +
                       Printable(SiteText(*site)) + ", innermost first:",
                   Look::kTitle});
  Table table({{"frame"}, {"file"}});
  std::vector<Look> looks;
  for (int i = 0; i < site->frames_size(); ++i) {
    table.Add({Printable(FrameText(site->frames(i))), Printable(site->frames(i).file())});
    looks.push_back(i == site->blamed_frame() ? Look::kWarning : Look::kPlain);
  }
  if (looks.empty()) return;
  AddTable(table, looks, std::min(frame_cursor_, looks.size() - 1), rows - 1, lines);
}

std::vector<TopLine> TopView::Lines(size_t rows, size_t columns) const {
  std::vector<TopLine> lines;
  std::string devices;
  for (const v1::Device& device : snapshot_.devices()) {
    devices += "  GPU" + std::to_string(device.index()) + " " +
               FormatShare(static_cast<double>(device.used_bytes()) /
                           static_cast<double>(std::max<int64_t>(device.total_bytes(), 1)));
  }
  lines.push_back({"tidemark top  " + (received_ ? ClockText(snapshot_.unix_ns()) : "") + "  " +
                       Printable(snapshot_.node()) + devices,
                   Look::kTitle});
  if (!trouble_.empty()) lines.push_back({Printable(trouble_), Look::kWarning});
  lines.push_back({});
  const size_t room = rows > lines.size() + 1 ? rows - lines.size() - 1 : 0;  // one for the keys
  std::string keys;
  if (room >= 3) {
    switch (page_) {
      case Page::kProcesses:
        AddProcesses(lines, room);
        keys = std::string("Enter sites  s sort: ") + kSortNames[static_cast<int>(sort_)] +
               (reversed_ ? ", reversed" : "") +
               "  r reverse  f job: " + (job_.empty() ? "every" : Printable(job_)) + "  q quit";
        break;
      case Page::kSites:
        AddSites(lines, room);
        keys = std::string("Enter frames  a moment: ") + MomentName(at_) + "  Esc back  q quit";
        break;
      case Page::kFrames:
        AddFrames(lines, room);
        keys = "Esc back  q quit";
        break;
    }
  }
  while (lines.size() + 1 < rows) lines.push_back({});
  lines.push_back({keys, Look::kFaint});
  lines.resize(std::min(lines.size(), rows));
  for (TopLine& line : lines) line.text = Fit(line.text, columns);
  return lines;
}

}  // namespace tidemark::client
