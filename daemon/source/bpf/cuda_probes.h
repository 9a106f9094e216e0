// Which functions of libcuda are probed, and how each is read. One row a symbol; everything that
// differs between entry points stands here.
#pragma once

#include <cstdint>
#include <span>

#include "bpf/libcuda_intf.h"
#include "daemon/snapshot/memory_class.h"
#include "wire/entry_point.h"

namespace tidemark {

// What a call means for the ledger.
enum class CudaCallKind : uint8_t {
  kAllocate,  // result 1 is the address
  kAllocatePitch,
  kAllocateAsync,
  kAllocateFromPool,
  kFree,
  kRegister,
  kUnregister,
  kPoolCreate,
  kVmmCreate,
  kVmmRetain,  // result 1 is the handle of what argument 2 is mapped to
  kVmmImport,  // result 1 is a handle of another process's memory
  kVmmRelease,
  kVmmMap,
  kVmmUnmap,
  kArray,
  kArrayFree,
  kIpcOpen,
  kIpcClose,
  kGraphAllocate,
  kGraphFree,
  kContextCreate,
  kContextSetCurrent,
  kContextPush,
  kContextPop,
  kContextDestroy,
  kPrimaryRetain,
  kPrimaryRelease,
  kPrimaryReset,
  kCountOnly,
};

// Numbers behind wire::EntryPoint: calls that the ledger needs and no other witness counts.
enum ExtraFn : uint8_t {
  kFnMemRetainAllocationHandle = wire::kEntryPointCount,
  kFnMemImportFromShareableHandle,
  kFnCtxCreate2,
  kFnCtxCreate3,
  kFnCtxCreate4,
  kFnCtxSetCurrent,
  kFnCtxPushCurrent,
  kFnCtxPopCurrent,
  kFnPrimaryCtxRetain,
  kCudaFnCount,
};
static_assert(kCudaFnCount <= TM_MAX_ENTRY_POINTS);

// Where a call is probed.
enum class ProbeWhere : uint8_t {
  kAlways,      // beside an agent too: rare
  kLedgerOnly,  // too frequent to be counted twice, or of use to the ledger only
};

struct CudaProbe {
  const char* symbol;
  uint8_t fn;  // wire::EntryPoint or ExtraFn
  CudaCallKind kind;
  MemoryClass memory_class = MemoryClass::kDevice;
  // Positions of arguments begin with 1; 0 = none.
  uint8_t bytes_arg = 0;
  tm_bytes_rule bytes_rule = TM_BYTES_ARGUMENT;
  uint8_t out1_arg = 0;
  uint8_t out1_offset = 0;  // bytes, a multiple of 8
  uint8_t out2_arg = 0;
  uint8_t location_arg = 0;
  uint8_t device_arg = 0;
  bool at_entry = false;  // a free: booked when the call begins
  bool stack = false;
  ProbeWhere where = ProbeWhere::kAlways;

  uint64_t Cookie(bool ledger) const;
};

std::span<const CudaProbe> CudaProbes();

// How calls of `fn` are decoded: any of its rows, which differ only in symbol. Null if there is no
// such number.
const CudaProbe* CudaProbeOf(uint32_t fn);

}  // namespace tidemark
