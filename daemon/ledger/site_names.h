// From a site's rows in a region to names for people: SiteInfo.
#pragma once

#include <sys/types.h>

#include <memory>

#include "daemon/snapshot/node_snapshot.h"
#include "daemon/source/agent/region_reader.h"
#include "daemon/source/agent/symbolizer.h"

namespace tidemark {

// The id of a stack: the same for the same names, on every rank and node, whatever the addresses.
uint64_t SiteIdOf(const std::vector<FrameView>& frames);

// Names the frames of `site`. `pending` is set when a native frame's name is still being looked up,
// or a frame has not been read from the region yet: the names then get better at a later call. A
// stack whose frames lie outside the pools has those frames left out and is marked truncated.
std::shared_ptr<const SiteInfo> NameSite(const RegionCopy& region, const wire::SiteRow& site,
                                         pid_t pid, Symbolizer* symbolizer, bool* pending);

}  // namespace tidemark
