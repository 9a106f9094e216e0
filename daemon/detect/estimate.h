// `tidemark estimate`: what the model states of a ZeRO run should take, per GPU and per node's
// CPU, by DeepSpeed's own formulas (stages 2 and 3) and by one of ours (stage 1).
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "base/result.h"

namespace tidemark::detect {

struct EstimateOptions {
  int stage = 3;              // 1, 2 or 3
  std::string params;         // "6897M", "7B", "124439808"; M and B are powers of ten
  std::string largest_layer;  // the same; stage 3 only
  std::string model_dir;      // reads *.safetensors headers there instead of the two above
  int64_t nodes = 1;
  int64_t gpus_per_node = 1;
  double buffer_factor = 1.5;  // f of the formulas
  bool json = false;
};

struct EstimateInput {
  int stage = 3;
  int64_t params = 0;
  int64_t largest_layer = 0;
  int64_t nodes = 1;
  int64_t gpus_per_node = 1;
  double buffer_factor = 1.5;
};

// One combination of settings. Bytes are truncated to whole ones, as upstream does.
struct EstimateRow {
  int64_t cpu_bytes = 0;          // per node
  int64_t gpu_bytes = 0;          // per GPU
  std::string offload_param;      // "cpu", "none"; empty where the stage has no such setting
  std::string offload_optimizer;  // likewise
  std::string zero_init;          // "1", "0"; likewise
};

std::vector<EstimateRow> Estimate(const EstimateInput& input);

// "6897M" -> 6897000000. Refuses zero, signs, trailing text and what exceeds 2^47.
Result<int64_t> ParseParameterCount(const std::string& text);

// Exit status: 0 printed, 2 bad options or a model that could not be read.
int RunEstimate(const EstimateOptions& options, std::ostream& out, std::ostream& err);

}  // namespace tidemark::detect
