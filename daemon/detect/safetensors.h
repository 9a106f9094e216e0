// Parameter counts of a model on disk, from the headers of its *.safetensors files. Only headers
// are read: 8 bytes of length and that much JSON, whatever the size of the weights.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "base/result.h"

namespace tidemark::detect {

struct TensorInfo {
  std::string name;
  int64_t elements = 0;
  int64_t bytes = 0;  // on disk
};

struct ModelInfo {
  int64_t params = 0;
  // The largest module by its own tensors (weight and bias of one layer object), which is what the
  // upstream formulas mean by the largest layer.
  int64_t largest_module = 0;
  std::string largest_module_name;
  std::vector<TensorInfo> tensors;  // largest first
  size_t files = 0;
};

// One header. Untrusted: lengths, shapes and offsets are checked against each other and for
// overflow.
Result<std::vector<TensorInfo>> ReadSafetensorsHeader(std::istream& in, const std::string& name);

// All *.safetensors of a directory; a tensor that occurs in two files is an error.
Result<ModelInfo> ReadModel(const std::string& directory);

}  // namespace tidemark::detect
