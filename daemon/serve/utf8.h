// Text from an observed process may be any bytes, but a proto3 string and a Prometheus label must
// be UTF-8: one bad name would make readers refuse the whole message.
#pragma once

#include <string>
#include <string_view>

namespace tidemark::serve {

// `text` with every byte that is not part of well-formed UTF-8 replaced by U+FFFD.
std::string Utf8(std::string_view text);

}  // namespace tidemark::serve
