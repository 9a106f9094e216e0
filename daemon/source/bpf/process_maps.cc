#include "daemon/source/bpf/process_maps.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace tidemark {
namespace {

// Takes a number off the front of `text`, and the character behind it, which must be `end`.
bool TakeNumber(std::string_view* text, int base, char end, uint64_t* value) {
  const char* last = text->data() + text->size();
  auto [rest, error] = std::from_chars(text->data(), last, *value, base);
  if (error != std::errc() || rest == last || *rest != end) return false;
  text->remove_prefix(static_cast<size_t>(rest - text->data()) + 1);
  return true;
}

Result<std::string> ReadWhole(const std::filesystem::path& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Error{"open " + path.string(), strerror(errno), ""};
  std::string text;
  char buffer[16384];
  while (true) {
    ssize_t got = read(fd.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error{"read " + path.string(), strerror(errno), ""};
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace

bool ParseMapping(std::string_view line, Mapping* mapping) {
  uint64_t start, end, offset, major, minor, inode;
  if (!TakeNumber(&line, 16, '-', &start) || !TakeNumber(&line, 16, ' ', &end)) return false;
  if (line.size() < 5 || line[4] != ' ' || end <= start) return false;
  const bool executable = line[2] == 'x';
  line.remove_prefix(5);
  if (!TakeNumber(&line, 16, ' ', &offset) || !TakeNumber(&line, 16, ':', &major) ||
      !TakeNumber(&line, 16, ' ', &minor)) {
    return false;
  }
  const char* last = line.data() + line.size();
  auto [rest, error] = std::from_chars(line.data(), last, inode, 10);
  if (error != std::errc()) return false;
  line.remove_prefix(static_cast<size_t>(rest - line.data()));
  const size_t path = line.find_first_not_of(' ');

  mapping->start = start;
  mapping->end = end;
  mapping->file_offset = offset;
  mapping->executable = executable;
  mapping->file = {makedev(major, minor), inode};
  mapping->path = path == std::string_view::npos ? "" : std::string(line.substr(path));
  return true;
}

Result<std::vector<Mapping>> ReadMappings(const ProcRoot& root, pid_t pid) {
  Result<std::string> text = ReadWhole(root.Proc(pid) / "maps");
  if (!text) return text.error();
  std::vector<Mapping> mappings;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const size_t length = std::min(rest.find('\n'), rest.size());
    Mapping mapping;
    if (ParseMapping(rest.substr(0, length), &mapping)) mappings.push_back(std::move(mapping));
    rest.remove_prefix(std::min(length + 1, rest.size()));
  }
  return mappings;
}

Result<UniqueFd> OpenMapped(const ProcRoot& root, pid_t pid, const Mapping& mapping) {
  char range[40];
  snprintf(range, sizeof(range), "%" PRIx64 "-%" PRIx64, mapping.start, mapping.end);
  const std::filesystem::path direct = root.Proc(pid) / "map_files" / range;
  UniqueFd fd(open(direct.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.valid()) return fd;
  const int direct_error = errno;

  const std::string named = (root.Proc(pid) / "root").string() + mapping.path;
  fd.Reset(open(named.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status;
  if (!fd.valid()) {
    return Error{"open " + named, strerror(errno),
                 direct_error == EPERM ? "grant CAP_CHECKPOINT_RESTORE and CAP_SYS_PTRACE" : ""};
  }
  // The device is not compared: overlayfs shows another one to stat than to maps.
  if (fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_ino != mapping.file.inode) {
    return Error{"open " + named, "the file was replaced since the process mapped it",
                 direct_error == EPERM ? "grant CAP_CHECKPOINT_RESTORE" : ""};
  }
  return fd;
}

Result<uint64_t> ReadStartTimeTicks(const ProcRoot& root, pid_t pid) {
  const std::filesystem::path path = root.Proc(pid) / "stat";
  Result<std::string> text = ReadWhole(path);
  if (!text) return text.error();
  // The command, field 2, may hold spaces and parentheses: count from its last parenthesis.
  size_t at = text->rfind(')');
  for (int field = 2; at != std::string::npos && field < 22; ++field) at = text->find(' ', at + 1);
  uint64_t ticks = 0;
  if (at == std::string::npos ||
      std::from_chars(text->data() + at + 1, text->data() + text->size(), ticks).ec !=
          std::errc()) {
    return Error{"read " + path.string(), "not in the form of stat", ""};
  }
  return ticks;
}

}  // namespace tidemark
