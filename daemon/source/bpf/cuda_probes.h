// Which functions of libcuda are probed, and how each is read. One row a symbol; everything that
// differs between entry points stands here.
#pragma once

#include <cstdint>
#include <span>

#include "daemon/snapshot/memory_class.h"
#include "wire/entry_point.h"

namespace tidemark {

// What a successful call means for the ledger.
enum class CudaCallKind : uint8_t {
  kAllocate,  // out 1 = address, bytes argument
  kAllocatePitch,
  kFree,      // argument 1 = address
  kRegister,  // argument 1 = address, bytes argument
  kUnregister,
  kVmmCreate,  // out 1 = handle
  kVmmRetain,  // out 1 = handle, argument 2 = an address mapped to it
  kVmmImport,  // out 1 = handle; the memory is another process's
  kVmmRelease,
  kVmmMap,
  kVmmUnmap,
  kArray,
  kArray3d,
  kMipmappedArray,
  kArrayFree,
  kIpcOpen,
  kIpcClose,
  kGraphAllocate,
  kGraphFree,
  kContextEnd,
  kOther,  // counted only
};

// Counted and decoded like entry points, but no other witness counts them.
inline constexpr uint8_t kFnMemRetainAllocationHandle = wire::kEntryPointCount;
inline constexpr uint8_t kFnMemImportFromShareableHandle = wire::kEntryPointCount + 1;
inline constexpr uint8_t kCudaFnCount = wire::kEntryPointCount + 2;

struct CudaProbe {
  const char* symbol;
  uint8_t fn;  // wire::EntryPoint, or one of the two above
  CudaCallKind kind;
  MemoryClass memory_class;
  uint8_t bytes_arg = 0;  // positions begin with 1; 0 = none
  uint8_t factor_arg = 0;
  uint8_t out1_arg = 0;
  uint8_t out2_arg = 0;
  uint8_t blob_arg = 0;
  bool at_entry = false;  // a free: booked when the call begins
  bool stack = false;
  bool rare = true;  // probed beside an agent too; stream-ordered calls are too frequent

  uint64_t Cookie(bool ledger) const;
};

std::span<const CudaProbe> CudaProbes();

// How calls of `fn` are decoded: any of its rows, which differ only in symbol. Null if there is no
// such number.
const CudaProbe* CudaProbeOf(uint8_t fn);

}  // namespace tidemark
