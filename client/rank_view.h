// Processes as people think of them: ranks, side by side, with their bytes at the moments that
// matter. Pure functions over messages; pointers live as long as the snapshot they came from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

// By job, rank, attempt, then pid; processes without a rank come last in their job.
std::vector<const v1::Process*> ByRank(const v1::Snapshot& snapshot);

// A rank itself, not one of its helpers.
bool IsRank(const v1::Process& process);

// "rank 3"; "pid 4711 (python3)" where there is no rank; "pid 4711, helper of 4700".
std::string ProcessName(const v1::Process& process);
// "3", else "pid 4711".
std::string RankText(const v1::Process& process);
// The ranks of all as ranges, "0-3"; processes without one by pid.
std::string RanksText(const std::vector<const v1::Process*>& processes);

// "rank 3", "ranks 0-3", "pid 4711": RanksText as the subject of a sentence.
std::string RanksPhrase(const std::vector<const v1::Process*>& processes);

// "alive", "exited", "killed: by the OOM killer".
std::string LivenessText(const v1::Process& process);
bool IsDead(const v1::Process& process);

// What is compared across moments. Framework bytes lie inside the driver's, and CPU tensors inside
// anon: sides are different views, they do not add up.
enum class Side { kFramework, kDriver, kPinned, kAnon };
inline constexpr Side kSides[] = {Side::kFramework, Side::kDriver, Side::kPinned, Side::kAnon};

// As in v1::Peak.side; "anon" for the host.
std::string SideName(Side side);
// "GPU 0 tensors", "GPU 0 driver", "host pinned", "host anon"; without a device "GPU tensors": a
// rank has one GPU as a rule, and its number would only keep equal ranks apart.
std::string SideTitle(Side side, int device = -1);
bool HasSeveralGpus(const v1::Process& process);

// Absent: not known. In bytes.
struct Moments {
  Side side = Side::kFramework;
  int device = -1;
  std::optional<int64_t> load;       // at the end of loading, or so far where it still loads
  std::optional<int64_t> last_step;  // at the end of the last step
  std::optional<int64_t> peak;
  std::optional<int64_t> exit;  // at its end; now, while it lives
  uint64_t peak_step = 0;
};
std::vector<Moments> MomentsOf(const v1::Process& process);

// Bytes of one class summed over devices as the preferred witness counted them: torch, cupti, bpf,
// nvml, proc. Absent where nobody did.
std::optional<int64_t> LiveBytes(const v1::Process& process, const std::string& memory_class);

// Device bytes a person would name first: the framework's live bytes, else all that the driver
// handed out. Absent where neither was seen.
std::optional<int64_t> GpuLiveBytes(const v1::Process& process);

// The state of one feature, "on", "off", ...; empty when the process does not list it.
std::string FeatureState(const v1::Process& process, const std::string& feature);

}  // namespace tidemark::client
