#include "cupti_agent/framework/allocator_tap.h"

#include "cupti_agent/framework/block_stack.h"
#include "cupti_agent/framework/phase_namer.h"
#include "cupti_agent/ledger/ledger.h"

namespace tidemark::agent {
namespace {

constexpr uint8_t kCudaDevice = 1;  // c10::DeviceType::CUDA

// c10::Device: two bytes in one register.
uint8_t DeviceType(uint64_t device) { return static_cast<uint8_t>(device); }
int16_t DeviceIndex(uint64_t device) { return static_cast<int8_t>(device >> 8); }

// Samples, captures and hands `book` the estimate and the stack, null when there is none to take.
template <typename Book>
void WithStack(Ledger* ledger, uint64_t bytes, Book book) {
  uint64_t estimate = ledger->Sample(bytes);
  if (estimate == 0) return book(0, nullptr);
  Stack stack;
  CaptureForBlock(&stack);
  StackView view = stack.View();
  book(estimate, &view);
  if ((stack.flags & wire::kSitePython) != 0) g_phase_namer.OnStack(&stack, ledger);
}

}  // namespace

void OnBlockReport(const HookCall& call) {
  Ledger* ledger = Active();
  if (ledger == nullptr || DeviceType(call.arguments[4]) != kCudaDevice) return;
  int64_t change = static_cast<int64_t>(call.arguments[1]);
  FrameworkBlock block = {
      .address = call.arguments[0],
      .bytes = static_cast<uint64_t>(change < 0 ? -change : change),
      .device = DeviceIndex(call.arguments[4]),
      .total_allocated_bytes = call.arguments[2],
      .total_reserved_bytes = call.arguments[3],
  };
  if (change < 0) return ledger->FrameworkFreed(block);
  if (change == 0) return;
  WithStack(ledger, block.bytes, [&](uint64_t estimate, const StackView* stack) {
    ledger->FrameworkAllocated(block, estimate, stack);
  });
}

void OnOutOfMemory(const HookCall& call) {
  Ledger* ledger = Active();
  if (ledger == nullptr || DeviceType(call.arguments[3]) != kCudaDevice) return;
  ledger->OutOfMemory(DeviceIndex(call.arguments[3]), call.arguments[0], call.arguments[1],
                      call.arguments[2]);
}

void OnCpuNew(const HookCall& call) {
  Ledger* ledger = Active();
  uint64_t address = call.arguments[1];
  uint64_t bytes = call.arguments[2];
  if (ledger == nullptr || address == 0 || bytes == 0) return;
  WithStack(ledger, bytes, [&](uint64_t estimate, const StackView* stack) {
    ledger->HostTensorAllocated(address, bytes, estimate, stack);
  });
}

void OnCpuDelete(const HookCall& call) {
  Ledger* ledger = Active();
  if (ledger != nullptr && call.arguments[1] != 0) ledger->HostTensorFreed(call.arguments[1]);
}

}  // namespace tidemark::agent
