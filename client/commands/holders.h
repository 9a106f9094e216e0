// tidemark sites --holders: a site says where memory was allocated; who keeps it only the job's own
// interpreter can tell. This prints a Python snippet for the job that finds out.
#pragma once

#include <string>
#include <vector>

#include "client/command_line.h"
#include "client/commands/render.h"

namespace tidemark::client {

// For one site of one process: that of `view.site_id`, or else the one a verdict blames, or else
// the largest of the process (which must then be the only one left by `source`).
int PrintHolders(Context& context, const SourceOptions& source, const SitesView& view);

// Finds, in the process it runs in, every tensor whose storage begins at one of the addresses, and
// prints the chain of objects that refer to it.
std::string HoldersSnippet(const v1::Process& process, const v1::Site& site,
                           const v1::ListHoldersResponse& blocks);

}  // namespace tidemark::client
