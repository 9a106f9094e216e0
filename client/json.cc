#include "client/json.h"

#include <google/protobuf/descriptor.h>

#include <cinttypes>
#include <cmath>
#include <cstdio>

namespace tidemark::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

bool IsSiteId(const FieldDescriptor& field) {
  return field.full_name() == "tidemark.v1.Site.id" || field.name() == "site_id";
}

// Infinity and not-a-number have no JSON; null says "no such number".
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json Value(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const bool many = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return many ? reflection.GetRepeatedInt32(message, &field, index)
                  : reflection.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return many ? reflection.GetRepeatedInt64(message, &field, index)
                  : reflection.GetInt64(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return many ? reflection.GetRepeatedUInt32(message, &field, index)
                  : reflection.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64: {
      const uint64_t value = many ? reflection.GetRepeatedUInt64(message, &field, index)
                                  : reflection.GetUInt64(message, &field);
      return IsSiteId(field) ? Json(SiteIdText(value)) : Json(value);
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number(many ? reflection.GetRepeatedDouble(message, &field, index)
                         : reflection.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Number(many ? reflection.GetRepeatedFloat(message, &field, index)
                         : reflection.GetFloat(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return many ? reflection.GetRepeatedBool(message, &field, index)
                  : reflection.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return many ? reflection.GetRepeatedEnum(message, &field, index)->name()
                  : reflection.GetEnum(message, &field)->name();
    case FieldDescriptor::CPPTYPE_STRING:
      return many ? reflection.GetRepeatedString(message, &field, index)
                  : reflection.GetString(message, &field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(many ? reflection.GetRepeatedMessage(message, &field, index)
                         : reflection.GetMessage(message, &field));
  }
  return nullptr;
}

Json MapValue(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  Json object = Json::object();
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    const Json key = Value(entry, *entry.GetDescriptor()->map_key(), 0);
    object[key.is_string() ? key.get<std::string>() : key.dump()] =
        Value(entry, *entry.GetDescriptor()->map_value(), 0);
  }
  return object;
}

}  // namespace

Json ToJson(const Message& message) {
  const auto& descriptor = *message.GetDescriptor();
  Json object = Json::object();
  for (int f = 0; f < descriptor.field_count(); ++f) {
    const FieldDescriptor& field = *descriptor.field(f);
    if (field.is_map()) {
      object[field.name()] = MapValue(message, field);
    } else if (field.is_repeated()) {
      Json array = Json::array();
      const int size = message.GetReflection()->FieldSize(message, &field);
      for (int i = 0; i < size; ++i) array.push_back(Value(message, field, i));
      object[field.name()] = std::move(array);
    } else if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE ||
               message.GetReflection()->HasField(message, &field)) {
      object[field.name()] = Value(message, field, 0);
    }
  }
  return object;
}

std::string SiteIdText(uint64_t id) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, id);
  return text;
}

std::string JsonText(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tidemark::client
