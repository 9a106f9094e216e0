// What wraps a driver call: CUPTI's callbacks at enter and exit, faults on demand, records after.
// With no tool attached it costs one byte read.
#pragma once

#include "tests/sim/cuda/driver.h"

namespace tidemark::sim {

// The result that TIDEMARK_SIM_FAIL wants of this call, or nothing. The variable is a list of
// NAME:N[:CODE]: every Nth call of NAME fails with CODE (default 2, out of memory).
std::optional<CUresult> InjectedFault(const char* name);

void DeliverRecords(const Records& records);

template <typename Params, typename Body>
CUresult Traced(uint32_t cbid, const char* name, const Params& params, Body body) {
  Driver& driver = Driver::Get();
  Records records;
  const auto run = [&]() -> CUresult {
    if (driver.forked() || !driver.initialized()) return CUDA_ERROR_NOT_INITIALIZED;
    if (const auto fault = InjectedFault(name)) return *fault;
    return body(&records);
  };
  CUresult result = CUDA_SUCCESS;
  // A forked child gets no callbacks, as measured.
  if (tidemark_sim_tools.call_enabled[cbid].load(std::memory_order_relaxed) == 0 || driver.forked())
      [[likely]] {
    result = run();
    DeliverRecords(records);
    return result;
  }
  const auto on_call = tidemark_sim_tools.on_call.load();
  ApiCall call = {cbid, name, &params, &result, Driver::Current(), Driver::CurrentUid(), 0, 0, 0};
  if (on_call != nullptr) on_call(&call, /*exit=*/false);
  result = run();
  DeliverRecords(records);
  call.context = Driver::Current();
  call.context_uid = Driver::CurrentUid();
  if (on_call != nullptr) on_call(&call, /*exit=*/true);
  return result;
}

}  // namespace tidemark::sim
