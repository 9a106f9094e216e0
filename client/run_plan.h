// What `tidemark run` decides before it starts the job: under which name the run goes, who reports,
// and what the job's environment becomes. Pure: no process, file or socket is touched.
#pragma once

#include <string>
#include <vector>

#include "client/environment.h"

namespace tidemark::client {

// Where an environment says which rank of this node a process is.
struct LaunchPlace {
  std::string launch;  // names this launch the same way for all its ranks on the node; may be empty
  int local_rank = -1;  // -1 = not started by a launcher
};
LaunchPlace PlaceOf(const Environment& environment);

struct RunPlan {
  std::string run;                 // TIDEMARK_RUN of the job
  bool reports = true;             // false: another rank on this node, or an outer run, does
  std::string why_not;             // set where reports is false
  bool injects = true;             // CUDA_INJECTION64_PATH is set to our library
  Environment job;                 // the job's environment
  std::vector<std::string> notes;  // for the user, one line each
};

// `asked_for_output`: the user named a file or --fail-on, so this run reports even inside another.
// `random_run` names the run where no launcher does.
RunPlan PlanRun(const Environment& environment, const std::string& agent_socket,
                const std::string& library, bool library_exists, bool asked_for_output,
                const std::string& random_run);

// Whether a process with this TIDEMARK_RUN belongs to `run`, or to a run inside it.
bool BelongsTo(const std::string& process_run, const std::string& run);

}  // namespace tidemark::client
