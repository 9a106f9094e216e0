// The sites that an export of stacks writes, each with its bytes. What pprof, torch, folded and csv
// share.
#pragma once

#include <string>
#include <vector>

#include "daemon/serve/export.h"

namespace tidemark::exports {

struct Stack {
  const v1::Process* process = nullptr;
  const v1::Site* site = nullptr;
  int64_t bytes = 0;
  int64_t count = 0;  // 0 where only bytes are known
};

// Sites with bytes or blocks of the kind that the plan asks for; growth may be negative. Largest
// first within a process. Empty for a moment that a snapshot does not remember.
std::vector<Stack> Stacks(const Plan& plan, const Input& input);

// "live", "growth", ...
std::string_view NameOf(What what);

// "rank 3", or "pid 4711 python3" for a process without one.
std::string ProcessName(int32_t rank, int32_t helper_of, int32_t pid, const std::string& command);
std::string ProcessName(const v1::Process& process);
std::string ProcessName(const v1::ProcessRef& process);

// "forward (model.py:41)"; the library's name where there is no line.
std::string FrameName(const v1::Frame& frame);

std::string WritePprof(const Plan& plan, const Input& input, const std::vector<Stack>& stacks);
std::string WriteTorch(const Plan& plan, const Input& input, const std::vector<Stack>& stacks);
std::string WriteFolded(const std::vector<Stack>& stacks);
std::string WriteSitesCsv(const Input& input, const std::vector<Stack>& stacks);
std::string WriteHistoryCsv(const Input& input);
std::string WritePerfetto(const Input& input);
std::string WriteOpenMetrics(const Input& input);

}  // namespace tidemark::exports
