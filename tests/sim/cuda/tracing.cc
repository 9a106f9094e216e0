#include "tests/sim/cuda/tracing.h"

#include <cstdlib>
#include <cstring>
#include <string>

namespace tidemark::sim {
namespace {

struct Fault {
  std::string name;
  uint64_t every;
  CUresult code;
  std::atomic<uint64_t> calls{0};
};

std::vector<std::unique_ptr<Fault>> ParseFaults(const char* text) {
  std::vector<std::unique_ptr<Fault>> faults;
  std::string rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string item = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    const size_t first = item.find(':');
    if (first == std::string::npos) continue;
    auto fault = std::make_unique<Fault>();
    fault->name = item.substr(0, first);
    char* end = nullptr;
    fault->every = strtoull(item.c_str() + first + 1, &end, 10);
    fault->code = *end == ':' ? static_cast<CUresult>(atoi(end + 1)) : CUDA_ERROR_OUT_OF_MEMORY;
    if (fault->every != 0) faults.push_back(std::move(fault));
  }
  return faults;
}

}  // namespace

std::optional<CUresult> InjectedFault(const char* name) {
  static const auto* const faults = new std::vector(ParseFaults(getenv("TIDEMARK_SIM_FAIL")));
  for (const auto& fault : *faults) {
    if (fault->name == name && ++fault->calls % fault->every == 0) return fault->code;
  }
  return std::nullopt;
}

void DeliverRecords(const Records& records) {
  if (!records.pool.empty()) {
    const auto on_pool = tidemark_sim_tools.on_pool.load();
    for (const PoolEvent& event : records.pool) {
      if (on_pool != nullptr) on_pool(event);
    }
  }
  if (!records.memory.empty()) {
    const auto on_memory = tidemark_sim_tools.on_memory.load();
    for (const MemoryEvent& event : records.memory) {
      if (on_memory != nullptr) on_memory(event);
    }
  }
}

}  // namespace tidemark::sim
