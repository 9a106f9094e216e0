#include "daemon/source/procfs/process_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/unique_fd.h"

namespace tidemark::procfs {
namespace {

template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// Calls `each(key, rest)` for every "Key:  rest" line.
template <typename Each>
void ForEachField(std::string_view text, Each each) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos) each(line.substr(0, colon), line.substr(colon + 1));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

void SetKib(std::string_view rest, int64_t* bytes) {
  if (const auto kib = ParseNumber<int64_t>(rest)) *bytes = *kib * 1024;
}

}  // namespace

std::optional<std::string> ReadFile(const std::filesystem::path& path, size_t limit) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return std::nullopt;
  std::string text;
  size_t have = 0;
  while (have < limit) {
    text.resize(std::min(limit, have + 4096));
    const ssize_t n = ::read(fd.get(), text.data() + have, text.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  text.resize(have);
  return text;
}

std::optional<std::string> ReadLine(const std::filesystem::path& path) {
  std::optional<std::string> text = ReadFile(path, 4096);
  if (text) text->resize(std::min(text->find('\n'), text->size()));
  return text;
}

std::optional<Stat> ReadStat(const ProcRoot& root, pid_t pid) {
  const std::optional<std::string> text = ReadFile(root.Proc(pid) / "stat", 4096);
  if (!text) return std::nullopt;
  // comm may hold spaces and parentheses: it ends at the last one.
  const size_t open = text->find('(');
  const size_t close = text->rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  Stat stat;
  stat.comm = text->substr(open + 1, close - open - 1);
  std::string_view rest = std::string_view(*text).substr(close + 1);
  int field = 3;  // proc(5) counts from one; pid and comm are gone
  uint64_t user = 0;
  while (!rest.empty()) {
    const size_t begin = rest.find_first_not_of(" \n");
    if (begin == std::string_view::npos) break;
    rest.remove_prefix(begin);
    const std::string_view word = rest.substr(0, rest.find_first_of(" \n"));
    switch (field) {
      case 3:
        stat.state = word.front();
        break;
      case 4:
        stat.parent = ParseNumber<pid_t>(word).value_or(0);
        break;
      case 6:
        stat.session = ParseNumber<pid_t>(word).value_or(0);
        break;
      case 14:
        user = ParseNumber<uint64_t>(word).value_or(0);
        break;
      case 15:
        stat.cpu_ticks = user + ParseNumber<uint64_t>(word).value_or(0);
        break;
      case 22: {
        const auto start = ParseNumber<uint64_t>(word);
        if (!start) return std::nullopt;
        stat.start_time_ticks = *start;
        break;
      }
      case 52:
        if (stat.state == 'Z' || stat.state == 'X') stat.exit_status = ParseNumber<int>(word);
        break;
    }
    ++field;
    rest.remove_prefix(word.size());
  }
  if (field <= 22) return std::nullopt;
  return stat;
}

std::optional<Status> ReadStatus(const ProcRoot& root, pid_t pid) {
  const std::optional<std::string> text = ReadFile(root.Proc(pid) / "status", 16384);
  if (!text) return std::nullopt;
  Status status;
  ForEachField(*text, [&](std::string_view key, std::string_view rest) {
    if (key == "Uid") {
      // "real effective saved filesystem"
      const size_t real = rest.find_first_not_of(" \t");
      const size_t gap = rest.find_first_of(" \t", real);
      if (gap == std::string_view::npos) return;
      status.uid = ParseNumber<uid_t>(rest.substr(gap)).value_or(0);
    } else if (key == "NSpid") {
      while (true) {
        const size_t begin = rest.find_first_not_of(" \t");
        if (begin == std::string_view::npos) break;
        rest.remove_prefix(begin);
        if (const auto number = ParseNumber<pid_t>(rest)) status.namespace_pids.push_back(*number);
        const size_t end = rest.find_first_of(" \t");
        if (end == std::string_view::npos) break;
        rest.remove_prefix(end);
      }
    } else if (key == "VmHWM") {
      SetKib(rest, &status.vm_hwm_bytes);
    } else if (key == "VmRSS") {
      SetKib(rest, &status.vm_rss_bytes);
    } else if (key == "RssAnon") {
      SetKib(rest, &status.rss_anon_bytes);
    } else if (key == "RssFile") {
      SetKib(rest, &status.rss_file_bytes);
    } else if (key == "RssShmem") {
      SetKib(rest, &status.rss_shmem_bytes);
    } else if (key == "VmSwap") {
      SetKib(rest, &status.vm_swap_bytes);
    } else if (key == "VmLck") {
      SetKib(rest, &status.vm_locked_bytes);
    } else if (key == "VmPin") {
      SetKib(rest, &status.vm_pinned_bytes);
    }
  });
  return status;
}

std::optional<SmapsRollup> ReadSmapsRollup(const ProcRoot& root, pid_t pid) {
  const std::optional<std::string> text = ReadFile(root.Proc(pid) / "smaps_rollup", 16384);
  if (!text || text->empty()) return std::nullopt;
  SmapsRollup rollup;
  ForEachField(*text, [&](std::string_view key, std::string_view rest) {
    if (key == "Private_Dirty") SetKib(rest, &rollup.private_dirty_bytes);
    if (key == "LazyFree") SetKib(rest, &rollup.lazy_free_bytes);
    if (key == "Pss") SetKib(rest, &rollup.pss_bytes);
    if (key == "Locked") SetKib(rest, &rollup.locked_bytes);
  });
  return rollup;
}

std::map<std::string, std::string, std::less<>> ReadEnvironment(
    const ProcRoot& root, pid_t pid, std::span<const std::string_view> allowed) {
  std::map<std::string, std::string, std::less<>> found;
  const std::optional<std::string> text = ReadFile(root.Proc(pid) / "environ", 4u << 20);
  if (!text) return found;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    const size_t equals = entry.find('=');
    if (equals != std::string_view::npos) {
      const std::string_view name = entry.substr(0, equals);
      if (std::find(allowed.begin(), allowed.end(), name) != allowed.end()) {
        found.emplace(name, entry.substr(equals + 1));
      }
    }
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
  }
  return found;
}

std::vector<std::pair<std::string, std::string>> ReadCgroups(const ProcRoot& root, pid_t pid) {
  std::vector<std::pair<std::string, std::string>> groups;
  const std::optional<std::string> text = ReadFile(root.Proc(pid) / "cgroup", 65536);
  if (!text) return groups;
  // "hierarchy:controllers:path"; a path may hold colons.
  ForEachField(*text, [&](std::string_view, std::string_view rest) {
    const size_t colon = rest.find(':');
    if (colon == std::string_view::npos) return;
    groups.emplace_back(rest.substr(0, colon), rest.substr(colon + 1));
  });
  return groups;
}

bool MapsLibrary(const ProcRoot& root, pid_t pid, std::string_view name) {
  const std::optional<std::string> text = ReadFile(root.Proc(pid) / "maps", 16u << 20);
  if (!text) return false;
  const std::string needle = "/" + std::string(name);
  return text->find(needle) != std::string::npos;
}

std::vector<pid_t> ListPids(const ProcRoot& root) {
  std::vector<pid_t> pids;
  std::error_code error;
  for (std::filesystem::directory_iterator it(root.Proc(), error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (const auto pid = ParseNumber<pid_t>(name)) pids.push_back(*pid);
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

}  // namespace tidemark::procfs
