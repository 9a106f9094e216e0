// The query of a URL as a protobuf message, so that HTTP takes what the RPC takes.
#pragma once

#include <google/protobuf/message.h>

#include <string_view>

#include "base/result.h"

namespace tidemark::serve {

// "pids=1&pids=2&before.moment.name=load" over `message`: fields by their names in the proto file,
// a repeated one repeated, one inside another after a dot; values percent-encoded. Fails, with what
// is wrong, for a field that does not exist, a value that is none of its type, and a scalar said
// twice. `query` is untrusted.
Result<void> ReadQuery(std::string_view query, google::protobuf::Message* message);

}  // namespace tidemark::serve
