#include <mutex>
#include <string>
#include <utility>

#include "tests/sim/torch/torch_cpu.h"

namespace at {
namespace {

struct Callbacks {
  std::mutex mutex;
  uint64_t next = 1;
  std::vector<std::pair<uint64_t, RecordFunctionCallback>> list;
};

Callbacks& Global() {
  static auto* const callbacks = new Callbacks;
  return *callbacks;
}

}  // namespace

struct RecordFunction::State {
  std::string name;
  std::vector<std::pair<RecordFunctionCallback, std::unique_ptr<ObserverContext>>> running;
};

RecordFunction::RecordFunction(RecordScope scope, const char* name)
    : state_(std::make_unique<State>()) {
  state_->name = name;
  std::vector<RecordFunctionCallback> wanted;
  {
    std::lock_guard lock(Global().mutex);
    for (const auto& [handle, callback] : Global().list) {
      if (callback.scopes[static_cast<size_t>(scope)] && callback.sampling_prob >= 1.0) {
        wanted.push_back(callback);
      }
    }
  }
  for (const RecordFunctionCallback& callback : wanted) {
    std::unique_ptr<ObserverContext> context;
    if (callback.start != nullptr) context = callback.start(*this);
    state_->running.emplace_back(callback, std::move(context));
  }
}

RecordFunction::~RecordFunction() {
  for (const auto& [callback, context] : state_->running) {
    if (callback.end != nullptr) callback.end(*this, context.get());
  }
}

const char* RecordFunction::name() const { return state_->name.c_str(); }

uint64_t addGlobalCallback(RecordFunctionCallback callback) {
  std::lock_guard lock(Global().mutex);
  Global().list.emplace_back(Global().next, callback);
  return Global().next++;
}

void removeCallback(uint64_t handle) {
  std::lock_guard lock(Global().mutex);
  std::erase_if(Global().list, [&](const auto& entry) { return entry.first == handle; });
}

}  // namespace at
