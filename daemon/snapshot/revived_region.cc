#include "daemon/snapshot/revived_region.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "daemon/identity/launcher.h"
#include "daemon/ledger/agent_variables.h"
#include "daemon/ledger/process_ledger.h"
#include "daemon/source/agent/region_reader.h"

namespace tidemark {
namespace {

constexpr int kMostRefreshes = 64;  // pools are read in parts

std::unique_ptr<RegionReader> OpenFile(const std::filesystem::path& path, RegionChanges* changes) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return nullptr;
  auto file = std::make_unique<FdRegionFile>(std::move(fd));
  wire::Header header = {};
  if (file->ReadAt(0, &header, sizeof(header)) != sizeof(header)) return nullptr;
  wire::Hello hello = {};
  hello.abi = header.abi;
  hello.region_bytes = header.region_bytes;
  hello.agent_id = header.agent_id;
  wire::ReplyCode refusal = wire::ReplyCode::kAccepted;
  std::string why;
  std::unique_ptr<RegionReader> region = RegionReader::Open(std::move(file), hello, &refusal, &why);
  if (region == nullptr) return nullptr;
  for (int i = 0; i < kMostRefreshes; ++i) {
    RegionChanges part;
    if (!region->Refresh(&part)) return nullptr;
    const bool more = part.pools_grew || !part.sites.empty();
    changes->sites.insert(changes->sites.end(), part.sites.begin(), part.sites.end());
    changes->steps.insert(changes->steps.end(), part.steps.begin(), part.steps.end());
    changes->events.insert(changes->events.end(), part.events.begin(), part.events.end());
    if (!more) break;
  }
  return region;
}

void Identify(const RegionCopy& region, Identity* identity) {
  const Variables variables = VariablesOf(region);
  const Launch launch = IdentifyLaunch(variables);
  identity->launcher = launch.launcher;
  identity->rank = launch.rank;
  identity->local_rank = launch.local_rank;
  identity->world_size = launch.world_size;
  identity->local_world_size = launch.local_world_size;
  identity->attempt = launch.attempt;
  const JobName job = NameJob(variables, "", "", "");
  identity->training_job = job.name;
  identity->job_source = job.source;
}

}  // namespace

std::vector<NodeSnapshot> RevivedRegions(const std::filesystem::path& directory) {
  std::vector<NodeSnapshot> revived;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    const std::filesystem::path& path = it->path();
    int pid = 0;
    unsigned long long start = 0;
    unsigned uid = 0;
    struct stat status = {};
    if (path.extension() != ".region" ||
        std::sscanf(path.stem().c_str(), "%d-%llu-%u", &pid, &start, &uid) != 3 ||
        ::stat(path.c_str(), &status) != 0) {
      continue;
    }
    RegionChanges changes;
    const std::unique_ptr<RegionReader> region = OpenFile(path, &changes);
    if (region == nullptr) continue;
    const RegionCopy& copy = region->copy();
    ProcessLedger ledger(pid, nullptr);
    ledger.Update(copy, changes, DeviceMap(), true);
    ProcessSnapshot process;
    process.key = {"", pid, start};
    Identify(copy, &process.identity);
    process.identity.uid = uid;
    ledger.Fill(copy, &process);
    process.observed = true;
    process.liveness = Liveness::kExited;
    const bool said_good_bye =
        copy.header.state == static_cast<uint32_t>(wire::AgentState::kExited);
    process.exit_reason =
        said_good_bye ? "exited" : "ended; the daemon ended before it could say how";
    process.last_update_unix_ns = static_cast<uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000ull;
    NodeSnapshot snapshot;
    snapshot.unix_ns = process.last_update_unix_ns;
    snapshot.processes.push_back(std::move(process));
    revived.push_back(std::move(snapshot));
  }
  return revived;
}

}  // namespace tidemark
