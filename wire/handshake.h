// How an agent and a daemon meet: one SOCK_SEQPACKET connection from the agent to the daemon's
// agent socket, one fixed-size message a packet.
//
//   agent                         daemon
//     | Hello + memfd (SCM_RIGHTS)  |
//     |---------------------------->|  checks peer credentials, seals, header; then answers
//     |        Reply                |
//     |<----------------------------|
//     |        Command (any time)   |
//     |<----------------------------|
//     |        ... until either side closes; the agent then offers the region to the next daemon
//
// Both sides treat a short, long or unknown packet as the end of the connection. The daemon never
// blocks on an agent and the agent never blocks a thread of the job on the daemon.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tidemark::wire {

inline constexpr uint32_t kHandshakeMagic = 0x31484d54;  // "TMH1"

// Where an agent looks, in this order: the environment variable (set by `tidemark run`), then the
// node's daemon.
inline constexpr char kAgentSocketVariable[] = "TIDEMARK_AGENT_SOCKET";
inline constexpr char kAgentSocketPath[] = "/run/tidemark/agent.sock";

// Set by `tidemark run` for the job it starts, and on the allow-list of variables that tell who a
// process is: two runs that share a daemon tell their processes apart by it.
inline constexpr char kRunVariable[] = "TIDEMARK_RUN";

struct Hello {
  uint32_t magic;
  uint32_t abi;  // kRegionAbi
  uint64_t region_bytes;
  uint64_t agent_id;
  int32_t pid;  // in the agent's own pid namespace; informative, SO_PEERCRED decides
  uint32_t reserved;
};
static_assert(sizeof(Hello) == 32);

enum class ReplyCode : uint32_t {
  kAccepted = 0,
  kRefusedMagic,
  kRefusedNewerAbi,
  kRefusedSeals,
  kRefusedSize,
  kRefusedHeader,
  kRefusedLimit,  // too many agents of this uid
};

// The daemon's answer, with the parts of its configuration that concern the agent.
struct Reply {
  uint32_t magic;
  uint32_t code;                     // ReplyCode
  uint32_t backward_per_step;        // 0 = leave as it is
  uint32_t taps;                     // TapMask; 0 = leave as it is
  uint64_t sampling_interval_bytes;  // 0 = leave as it is
  char step_range[64];               // NVTX range that marks a step; empty = none
};
static_assert(sizeof(Reply) == 88);

enum TapMask : uint32_t { kTapCupti = 1, kTapFramework = 2, kTapSteps = 4, kTapAll = 7 };

enum class CommandOp : uint32_t {
  kDetach = 1,        // put every slot back, give up the lease, stop counting; no way back
  kSetTaps = 2,       // argument: TapMask
  kFlushRecords = 3,  // reconcile activity records now
};

struct Command {
  uint32_t magic;
  uint32_t op;  // CommandOp
  uint64_t argument;
};
static_assert(sizeof(Command) == 16);

}  // namespace tidemark::wire
