// The injected library's entry and its one thread.
//
// InitializeInjection runs inside cuInit, on the job's thread: it makes the region, takes the hooks
// and the lease, starts the thread and returns. Everything later happens in taps on the job's
// threads, or here:
//
//   thread "tidemark":  offer the region, hear commands; once a second fetch records, patch newly
//                       loaded modules, keep the running figures
//
// Nothing is written to stdout or stderr, no signal handler, no environment change; the work at
// exit is one flush of CUPTI's records (lease.h) and the closing of the books.
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "cupti_agent/cupti/lease.h"
#include "cupti_agent/daemon_link.h"
#include "cupti_agent/environment.h"
#include "cupti_agent/framework/framework.h"
#include "cupti_agent/hooks/import_hooks.h"
#include "cupti_agent/ledger/alive.h"
#include "cupti_agent/ledger/ledger.h"
#include "cupti_agent/ledger/monotonic.h"
#include "cupti_agent/stack/stack.h"
#include "cupti_agent/switches.h"

namespace tidemark::agent {
namespace {

using wire::Feature;
using wire::FeatureState;

constexpr char kOffFile[] = "/etc/tidemark/off";
constexpr size_t kThreadStackBytes = 256 << 10;
constexpr int kWaitMs = 250;
constexpr uint64_t kTickNs = 1'000'000'000;

const char* FromEnvironment(const char* name) { return getenv(name); }

class Agent final : public DaemonLink::Listener {
 public:
  // Nothing is kept but what works: every failure leaves a job that runs as if uninjected.
  void Start() {
    const Switches switches = ReadSwitches(FromEnvironment, kOffFile);
    if (switches.off || switches.taps == 0) return;
    taps_ = switches.taps;

    uint64_t seed = MonotonicNs();
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) < 0) seed ^= static_cast<uint64_t>(getpid());
    Ledger& ledger = g_ledger;
    const char* failed = ledger.Open({.region_bytes = switches.region_bytes,
                                      .sampling_interval_bytes = switches.sampling_interval_bytes,
                                      .seed = seed});
    if (failed != nullptr || !BecomeAlive()) return;
    char environment[wire::kEnvironmentBytes];
    ledger.SetEnvironment(
        {environment, CollectEnvironment(FromEnvironment, environment, sizeof(environment))});
    own_socket_ = getenv(wire::kAgentSocketVariable);
    link_ = DaemonLink(own_socket_, wire::kAgentSocketPath);

    InitHooks(g_alive);
    InitStacks();
    const bool cupti = (taps_ & wire::kTapCupti) != 0;
    if (cupti) g_lease.AddHooks();
    StartFramework(
        {.allocator = (taps_ & wire::kTapFramework) != 0, .steps = (taps_ & wire::kTapSteps) != 0});
    ScanForNewModules();
    RefreshModules();
    if (cupti) {
      g_lease.Take({.cuda_home = getenv("CUDA_HOME"),
                    .max_records_per_second = switches.max_records_per_second});
    } else {
      ledger.SetFeature(Feature::kCuptiCallbacks, FeatureState::kOff, "TIDEMARK_TAPS");
      ledger.SetFeature(Feature::kCuptiRecords, FeatureState::kOff, "TIDEMARK_TAPS");
    }
    RefreshFramework();
    RefreshStackFeatures();
    if (StartThread()) {
      ledger.SetFeature(Feature::kAgent, FeatureState::kOn, "");
    } else {
      ledger.SetFeature(Feature::kAgent, FeatureState::kOff, "no thread could be started");
    }
    ledger.SetState(wire::AgentState::kRunning);
  }

 private:
  bool StartThread() {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, kThreadStackBytes);
    // Blocked around the creation, so that the thread never takes a signal meant for the job, not
    // even in its first instructions.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    const int result = pthread_create(
        &thread, &attributes,
        [](void* self) -> void* {
          static_cast<Agent*>(self)->Run();
          return nullptr;
        },
        this);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
    return result == 0;
  }

  void Run() {
    prctl(PR_SET_NAME, "tidemark");
    const wire::Header& header = *g_ledger.region().header();
    const RegionOffer offer{g_ledger.region().fd(), header.region_bytes, header.agent_id,
                            header.pid};
    uint64_t last_tick = MonotonicNs();
    while (IsAlive()) {
      // A process that only asked the driver something is nobody's business.
      if (Interesting()) {
        link_.Poll(offer, this, kWaitMs);
      } else {
        usleep(kWaitMs * 1000);
      }
      const uint64_t now = MonotonicNs();
      if (now - last_tick < kTickNs || !IsAlive()) continue;
      Tick(static_cast<double>(now - last_tick) * 1e-9);
      last_tick = now;
    }
    // Detached. The daemon learns of the process's end by the connection, so that stays.
    while (link_.connected()) link_.Poll(offer, this, 1000);
  }

  bool Interesting() {
    interesting_ = interesting_ || g_lease.context_seen() ||
                   g_ledger.region().Entry(wire::Section::kTotals).used > 0;
    return interesting_;
  }

  void Tick(double seconds) {
    if (ScanForNewModules()) {
      RefreshModules();
      g_lease.CheckModules();
    }
    g_lease.Tick(seconds);
    RefreshFramework();
    RefreshStackFeatures();
    g_ledger.Refresh(g_lease.ResidentBytes());
  }

  void RefreshStackFeatures() {
    const StackStatus status = GetStackStatus();
    g_ledger.SetFeature(Feature::kPythonFrames, status.python, status.python_reason);
    g_ledger.SetFeature(Feature::kNativeFrames, status.native, status.native_reason);
    g_ledger.SetPythonVersion(status.python_version);
  }

  void OnAccepted(const wire::Reply& reply) override {
    if (reply.sampling_interval_bytes != 0) {
      g_ledger.SetSamplingInterval(reply.sampling_interval_bytes);
    }
    if (reply.taps != 0) taps_ &= reply.taps;
    ApplyTaps(reply.backward_per_step, reply.step_range);
  }

  void OnCommand(const wire::Command& command) override {
    switch (static_cast<wire::CommandOp>(command.op)) {
      case wire::CommandOp::kDetach:
        return Detach();
      case wire::CommandOp::kSetTaps:
        taps_ &= static_cast<uint32_t>(command.argument);
        return ApplyTaps(0, "");
      case wire::CommandOp::kFlushRecords:
        return g_lease.Flush();
    }
  }

  // A tap that is off stays off: its hooks were put back.
  void ApplyTaps(uint32_t backward_per_step, const char* step_range) {
    if ((taps_ & wire::kTapCupti) == 0) g_lease.GiveUp("switched off by the daemon");
    ConfigureFramework({.allocator = (taps_ & wire::kTapFramework) != 0,
                        .steps = (taps_ & wire::kTapSteps) != 0,
                        .backward_per_step = backward_per_step,
                        .step_range = step_range});
  }

  void Detach() {
    if (!IsAlive()) return;
    g_lease.GiveUp("detached");
    StopFramework();
    DetachHooks();
    g_ledger.SetFeature(Feature::kAgent, FeatureState::kOff, "detached");
    g_ledger.SetState(wire::AgentState::kDetached);
    CeaseAlive();
  }

  uint32_t taps_ = 0;
  bool interesting_ = false;
  const char* own_socket_ = nullptr;
  DaemonLink link_{nullptr, wire::kAgentSocketPath};
};

Agent g_agent;

// The region outlives the process in the daemon's hands: this tells an exit from a kill.
__attribute__((destructor)) void OnExit() {
  if (Ledger* ledger = Active()) ledger->SetState(wire::AgentState::kExited);
}

}  // namespace
}  // namespace tidemark::agent

// Called by the driver inside cuInit; by some drivers more than once. Always 1: the job goes on
// whatever becomes of us.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  static std::atomic<bool> started{false};
  if (!started.exchange(true)) {
    const int saved = errno;
    tidemark::agent::g_agent.Start();
    errno = saved;
  }
  return 1;
}
