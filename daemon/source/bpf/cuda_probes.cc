#include "daemon/source/bpf/cuda_probes.h"

#include "bpf/libcuda_intf.h"

namespace tidemark {
namespace {

using Kind = CudaCallKind;
using Class = MemoryClass;
using wire::EntryPoint;

static_assert(kCudaFnCount <= TM_MAX_ENTRY_POINTS);

constexpr uint8_t Fn(EntryPoint entry_point) { return static_cast<uint8_t>(entry_point); }

// Positions of arguments as in the driver API's reference.
constexpr CudaProbe kProbes[] = {
    {.symbol = "cuMemAlloc_v2",
     .fn = Fn(EntryPoint::kMemAlloc),
     .kind = Kind::kAllocate,
     .memory_class = Class::kDevice,
     .bytes_arg = 2,
     .out1_arg = 1,
     .stack = true},
    {.symbol = "cuMemAllocPitch_v2",
     .fn = Fn(EntryPoint::kMemAllocPitch),
     .kind = Kind::kAllocatePitch,
     .memory_class = Class::kDevice,
     .bytes_arg = 3,
     .factor_arg = 4,
     .out1_arg = 1,
     .out2_arg = 2,
     .stack = true},
    {.symbol = "cuMemFree_v2",
     .fn = Fn(EntryPoint::kMemFree),
     .kind = Kind::kFree,
     .memory_class = Class::kDevice,
     .at_entry = true},
    {.symbol = "cuMemAllocManaged",
     .fn = Fn(EntryPoint::kMemAllocManaged),
     .kind = Kind::kAllocate,
     .memory_class = Class::kManaged,
     .bytes_arg = 2,
     .out1_arg = 1,
     .stack = true},
    {.symbol = "cuMemAllocHost_v2",
     .fn = Fn(EntryPoint::kMemAllocHost),
     .kind = Kind::kAllocate,
     .memory_class = Class::kPinned,
     .bytes_arg = 2,
     .out1_arg = 1,
     .stack = true},
    {.symbol = "cuMemHostAlloc",
     .fn = Fn(EntryPoint::kMemHostAlloc),
     .kind = Kind::kAllocate,
     .memory_class = Class::kPinned,
     .bytes_arg = 2,
     .out1_arg = 1,
     .stack = true},
    {.symbol = "cuMemFreeHost",
     .fn = Fn(EntryPoint::kMemFreeHost),
     .kind = Kind::kFree,
     .memory_class = Class::kPinned,
     .at_entry = true},
    {.symbol = "cuMemHostRegister_v2",
     .fn = Fn(EntryPoint::kMemHostRegister),
     .kind = Kind::kRegister,
     .memory_class = Class::kRegistered,
     .bytes_arg = 2,
     .stack = true},
    {.symbol = "cuMemHostUnregister",
     .fn = Fn(EntryPoint::kMemHostUnregister),
     .kind = Kind::kUnregister,
     .memory_class = Class::kRegistered,
     .at_entry = true},
};

}  // namespace

uint64_t CudaProbe::Cookie(bool ledger) const {
  uint64_t cookie = fn | uint64_t{bytes_arg} << 8 | uint64_t{factor_arg} << 12 |
                    uint64_t{out1_arg} << 16 | uint64_t{out2_arg} << 20 | uint64_t{blob_arg} << 24;
  if (ledger) cookie |= TM_COOKIE_LEDGER;
  if (ledger && at_entry) cookie |= TM_COOKIE_AT_ENTRY;
  if (ledger && stack) cookie |= TM_COOKIE_STACK;
  return cookie;
}

std::span<const CudaProbe> CudaProbes() { return kProbes; }

const CudaProbe* CudaProbeOf(uint8_t fn) {
  for (const CudaProbe& probe : kProbes) {
    if (probe.fn == fn) return &probe;
  }
  return nullptr;
}

}  // namespace tidemark
