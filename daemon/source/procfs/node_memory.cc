#include "daemon/source/procfs/node_memory.h"

#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "daemon/source/procfs/process_files.h"

namespace tidemark::procfs {
namespace {

// v1 says "no limit" by a number near 2^63, v2 by "max".
constexpr int64_t kNoLimitFrom = int64_t{1} << 60;

std::optional<int64_t> ReadBytes(const std::filesystem::path& path) {
  const std::optional<std::string> line = ReadLine(path);
  if (!line) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  return value;
}

bool ListsMemory(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == "memory") return true;
    if (comma == std::string_view::npos) break;
    controllers.remove_prefix(comma + 1);
  }
  return false;
}

CgroupMemory ReadOne(const std::filesystem::path& mount, std::string path, const char* usage_file,
                     const char* limit_file) {
  CgroupMemory memory;
  std::error_code error;
  // Inside a cgroup namespace the path may name what is not mounted here: the mount's root is then
  // the process's own group or one above it.
  if (path.find("/..") != std::string::npos ||
      !std::filesystem::exists(mount / path.substr(1), error)) {
    path = "/";
  }
  memory.current_bytes = ReadBytes(mount / path.substr(1) / usage_file).value_or(-1);
  while (true) {
    const std::optional<int64_t> limit = ReadBytes(mount / path.substr(1) / limit_file);
    if (limit && *limit < kNoLimitFrom && (memory.limit_bytes < 0 || *limit < memory.limit_bytes)) {
      memory.limit_bytes = *limit;
    }
    if (path == "/") return memory;
    path.resize(path.rfind('/'));
    if (path.empty()) path = "/";
  }
}

}  // namespace

NodeMemory ReadNodeMemory(const ProcRoot& root) {
  NodeMemory memory;
  const std::optional<std::string> text = ReadFile(root.Proc() / "meminfo", 65536);
  if (!text) return memory;
  std::map<std::string_view, int64_t> fields;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const size_t digit = line.find_first_of("0123456789", colon);
    if (digit == std::string_view::npos) continue;
    int64_t kib = 0;
    std::from_chars(line.data() + digit, line.data() + line.size(), kib);
    fields[line.substr(0, colon)] = kib * 1024;
  }
  memory.total_bytes = fields["MemTotal"];
  memory.available_bytes = fields["MemAvailable"];
  memory.free_bytes = fields["MemFree"];
  // Cached holds shmem as well, which nothing can drop.
  memory.page_cache_bytes = fields["Cached"] + fields["Buffers"] - fields["Shmem"];
  memory.kernel_bytes = fields["Slab"] + fields["KernelStack"] + fields["PageTables"] +
                        fields["SecPageTables"] + fields["Percpu"];
  memory.shmem_bytes = fields["Shmem"];
  return memory;
}

CgroupMemory ReadCgroupMemory(const ProcRoot& root,
                              const std::vector<std::pair<std::string, std::string>>& cgroups) {
  const std::filesystem::path mount = root.Sys() / "fs" / "cgroup";
  std::error_code error;
  for (const auto& [controllers, path] : cgroups) {
    if (path.empty() || path.front() != '/') continue;
    if (ListsMemory(controllers)) {
      return ReadOne(mount / "memory", path, "memory.usage_in_bytes", "memory.limit_in_bytes");
    }
  }
  for (const auto& [controllers, path] : cgroups) {
    if (!controllers.empty() || path.empty() || path.front() != '/') continue;
    const std::filesystem::path unified =
        std::filesystem::exists(mount / "unified", error) ? mount / "unified" : mount;
    return ReadOne(unified, path, "memory.current", "memory.max");
  }
  return {};
}

}  // namespace tidemark::procfs
