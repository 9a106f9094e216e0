#include "cupti_agent/framework/nvtx_tap.h"

#include <atomic>
#include <cstdint>
#include <cstring>

#include "cupti_agent/framework/backward_tap.h"

namespace tidemark::agent {
namespace {

// nvtxEventAttributes_t, versions 2 and 3, as far as its message.
struct EventAttributes {
  uint16_t version;
  uint16_t size;
  uint8_t colours_and_payload[28];
  int32_t message_type;
  const char* message;
};
static_assert(sizeof(EventAttributes) == 48);
constexpr int32_t kAsciiMessage = 1;

constinit char step_range[64] = "";
constinit std::atomic<bool> has_range{false};

void OnName(const char* name) {
  if (name == nullptr || !has_range.load(std::memory_order_acquire)) return;
  if (strcmp(name, step_range) == 0) EndStep();
}

void OnAttributes(uint64_t address) {
  const auto* attributes = reinterpret_cast<const EventAttributes*>(address);
  if (attributes == nullptr || attributes->size < sizeof(EventAttributes)) return;
  if (attributes->message_type == kAsciiMessage) OnName(attributes->message);
}

}  // namespace

void SetStepRange(const char* name) {
  has_range.store(false, std::memory_order_release);
  strncpy(step_range, name, sizeof(step_range) - 1);
  has_range.store(step_range[0] != '\0', std::memory_order_release);
}

bool HasStepRange() { return has_range.load(std::memory_order_acquire); }

void OnRangePush(const HookCall& call) { OnName(call.String(0)); }
void OnRangePushEx(const HookCall& call) { OnAttributes(call.arguments[0]); }
void OnDomainRangePushEx(const HookCall& call) { OnAttributes(call.arguments[1]); }

}  // namespace tidemark::agent
