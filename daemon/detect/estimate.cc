#include "daemon/detect/estimate.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "daemon/detect/safetensors.h"

namespace tidemark::detect {
namespace {

constexpr int kExitBadInput = 2;
constexpr double kLargestCount = 0x1p53;
constexpr int64_t kMostNodes = 1'000'000;

// P and L in bytes of the formulas: 2 bytes a half-precision parameter or gradient, 4 a
// single-precision one, 16 a parameter with its gradient and Adam's states.
std::vector<EstimateRow> Stage3(const EstimateInput& in) {
  const auto params = static_cast<double>(in.params);
  const auto nodes = static_cast<double>(in.nodes);
  const auto gpus = static_cast<double>(in.gpus_per_node);
  const int64_t total_gpus = in.nodes * in.gpus_per_node;
  const int64_t layer = 4 * in.largest_layer;
  const double f = in.buffer_factor;
  const auto whole = [](double bytes) { return static_cast<int64_t>(bytes); };
  std::vector<EstimateRow> rows;
  for (const bool zero_init : {true, false}) {
    const double cpu =
        zero_init ? params * 18 * f / nodes : params * std::max(4 * gpus, 18 / nodes) * f;
    rows.push_back({whole(cpu), layer, "cpu", "cpu", zero_init ? "1" : "0"});
  }
  for (const bool zero_init : {true, false}) {
    const double cpu =
        zero_init ? params * 16 * f / nodes : params * std::max(4 * gpus, 16 / nodes) * f;
    rows.push_back(
        {whole(cpu), layer + 2 * in.params / total_gpus, "none", "cpu", zero_init ? "1" : "0"});
  }
  for (const bool zero_init : {true, false}) {
    const double cpu = zero_init ? static_cast<double>(layer) * gpus * f : params * 4 * gpus * f;
    rows.push_back(
        {whole(cpu), layer + 18 * in.params / total_gpus, "none", "none", zero_init ? "1" : "0"});
  }
  return rows;
}

std::vector<EstimateRow> Stage2(const EstimateInput& in) {
  const auto params = static_cast<double>(in.params);
  const int64_t total_gpus = in.nodes * in.gpus_per_node;
  const double f = in.buffer_factor;
  return {
      {static_cast<int64_t>(params * std::max(4.0 * static_cast<double>(total_gpus), 16.0) * f),
       2 * in.params, "", "cpu", ""},
      {static_cast<int64_t>(params * 4 * static_cast<double>(in.gpus_per_node) * f),
       2 * in.params + 18 * in.params / total_gpus, "", "none", ""},
  };
}

std::vector<EstimateRow> Stage1(const EstimateInput& in) {
  return {{0, 4 * in.params + 12 * in.params / (in.nodes * in.gpus_per_node), "", "none", ""}};
}

std::string Gb(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2fGB", static_cast<double>(bytes) / (1024.0 * 1024 * 1024));
  return text;
}

std::string SettingsOf(const EstimateRow& row) {
  std::string text;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += (text.empty() ? "" : ", ") + std::string(name) + "=" + value;
  };
  add("offload_param", row.offload_param);
  add("offload_optimizer", row.offload_optimizer);
  add("zero_init", row.zero_init);
  return text;
}

constexpr const char* kLeftOut =
    "Left out: activations, buffers such as attention masks, persistent parameters, communication\n"
    "buckets, the CUDA context and NCCL. `tidemark where` shows what they take.";

void PrintTable(const EstimateInput& input, const ModelInfo* model,
                const std::vector<EstimateRow>& rows, std::ostream& out) {
  const std::string plural_nodes = input.nodes == 1 ? " node" : " nodes";
  const std::string plural_gpus = input.gpus_per_node == 1 ? " GPU" : " GPUs";
  out << "Estimated memory for parameters, optimizer states and gradients, ZeRO stage "
      << input.stage << (input.stage == 1 ? " (Tidemark's own formula; upstream has none)" : "")
      << "\n"
      << input.nodes << plural_nodes << ", " << input.gpus_per_node << plural_gpus << " per node, "
      << input.params / 1'000'000 << "M total params";
  if (input.stage == 3) out << ", " << input.largest_layer / 1'000'000 << "M largest layer params";
  out << "\n";
  if (model != nullptr) {
    out << "From " << model->files << " safetensors file(s): " << input.params << " parameters in "
        << model->tensors.size() << " tensors; largest module " << model->largest_module_name
        << " (" << model->largest_module << ")\n";
  }
  if (input.stage == 1) {
    out << "  per GPU  |  options\n";
  } else {
    out << "  per CPU  |  per GPU |   options\n";
  }
  for (const EstimateRow& row : rows) {
    char line[160];
    if (input.stage == 1) {
      std::snprintf(line, sizeof line, "%10s | %s\n", Gb(row.gpu_bytes).c_str(),
                    SettingsOf(row).c_str());
    } else {
      std::snprintf(line, sizeof line, "%10s | %8s | %s\n", Gb(row.cpu_bytes).c_str(),
                    Gb(row.gpu_bytes).c_str(), SettingsOf(row).c_str());
    }
    out << line;
  }
  out << kLeftOut << "\n";
}

void PrintJson(const EstimateInput& input, const ModelInfo* model,
               const std::vector<EstimateRow>& rows, std::ostream& out) {
  nlohmann::ordered_json json;
  json["stage"] = input.stage;
  json["formula"] = input.stage == 1 ? "tidemark" : "deepspeed";
  json["params"] = input.params;
  if (input.stage == 3) json["largest_layer"] = input.largest_layer;
  json["nodes"] = input.nodes;
  json["gpus_per_node"] = input.gpus_per_node;
  json["buffer_factor"] = input.buffer_factor;
  for (const EstimateRow& row : rows) {
    nlohmann::ordered_json one;
    if (input.stage != 1) one["cpu_bytes"] = row.cpu_bytes;
    one["gpu_bytes"] = row.gpu_bytes;
    if (!row.offload_param.empty()) one["offload_param"] = row.offload_param;
    if (!row.offload_optimizer.empty()) one["offload_optimizer"] = row.offload_optimizer;
    if (!row.zero_init.empty()) one["zero_init"] = row.zero_init == "1";
    json["estimates"].push_back(std::move(one));
  }
  if (model != nullptr) {
    json["model"]["largest_module"] = model->largest_module_name;
    json["model"]["tensors"] = model->tensors.size();
    for (size_t i = 0; i < std::min<size_t>(model->tensors.size(), 20); ++i) {
      const TensorInfo& tensor = model->tensors[i];
      json["model"]["largest_tensors"].push_back(
          {{"name", tensor.name}, {"elements", tensor.elements}, {"bytes", tensor.bytes}});
    }
  }
  json["left_out"] = {"activations", "buffers", "persistent parameters",
                      "buckets",     "context", "NCCL"};
  out << json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

Result<EstimateInput> InputOf(const EstimateOptions& options, const ModelInfo* model) {
  EstimateInput input;
  input.stage = options.stage;
  input.nodes = options.nodes;
  input.gpus_per_node = options.gpus_per_node;
  input.buffer_factor = options.buffer_factor;
  if (options.stage < 1 || options.stage > 3) {
    return Error{"estimate", "--stage is " + std::to_string(options.stage), "use 1, 2 or 3"};
  }
  if (options.nodes < 1 || options.gpus_per_node < 1 || options.nodes > kMostNodes ||
      options.gpus_per_node > kMostNodes) {
    return Error{"estimate", "--nodes and --gpus-per-node must be at least 1 (and at most 1e6)",
                 ""};
  }
  if (!(options.buffer_factor > 0 && options.buffer_factor <= 100)) {
    return Error{"estimate", "the buffer factor must lie above 0 and up to 100",
                 "upstream has 1.5"};
  }
  if (model != nullptr) {
    input.params = model->params;
    input.largest_layer = model->largest_module;
    return input;
  }
  if (options.params.empty()) return Error{"estimate", "no --params", "or give --model DIR"};
  const Result<int64_t> params = ParseParameterCount(options.params);
  if (!params.ok()) return params.error();
  input.params = *params;
  if (options.stage != 3) return input;
  if (options.largest_layer.empty()) {
    return Error{"estimate", "stage 3 needs --largest-layer", "or give --model DIR"};
  }
  const Result<int64_t> layer = ParseParameterCount(options.largest_layer);
  if (!layer.ok()) return layer.error();
  input.largest_layer = *layer;
  if (input.largest_layer > input.params) {
    return Error{"estimate", "the largest layer has more parameters than the model", ""};
  }
  return input;
}

}  // namespace

std::vector<EstimateRow> Estimate(const EstimateInput& input) {
  switch (input.stage) {
    case 1:
      return Stage1(input);
    case 2:
      return Stage2(input);
    default:
      return Stage3(input);
  }
}

Result<int64_t> ParseParameterCount(const std::string& text) {
  const auto refuse = [&](const char* why) {
    return Error{"read the parameter count '" + text + "'", why, "write 6897M, 7B or 124439808"};
  };
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{}) return refuse("it is no number");
  std::string suffix(end, text.data() + text.size());
  double unit = 1;
  if (suffix == "K" || suffix == "k") {
    unit = 1e3;
  } else if (suffix == "M" || suffix == "m") {
    unit = 1e6;
  } else if (suffix == "B" || suffix == "b" || suffix == "G") {
    unit = 1e9;
  } else if (suffix == "T") {
    unit = 1e12;
  } else if (!suffix.empty()) {
    return refuse("the text after the number is no unit");
  }
  value *= unit;
  if (!(value >= 1) || value > kLargestCount / 64) return refuse("it must lie from 1 to 2^47");
  return static_cast<int64_t>(std::llround(value));
}

int RunEstimate(const EstimateOptions& options, std::ostream& out, std::ostream& err) {
  std::optional<ModelInfo> model;
  if (!options.model_dir.empty()) {
    Result<ModelInfo> read = ReadModel(options.model_dir);
    if (!read.ok()) {
      err << read.error().ToString() << "\n";
      return kExitBadInput;
    }
    model = std::move(*read);
  }
  const ModelInfo* known = model ? &*model : nullptr;
  const Result<EstimateInput> input = InputOf(options, known);
  if (!input.ok()) {
    err << input.error().ToString() << "\n";
    return kExitBadInput;
  }
  const std::vector<EstimateRow> rows = Estimate(*input);
  if (options.json) {
    PrintJson(*input, known, rows, out);
  } else {
    PrintTable(*input, known, rows, out);
  }
  return 0;
}

}  // namespace tidemark::detect
