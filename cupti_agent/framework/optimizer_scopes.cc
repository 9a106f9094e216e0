#include "cupti_agent/framework/optimizer_scopes.h"

#include <atomic>
#include <cstddef>
#include <cstring>

#include "cupti_agent/framework/backward_tap.h"
#include "cupti_agent/framework/phase_namer.h"
#include "cupti_agent/hooks/import_hooks.h"
#include "cupti_agent/ledger/ledger.h"

namespace tidemark::agent {
namespace {

constexpr char kStepScope[] = "Optimizer.step#";
constexpr char kOptimizerScope[] = "Optimizer.";
constexpr char kOperator[] = "aten::";
constexpr char kTrialName[] = "tidemark.trial";  // short enough for a std::string's own buffer
constexpr uint8_t kFunctionScope = 0;            // at::RecordScope
constexpr uint8_t kUserScope = 7;

// at::RecordFunctionCallback, 1.11 to 2.11.
struct RecordFunctionCallback {
  void* (*start)(void** context, const void* record);
  void (*end)(const void* record, void* context);
  double sampling_probability;
  bool scopes[10];
  bool needs_inputs;
  bool needs_outputs;
  bool needs_ids;
};
static_assert(sizeof(RecordFunctionCallback) == 40);

// std::string of the C++11 ABI, holding a short name in its own buffer.
struct ShortString {
  char* data;
  size_t size;
  char buffer[16];
};

enum class State : uint8_t { kNotLoaded, kTrying, kUnproven, kOn, kRefused, kGivenBack };

struct Scopes {
  std::atomic<State> state{State::kNotLoaded};
  std::atomic<bool> taking{false};
  const char* reason = "";
  uint64_t handle = 0;
  const char* (*name)(const void*) = nullptr;
  void (*remove)(uint64_t) = nullptr;
  std::atomic<uint32_t> trial_arrivals{0};
  std::atomic<uint32_t> wrong_arrivals{0};
};

constinit Scopes scopes;

bool Begins(const char* name, const char* with) { return strncmp(name, with, strlen(with)) == 0; }

// std::unique_ptr<ObserverContext> start(const RecordFunction&), the result in memory. On the job's
// thread, at every user scope; noexcept like all of the agent.
void* OnScope(void** context, const void* record) {
  *context = nullptr;
  const char* name = scopes.name(record);
  if (name == nullptr) return context;
  State state = scopes.state.load(std::memory_order_relaxed);
  if (state == State::kTrying) {
    if (strcmp(name, kTrialName) == 0) scopes.trial_arrivals.fetch_add(1);
    return context;
  }
  if (state == State::kUnproven) {
    if (Begins(name, kOperator)) scopes.wrong_arrivals.fetch_add(1);
    if (Begins(name, kOptimizerScope)) scopes.state.store(State::kOn, std::memory_order_relaxed);
  }
  if (!Begins(name, kStepScope)) return context;
  Ledger* ledger = Active();
  if (ledger == nullptr) return context;
  g_step_counter.OnOptimizerScope();
  ledger->OptimizerScopeBegan();
  g_phase_namer.OnOptimizerScope();
  return context;
}

// How to make a scope by hand, in the ways versions offer.
struct Trial {
  void (*construct)(void* record, uint8_t scope);
  void (*before_text)(void* record, const char* name, int64_t sequence);
  void (*before_string)(void* record, ShortString* name, int64_t sequence);
  void (*destroy)(void* record);

  bool Possible() const {
    return construct != nullptr && destroy != nullptr &&
           (before_text != nullptr || before_string != nullptr);
  }

  void Run(uint8_t scope) const {
    // A RecordFunction takes less than 1 KiB in all known versions; the buffer is generous because
    // its size is not in any symbol.
    alignas(64) static char record[16384];
    construct(record, scope);
    if (before_text != nullptr) {
      before_text(record, kTrialName, -1);
    } else {
      ShortString name = {name.buffer, sizeof(kTrialName) - 1, {}};
      memcpy(name.buffer, kTrialName, sizeof(kTrialName));
      before_string(record, &name, -1);
    }
    destroy(record);
  }
};

template <typename Function>
bool Find(const char* name, Function* function) {
  *function = reinterpret_cast<Function>(FindDefinition(name));
  return *function != nullptr;
}

void Refuse(const char* reason) {
  scopes.remove(scopes.handle);
  scopes.reason = reason;
  scopes.state.store(State::kRefused, std::memory_order_release);
}

void Take() {
  uint64_t (*add)(RecordFunctionCallback);
  if (!Find("_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE", &add)) return;
  if (!Find("_ZN2at14removeCallbackEm", &scopes.remove) ||
      !Find("_ZNK2at14RecordFunction4nameEv", &scopes.name)) {
    scopes.reason = "this version's callbacks are not known";
    scopes.state.store(State::kRefused, std::memory_order_release);
    return;
  }
  Trial trial = {};
  Find("_ZN2at14RecordFunctionC1ENS_11RecordScopeE", &trial.construct);
  Find("_ZN2at14RecordFunction6beforeEPKcl", &trial.before_text);
  Find("_ZN2at14RecordFunction6beforeENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEl",
       &trial.before_string);
  Find("_ZN2at14RecordFunctionD1Ev", &trial.destroy);

  scopes.state.store(State::kTrying, std::memory_order_release);
  RecordFunctionCallback callback = {};
  callback.start = OnScope;
  callback.sampling_probability = 1;
  callback.scopes[kUserScope] = true;
  scopes.handle = add(callback);
  if (!trial.Possible()) {
    scopes.state.store(State::kUnproven, std::memory_order_release);
    return;
  }
  trial.Run(kUserScope);
  uint32_t user_arrivals = scopes.trial_arrivals.load();
  trial.Run(kFunctionScope);
  if (user_arrivals != 1 || scopes.trial_arrivals.load() != 1) {
    return Refuse("the callback's layout is not as expected");
  }
  scopes.state.store(State::kOn, std::memory_order_release);
}

}  // namespace

void TakeOptimizerScopes() {
  if (scopes.taking.exchange(true, std::memory_order_acquire)) return;
  State state = scopes.state.load(std::memory_order_acquire);
  if (state == State::kNotLoaded) Take();
  if (state == State::kUnproven && scopes.wrong_arrivals.load() != 0) {
    Refuse("operators arrive as user scopes");
  }
  state = scopes.state.load(std::memory_order_acquire);
  g_step_counter.SetScopesVisible(state == State::kOn || state == State::kUnproven);
  scopes.taking.store(false, std::memory_order_release);
}

void GiveBackOptimizerScopes() {
  if (scopes.taking.exchange(true, std::memory_order_acquire)) return;
  State state = scopes.state.load(std::memory_order_acquire);
  if (state == State::kOn || state == State::kUnproven) scopes.remove(scopes.handle);
  scopes.state.store(State::kGivenBack, std::memory_order_release);
  g_step_counter.SetScopesVisible(false);
  scopes.taking.store(false, std::memory_order_release);
}

wire::FeatureState OptimizerScopesState(const char** reason) {
  switch (scopes.state.load(std::memory_order_acquire)) {
    case State::kNotLoaded:
      *reason = "not loaded";
      return wire::FeatureState::kOff;
    case State::kTrying:
    case State::kUnproven:
      *reason = "no optimizer scope seen yet";
      return wire::FeatureState::kOn;
    case State::kOn:
      *reason = "";
      return wire::FeatureState::kOn;
    case State::kRefused:
      *reason = scopes.reason;
      return wire::FeatureState::kUnavailable;
    case State::kGivenBack:
      *reason = "detached";
      return wire::FeatureState::kOff;
  }
  return wire::FeatureState::kUnknown;
}

}  // namespace tidemark::agent
