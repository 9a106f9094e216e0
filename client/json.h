// Messages as JSON for scripts: every field, bytes exact and as numbers (protobuf's own JSON makes
// 64-bit numbers strings), site ids as 16 hexadecimal digits because they exceed what a double, and
// so many readers of JSON, can hold.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tidemark::client {

using Json = nlohmann::ordered_json;

Json ToJson(const google::protobuf::Message& message);

// An array of all messages of a repeated field.
template <typename Repeated>
Json ToJsonArray(const Repeated& messages) {
  Json array = Json::array();
  for (const auto& message : messages) array.push_back(ToJson(message));
  return array;
}

// "00c0ffee00c0ffee".
std::string SiteIdText(uint64_t id);

// Indented, with a final newline. Bytes that are not UTF-8 (a file name of the job) are replaced.
std::string JsonText(const Json& json);

}  // namespace tidemark::client
