#include "daemon/serve/http_query.h"

#include <charconv>
#include <optional>
#include <set>
#include <string>

#include "daemon/serve/utf8.h"

namespace tidemark::serve {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::optional<std::string> Decode(std::string_view text) {
  std::string decoded;
  while (!text.empty()) {
    char c = text.front();
    size_t taken = 1;
    if (c == '%') {
      unsigned value = 0;
      if (text.size() < 3) return std::nullopt;
      const auto [stop, error] = std::from_chars(text.data() + 1, text.data() + 3, value, 16);
      if (error != std::errc() || stop != text.data() + 3) return std::nullopt;
      c = static_cast<char>(value);
      taken = 3;
    } else if (c == '+') {
      c = ' ';
    }
    if (c == '\0') return std::nullopt;
    decoded += c;
    text.remove_prefix(taken);
  }
  // A proto3 string must be UTF-8.
  if (Utf8(decoded) != decoded) return std::nullopt;
  return decoded;
}

template <typename T>
std::optional<T> Number(const std::string& text) {
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

// Sets or adds one value; false when `text` is none of the field's type. Requests hold only these
// types.
bool Put(Message* message, const FieldDescriptor* field, const std::string& text) {
  const auto* reflection = message->GetReflection();
  const bool add = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      if (const auto value = Number<int32_t>(text)) {
        add ? reflection->AddInt32(message, field, *value)
            : reflection->SetInt32(message, field, *value);
        return true;
      }
      return false;
    case FieldDescriptor::CPPTYPE_UINT64:
      if (const auto value = Number<uint64_t>(text)) {
        add ? reflection->AddUInt64(message, field, *value)
            : reflection->SetUInt64(message, field, *value);
        return true;
      }
      return false;
    case FieldDescriptor::CPPTYPE_BOOL:
      if (add || (text != "true" && text != "false")) return false;
      reflection->SetBool(message, field, text == "true");
      return true;
    case FieldDescriptor::CPPTYPE_STRING:
      add ? reflection->AddString(message, field, text)
          : reflection->SetString(message, field, text);
      return true;
    default:
      return false;
  }
}

Error Wrong(std::string_view name, std::string_view why) {
  return Error{"read the query", "'" + Utf8(name) + "' " + std::string(why), ""};
}

}  // namespace

Result<void> ReadQuery(std::string_view query, Message* message) {
  std::set<std::string_view> said;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    const std::string_view name = pair.substr(0, equals);
    if (equals == std::string_view::npos) return Wrong(name, "has no value");
    const std::optional<std::string> value = Decode(pair.substr(equals + 1));
    if (!value) return Wrong(name, "has a value that is not percent-encoded text");

    Message* at = message;
    std::string_view rest = name;
    const FieldDescriptor* field = nullptr;
    while (true) {
      const size_t dot = rest.find('.');
      field = at->GetDescriptor()->FindFieldByName(std::string(rest.substr(0, dot)));
      if (field == nullptr) return Wrong(name, "is not known here");
      if (dot == std::string_view::npos) break;
      if (field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        return Wrong(name, "is not known here");
      }
      at = at->GetReflection()->MutableMessage(at, field);
      rest.remove_prefix(dot + 1);
    }
    if (!field->is_repeated() && !said.insert(name).second) return Wrong(name, "is said twice");
    if (!Put(at, field, *value)) return Wrong(name, "has a value that is none of its kind");
  }
  return {};
}

}  // namespace tidemark::serve
