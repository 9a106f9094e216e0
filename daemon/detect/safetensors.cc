#include "daemon/detect/safetensors.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace tidemark::detect {
namespace {

constexpr uint64_t kLargestHeader = 100 << 20;  // upstream's own limit
constexpr int64_t kMostElements = int64_t{1} << 47;

Error Bad(const std::string& name, std::string why) {
  return Error{"read " + name, std::move(why), "is it a complete safetensors file?"};
}

// Elements of a shape; nothing on a negative dimension or overflow.
std::optional<int64_t> ElementsOf(const nlohmann::json& shape) {
  int64_t elements = 1;
  for (const auto& dimension : shape) {
    if (!dimension.is_number_unsigned()) return std::nullopt;
    const auto extent = dimension.get<uint64_t>();
    if (extent > static_cast<uint64_t>(kMostElements)) return std::nullopt;
    if (__builtin_mul_overflow(elements, static_cast<int64_t>(extent), &elements) ||
        elements > kMostElements) {
      return std::nullopt;
    }
  }
  return elements;
}

std::string ModuleOf(const std::string& tensor) {
  const size_t dot = tensor.rfind('.');
  return dot == std::string::npos ? tensor : tensor.substr(0, dot);
}

}  // namespace

Result<std::vector<TensorInfo>> ReadSafetensorsHeader(std::istream& in, const std::string& name) {
  std::array<unsigned char, 8> length_bytes{};
  if (!in.read(reinterpret_cast<char*>(length_bytes.data()), length_bytes.size())) {
    return Bad(name, "shorter than its length field");
  }
  uint64_t length = 0;
  for (size_t i = length_bytes.size(); i-- > 0;) length = length << 8 | length_bytes[i];
  if (length < 2 || length > kLargestHeader) {
    return Bad(name, "header length " + std::to_string(length) + " is absurd");
  }
  // In pieces: a short file that claims 100 MiB must not make us allocate them.
  std::string header;
  while (header.size() < length) {
    std::array<char, 65536> piece;
    const auto want = std::min<uint64_t>(piece.size(), length - header.size());
    in.read(piece.data(), static_cast<std::streamsize>(want));
    if (in.gcount() == 0) return Bad(name, "the header is cut short");
    header.append(piece.data(), static_cast<size_t>(in.gcount()));
  }
  const nlohmann::json json = nlohmann::json::parse(header, nullptr, false);
  if (!json.is_object()) return Bad(name, "the header is no JSON object");
  std::vector<TensorInfo> tensors;
  for (const auto& [key, entry] : json.items()) {
    if (key == "__metadata__") continue;
    const std::string where = "tensor '" + key + "' ";
    if (!entry.is_object() || !entry.contains("shape") || !entry["shape"].is_array() ||
        !entry.contains("data_offsets") || !entry["data_offsets"].is_array() ||
        entry["data_offsets"].size() != 2 || !entry["data_offsets"][0].is_number_unsigned() ||
        !entry["data_offsets"][1].is_number_unsigned()) {
      return Bad(name, where + "has no shape or no data_offsets");
    }
    const auto elements = ElementsOf(entry["shape"]);
    if (!elements) return Bad(name, where + "has an absurd shape");
    const auto begin = entry["data_offsets"][0].get<uint64_t>();
    const auto end = entry["data_offsets"][1].get<uint64_t>();
    if (end < begin || end - begin > static_cast<uint64_t>(kMostElements)) {
      return Bad(name, where + "has absurd data_offsets");
    }
    tensors.push_back({key, *elements, static_cast<int64_t>(end - begin)});
  }
  return tensors;
}

Result<ModelInfo> ReadModel(const std::string& directory) {
  ModelInfo model;
  std::error_code code;
  std::set<std::filesystem::path> paths;
  for (std::filesystem::directory_iterator it(directory, code), end; !code && it != end;
       it.increment(code)) {
    if (it->path().extension() == ".safetensors") paths.insert(it->path());
  }
  if (code) return Error{"read " + directory, code.message(), "--model takes a directory"};
  if (paths.empty()) {
    return Error{"read " + directory, "no *.safetensors in it",
                 "give --params and --largest-layer instead"};
  }
  std::set<std::string> seen;
  std::map<std::string, int64_t> modules;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    if (!in) return Error{"open " + path.string(), "not readable", ""};
    auto tensors = ReadSafetensorsHeader(in, path.string());
    if (!tensors.ok()) return tensors.error();
    ++model.files;
    for (TensorInfo& tensor : *tensors) {
      if (!seen.insert(tensor.name).second) {
        return Bad(path.string(), "tensor '" + tensor.name + "' is in another file too");
      }
      if (__builtin_add_overflow(model.params, tensor.elements, &model.params) ||
          model.params > kMostElements) {
        return Bad(path.string(), "more parameters than can be");
      }
      modules[ModuleOf(tensor.name)] += tensor.elements;
      model.tensors.push_back(std::move(tensor));
    }
  }
  for (const auto& [name, elements] : modules) {
    if (elements > model.largest_module) {
      model.largest_module = elements;
      model.largest_module_name = name;
    }
  }
  std::sort(model.tensors.begin(), model.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) {
              return a.elements != b.elements ? a.elements > b.elements : a.name < b.name;
            });
  if (model.params == 0) return Error{"read " + directory, "the model has no parameters", ""};
  return model;
}

}  // namespace tidemark::detect
