// Which rank of which job a process is, by the environment that its launcher gave it.
//
// The environment is the job's own word: it may be missing, wrong or absurd, and is believed only
// as far as it can name the process itself. Pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tidemark {

using Variables = std::map<std::string, std::string, std::less<>>;

struct Launch {
  std::string launcher;  // "torchrun", "slurm", ...; empty = none seen
  int rank = -1;         // -1 = none, as are the next three
  int local_rank = -1;
  int world_size = -1;
  int local_world_size = -1;
  int attempt = 0;
};

// The innermost launcher decides: torchrun started by srun sets RANK, and RANK wins.
Launch IdentifyLaunch(const Variables& variables);

struct JobName {
  std::string name;    // the same on every node of the job; empty = none
  std::string source;  // what told it
};

// `configured` is the daemon's own setting, `kubernetes_owner` the owner of the pod; both may be
// empty. `cgroup_path` is searched for a Slurm job.
JobName NameJob(const Variables& variables, std::string_view configured,
                std::string_view kubernetes_owner, std::string_view cgroup_path);

}  // namespace tidemark
