// What a kept region (daemon/store/region_store.h) says of a process that ended, for a daemon that
// was not there to say it: the last one was killed between keeping the region and writing the
// post-mortem.
#pragma once

#include <filesystem>
#include <vector>

#include "daemon/snapshot/node_snapshot.h"

namespace tidemark {

// A snapshot a region in `directory`, holding the one process as it was last. Its uid is the one in
// the file's name (PID-START-UID.region); how it ended is unknown, unless its agent said good-bye.
// Files that do not hold a valid region are left out: they came from the job.
std::vector<NodeSnapshot> RevivedRegions(const std::filesystem::path& directory);

}  // namespace tidemark
